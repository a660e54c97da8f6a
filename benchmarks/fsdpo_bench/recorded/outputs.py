"""Responses that others recorded, in the forms they published them in."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fsdpo_bench.tasks.table import after_hashes
from fsdpo_data.answers import Verdict
from fsdpo_data.answers.finding.extract import is_marked
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.answers.pool import grade_all
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.rows import Record, read_records
from fsdpo_data.core.sampling import FinishReason
from fsdpo_data.core.statistics import wilson_interval
from fsdpo_data.problems.forms import NotAProblem, boxed_gold

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One response, its gold, and what its publisher says of it."""

    gold: str
    response: str
    correct: bool | None
    series: str = ""  #: Which model or sample of the row it is; empty where there is one.
    question: str = ""
    model: str = ""  #: Which of the models in the file it is from; empty where there is one.
    reward: float | None = None  #: What a reward model gave it, in [0, 1]; None if there is none.
    row: int = 0
    #: ``length`` where the row says that the response was cut off.
    finish_reason: FinishReason = "stop"


@dataclass(frozen=True, slots=True)
class OutputForm:
    """One way to write responses down."""

    says: str
    fields: frozenset[str]
    read: Callable[[Fields], Iterator[Recorded]]
    #: Whether a document may have several rows, each with the same responses.
    repeats: bool = False


def _openai(row: Fields) -> Iterator[Recorded]:
    # A gold solution may say "at Job A: …" before the "A: 8400" it ends on.
    gold = row["ground_truth"].rpartition("\nA:")[2].strip()
    for name, value in row.items():
        if isinstance(value, Mapping):
            text, verdict = value["solution"], value["is_correct"]
            yield Recorded(gold, text, verdict, name, row["question"], model=name)


def _samples(row: Fields) -> Iterator[Recorded]:
    """Read ToRA's form, and Qwen's, which has a verdict and a logit for each sample as well."""
    texts = row["code"]
    verdicts = row.get("score") or [None] * len(texts)
    logits = row.get("pred_score") or [None] * len(texts)
    question = row.get("question", "")
    for index, (text, verdict, logit) in enumerate(zip(texts, verdicts, logits, strict=True)):
        reward = None if logit is None else 1 / (1 + math.exp(-logit[0]))
        yield Recorded(row["gt"], text, verdict, f"sample {index}", question, reward=reward)


def _abel(row: Fields) -> Iterator[Recorded]:
    question = row.get("prompt", "").removeprefix("Question:\n").rpartition("\nAnswer:")[0]
    yield Recorded(row["gold"], row["response"], row["result"], question=question)


def _nemo(row: Fields) -> Iterator[Recorded]:
    verdict, question = row["symbolic_correct"], row.get("problem", "")
    yield Recorded(row["expected_answer"], row["generation"], verdict, question=question)


def _lm_eval(row: Fields) -> Iterator[Recorded]:
    texts = [text for request in row["resps"] for text in request]
    if not all(isinstance(text, str) for text in texts):
        raise NotAProblem("resps holds log-likelihoods; only tasks that generate have responses")
    # The target is the whole reference solution for some tasks.
    target, doc = row["target"], row.get("doc") or {}
    gold = boxed_gold(target) if "\\boxed" in target else after_hashes(target)
    asked = (names for names in _LM_EVAL_QUESTIONS if all(name in doc for name in names))
    question = " ".join(str(doc[name]) for name in next(asked, ()))
    # Of several samples the score is that of the first, or of their vote: the filter decides.
    scores = [bool(row[name]) for name in ("exact_match", "acc") if name in row]
    verdict = scores[0] if scores and len(texts) == 1 else None
    for index, text in enumerate(texts):
        yield Recorded(gold, text, verdict, f"sample {index}", question)


def _plain(row: Fields) -> Iterator[Recorded]:
    gold, question = str(row["answer"]), str(row.get("question", ""))
    yield Recorded(gold, row["response"], row.get("correct"), question=question)


#: What the question is made of, by the data set of the task.
_LM_EVAL_QUESTIONS = (
    ("body", "question"),
    ("Body", "Question"),
    ("question",),
    ("problem",),
    ("input",),
)

#: The first whose fields a row has reads it.
FORMS = (
    OutputForm("OpenAI's GSM8K solutions", frozenset({"question", "ground_truth"}), _openai),
    OutputForm("ToRA and Qwen", frozenset({"gt", "code"}), _samples),
    OutputForm("Abel", frozenset({"gold", "response", "result"}), _abel),
    OutputForm("NeMo-Skills", frozenset({"generation", "expected_answer"}), _nemo),
    OutputForm("lm-evaluation-harness samples", frozenset({"resps", "target"}), _lm_eval, True),
    OutputForm("plain", frozenset({"answer", "response"}), _plain),
)


def read_outputs(file: Path) -> list[Recorded]:
    """Read recorded responses, whoever published them.

    lm-evaluation-harness writes every document once for each of its filters, with the same
    responses; they are read once, with the score of the first filter.

    Raises:
        InputError: if a row cannot be read, or is of no known form.
    """
    found: list[Recorded] = []
    seen: set[str] = set()
    for record in read_records(file):
        form = _form_of(record.fields)
        if record.broken or form is None:
            known = "; ".join(f"{form.says} ({', '.join(sorted(form.fields))})" for form in FORMS)
            why = record.broken or f"fields {', '.join(sorted(record.fields))}"
            raise InputError(f"{file}, row {record.row}: {why}. Expected one of: {known}.")
        key = _document(record.fields) if form.repeats else ""
        if not key or key not in seen:
            found += _responses(file, form, record)
        seen.add(key)
    if not found:
        raise InputError(f"{file}: no response in it.")
    return found


def _document(row: Fields) -> str:
    """Name a document by its number and itself: where files are joined, a number is of several."""
    return json.dumps([row["doc_id"], row.get("doc")], sort_keys=True) if "doc_id" in row else ""


def _responses(file: Path, form: OutputForm, record: Record) -> list[Recorded]:
    where = f"{file}, row {record.row}"
    try:
        found = [replace(each, row=record.row) for each in form.read(record.fields)]
        if record.fields.get("finish_reason") == "length":
            found = [replace(each, finish_reason="length") for each in found]
    except NotAProblem as reason:
        raise InputError(f"{where}: {reason}.") from None
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise InputError(f"{where}: not the form of {form.says} ({error!r}).") from None
    if not found:
        raise InputError(f"{where}: no response in it, expected one in the form of {form.says}.")
    for each in found:
        texts = (
            ("gold", each.gold),
            ("response", each.response),
            ("question", each.question or ""),
        )
        for name, value in texts:
            if not isinstance(value, str):
                raise InputError(f"{where}: the {name} is {value!r}, expected text.")
    return found


def is_outputs(file: Path) -> bool:
    """Whether a file's first row has one of the forms.

    Raises:
        InputError: if there is no such file.
    """
    first = next(iter(read_records(file)), None)
    return first is not None and _form_of(first.fields) is not None


def _form_of(fields: Fields) -> OutputForm | None:
    return next((form for form in FORMS if form.fields <= fields.keys()), None)


@dataclass(frozen=True, slots=True)
class Scored:
    """A recorded response with our verdict, and with the one without any tolerance."""

    recorded: Recorded
    verdict: Verdict
    exact: Verdict

    @property
    def correct(self) -> bool:
        """Whether we call it correct."""
        return self.verdict.status == "correct"

    @property
    def disputed(self) -> bool:
        """Whether its publisher says otherwise."""
        return self.recorded.correct is not None and self.recorded.correct != self.correct


@dataclass(frozen=True, slots=True)
class Series:
    """The score of one model or sample index."""

    name: str  #: As the file has it; empty where there is one series.
    outcomes: Counter[str]
    marked: int  #: Correct responses that mark their answer: the score without the lenient rules.
    exact: int  #: Correct responses without any tolerance.
    #: Responses its publisher calls correct; None where the file has no verdicts.
    theirs: int | None
    disputed: int

    @property
    def graded(self) -> int:
        """Responses that count: all but those whose gold cannot be read."""
        return self.outcomes.total() - self.outcomes["gold_unparsed"]

    def as_dict(self) -> dict[str, Any]:
        """Return it for machines."""
        return {
            "series": self.name,
            "correct": self.outcomes["correct"],
            "marked_correct": self.marked,
            "exact_correct": self.exact,
            "n": self.graded,
            "ci95": wilson_interval(self.outcomes["correct"], self.graded),
            "outcomes": dict(sorted(self.outcomes.items())),
            "published_correct": self.theirs,
            "disputed": self.disputed,
        }


def score(
    recorded: Sequence[Recorded], tolerance: float | None = None, workers: int | None = None
) -> list[Scored]:
    """Grade recorded responses, in order; ``timed_out`` counts as wrong."""
    pairs = [(each.gold, each.response, each.finish_reason) for each in recorded]
    exact = grade_all(MathGrader, pairs, workers)
    counted = grade_all(partial(MathGrader, tolerance), pairs, workers) if tolerance else exact
    return [Scored(*each) for each in zip(recorded, counted, exact, strict=True)]


def by_series(scored: Sequence[Scored]) -> list[Series]:
    """Count by series, in the order of their names."""
    groups: dict[str, list[Scored]] = defaultdict(list)
    for each in scored:
        groups[each.recorded.series].append(each)
    return [_count(name, groups[name]) for name in sorted(groups)]


def _count(name: str, scored: Sequence[Scored]) -> Series:
    flags = [each.recorded.correct for each in scored]
    return Series(
        name,
        Counter(each.verdict.status for each in scored),
        sum(each.correct and is_marked(each.verdict.rule) for each in scored),
        sum(each.exact.status == "correct" for each in scored),
        None if None in flags else sum(map(bool, flags)),
        sum(each.disputed for each in scored),
    )
