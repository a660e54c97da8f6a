"""Training problems held against benchmarks: a report, and the problems that are left."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdpo_data.answers.boxes import last_boxed
from fsdpo_data.errors import InputError
from fsdpo_data.files import explained, write_atomic
from fsdpo_data.forms import FORMS
from fsdpo_data.overlap import RUN, SHARE, Text, overlaps
from fsdpo_data.records import data_files, read_records
from fsdpo_data.schema import Problem

if TYPE_CHECKING:
    import polars as pl

#: Fields that make up a question; also those of SVAMP and AddSub as first published.
_QUESTIONS = (("Body", "Question"), ("sQuestion",), *(form.question for form in FORMS))
_ANSWERS = ("answer", "gold_answer", "ground_truth_answer", "Answer", "lSolutions")


@dataclass(frozen=True, slots=True)
class Contamination:
    """What was found.

    Attributes:
        problems: The training problems.
        benchmarks: Texts of the benchmarks.
        pairs: Result of :func:`fsdpo_data.overlap.overlaps`.
    """

    problems: Sequence[Problem]
    benchmarks: Sequence[Text]
    pairs: pl.DataFrame

    @property
    def clean(self) -> list[Problem]:
        """Return the problems that occur in no benchmark."""
        hit = set(self.pairs["training"])
        return [problem for i, problem in enumerate(self.problems) if i not in hit]

    def counts(self) -> dict[str, dict[str, int]]:
        """Return how many training problems each benchmark has, and how many of it are hit."""
        sizes: dict[str, int] = {}
        for text in self.benchmarks:
            sizes[text.where] = sizes.get(text.where, 0) + 1
        found: dict[str, dict[str, int]] = {}
        for where, questions in sizes.items():
            rows = [row for row in self._rows() if row["benchmark"] == where]
            found[where] = {
                "questions": questions,
                "hit": len({row["row"] for row in rows}),
                "problems": len({row["problem_id"] for row in rows}),
                "same": len({row["row"] for row in rows if row["same"]}),
                "same_answer": len({row["row"] for row in rows if row["same_answer"]}),
            }
        return found

    def report(self) -> dict[str, Any]:
        """Return counts by benchmark, then every pair with both questions, as JSON values."""
        dropped = len(self.problems) - len(self.clean)
        totals = {"problems": len(self.problems), "contaminated": dropped}
        return {**totals, "benchmarks": self.counts(), "pairs": list(self._rows())}

    def _rows(self) -> Iterator[dict[str, Any]]:
        for pair in self.pairs.iter_rows(named=True):
            problem, text = self.problems[pair["training"]], self.benchmarks[pair["benchmark"]]
            yield {
                "problem_id": problem.id,
                "benchmark": text.where,
                "row": text.row,
                "same": pair["same"],
                "share": round(pair["share"], 4),
                "same_answer": pair["same_answer"],
                "question": problem.question,
                "benchmark_question": text.question,
            }


def hold_against(
    problems: Sequence[Problem], files: Sequence[str], *, n: int = RUN, share: float = SHARE
) -> Contamination:
    """Compare problems with the questions of benchmark files.

    Args:
        problems: What is to be trained on.
        files: Files or directories, read whole whatever split they are of.
        n: Words of a run.
        share: Overlap from which a problem counts as contaminated.

    Raises:
        InputError: if a number makes no sense, or a file has no question.
    """
    if n < 2 or not 0 < share <= 1:
        raise InputError(f"--ngram {n} --overlap {share}: expected 2 or more, and at most 1.")
    training = [Text(each.source, 0, each.question, each.answer) for each in problems]
    benchmarks = [text for name in files for text in benchmark_texts(name)]
    return Contamination(problems, benchmarks, overlaps(training, benchmarks, n=n, share=share))


def benchmark_texts(name: str) -> list[Text]:
    """Return the questions in a file or directory; rows without one are passed over.

    Raises:
        InputError: if there is none at all.
    """
    texts = []
    for file in data_files(name, "test"):
        for record in read_records(file):
            fields = record.fields
            if isinstance(fields.get("question"), dict):  # PRM800K
                fields = fields["question"]
            question = _question(fields)
            if question:
                texts.append(Text(name, record.row, question, _answer(fields)))
    if not texts:
        raise InputError(f"{name}: no row has a question. Expected fields such as `question`.")
    return texts


def _question(fields: Mapping[str, Any]) -> str:
    for names in _QUESTIONS:
        if all(isinstance(fields.get(name), str) for name in names):
            return " ".join(fields[name] for name in names)
    return ""


def _answer(fields: Mapping[str, Any]) -> str:
    """Return the gold answer, out of its solution if it stands there; empty if there is none."""
    value = next((fields[key] for key in _ANSWERS if fields.get(key)), None)
    if value is None:
        return last_boxed(str(fields.get("solution", ""))) or ""
    return str(value).rpartition("####")[2].strip()


def write_outcome(found: Contamination, report: Path | None, clean: Path | None) -> None:
    """Write the report, and the problems that are left as rows for ``build --problems``.

    Raises:
        StoreError: if the disk fails.
    """
    rows = "".join(json.dumps(each.row(), ensure_ascii=False) + "\n" for each in found.clean)
    body = json.dumps(found.report(), indent=2, ensure_ascii=False) + "\n"
    for path, text in ((report, body), (clean, rows)):
        if path is not None:
            with explained(path.parent, saved=0):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(path, text.encode())
