"""Measure the grader on labelled rows, and compare its verdicts on real outputs with earlier ones.

    python benchmarks/grading/measure_grader.py labelled ../shared/data/grading
    python benchmarks/grading/measure_grader.py outputs ../shared/data --out after.jsonl \
        --before before.jsonl

`labelled` reads every `*.jsonl` of a directory. Each row has a gold, an answer or a response, the
label `equal`, and a kind; rows with `disputed` are not counted. One third of the kinds is
reserved by a hash of its name. `--show missed` (or `false-positive`, `undecided`) prints rows,
but never a row of a reserved kind. Develop rules with the other kinds, and judge them on the
reserved kinds.

`outputs` grades recorded responses (`outputs/`, `pools/` and `benchmarks/math500` of a data
directory), and writes one line per response to a file. `--before` is the file of an earlier run:
every verdict that differs is printed, after the counts. To measure an earlier commit, run this
script with `PYTHONPATH` at its checkout.
"""

import gzip
import hashlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer import Argument, Option

from fsdpo_data.answers import GradingRequest, Verdict
from fsdpo_data.answers.comparison.equivalence import compare_answers
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.answers.thinking import find_thinking
from fsdpo_data.exchange.outputs import read_outputs

app = typer.Typer(add_completion=False, help=__doc__)

RESERVED_SEED = "held-back-1"  #: Seed of the choice of kinds.
OUTCOMES = ("right", "false-positive", "missed", "undecided")
#: Verdicts of a grader that did not decide.
UNDECIDED_STATUSES = frozenset(("undecided", "gold_unparsed", "timed_out"))
MAX_SHOWN_CHARS = 300  #: Characters of a response that are printed, from its end.

Row = dict[str, Any]


class LabelledVerdict(NamedTuple):
    """A labelled row with our verdict."""

    row: Row  #: The row.
    verdict: Verdict  #: Our verdict.

    @property
    def outcome(self) -> str:
        """One of ``OUTCOMES``."""
        if self.verdict.status in UNDECIDED_STATUSES:
            return "undecided"
        is_accepted = self.verdict.status == "correct"
        if is_accepted == self.row["equal"]:
            return "right"
        return "false-positive" if is_accepted else "missed"


class RecordedOutput(NamedTuple):
    """A recorded response with its gold."""

    key: str  #: File and row, which identify the response.
    gold: str  #: The gold answer.
    response: str  #: The response.
    finish_reason: str = "stop"  #: See ``GradingRequest``.

    @property
    def request(self) -> GradingRequest:
        """The response as the grader takes it."""
        thinking = find_thinking("", self.response)
        return GradingRequest(self.gold, self.response, self.finish_reason, thinking)


def is_reserved(kind: str) -> bool:
    """Whether the rows of a kind are counted, but never printed."""
    digest = hashlib.sha256(f"{RESERVED_SEED}:{kind}".encode()).digest()
    return digest[0] % 3 == 0


@app.command("labelled")
def measure_labelled(
    directory: Annotated[Path, Argument(help="Directory of labelled rows.")],
    show: Annotated[list[str] | None, Option(help="Outcomes whose rows are printed.")] = None,
    kinds: Annotated[bool, Option(help="Print one line per kind.")] = False,
) -> None:
    """Count right, false-positive, missed and undecided rows of each set."""
    for file in sorted(directory.glob("*.jsonl")):
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        graded = grade_rows([row for row in rows if not row.get("disputed")])
        print_counts(file.stem, graded)
        if kinds:
            print_kinds(graded)
        for item in graded:
            if item.outcome in (show or ()) and not is_reserved(item.row["kind"]):
                print_row(item)


def grade_rows(rows: Sequence[Row]) -> list[LabelledVerdict]:
    """Grade answers as pairs, and responses as a whole."""
    grader = MathGrader()
    graded = []
    for row in rows:
        if "response" in row:
            thinking = find_thinking("", row["response"])
            request = GradingRequest(row["gold"], row["response"], thinking=thinking)
            verdict = grader.grade([request])[0]
        else:
            verdict = compare_answers(row["gold"], row["answer"])
        graded.append(LabelledVerdict(row, verdict))
    return graded


def print_counts(name: str, graded: Sequence[LabelledVerdict]) -> None:
    """Print the counts of a set: all rows, by pairs and responses, and by reserved kinds."""
    groups: dict[str, list[LabelledVerdict]] = defaultdict(list)
    for item in graded:
        form = "responses" if "response" in item.row else "pairs"
        group = "reserved" if is_reserved(item.row["kind"]) else "seen"
        for key in ("all", form, group, f"{group} {form}"):
            groups[key].append(item)
    header = "".join(f"{outcome:>16}" for outcome in OUTCOMES)
    print(f"{name:<22}{'rows':>6}{header}{'right if decided':>18}")
    for group, items in groups.items():
        counts = Counter(item.outcome for item in items)
        n_decided = len(items) - counts["undecided"]
        cells = "".join(
            f"{counts[outcome]:>7}{counts[outcome] / len(items):>9.1%}" for outcome in OUTCOMES
        )
        decided = counts["right"] / n_decided if n_decided else 0.0
        print(f"  {group:<20}{len(items):>6}{cells}{decided:>18.1%}")


def print_kinds(graded: Sequence[LabelledVerdict]) -> None:
    """Print the counts of each kind that is not reserved."""
    by_kind: dict[str, Counter[str]] = defaultdict(Counter)
    for item in graded:
        if not is_reserved(item.row["kind"]):
            by_kind[item.row["kind"]][item.outcome] += 1
    for kind, counts in sorted(by_kind.items()):
        cells = "".join(f"{counts[outcome]:>16}" for outcome in OUTCOMES)
        print(f"    {kind:<18}{counts.total():>6}{cells}")


def print_row(item: LabelledVerdict) -> None:
    """Print a row with its verdict."""
    text = item.row.get("answer") or "…" + item.row["response"][-MAX_SHOWN_CHARS:]
    verdict = item.verdict
    print(f"  [{item.outcome}] {item.row['kind']}: gold {item.row['gold']!r}, answer {text!r}")
    forms = f"{verdict.gold_form} against {verdict.answer_form}"
    print(f"      {verdict.rule}: {forms} {item.row.get('note', '')}")


@app.command("outputs")
def grade_outputs(
    directory: Annotated[Path, Argument(help="Directory with `outputs/` and `pools/`.")],
    out: Annotated[Path, Option(help="File of the verdicts, one JSON line per response.")],
    earlier: Annotated[Path | None, Option("--before", help="Verdicts of an earlier run.")] = None,
    limit: Annotated[int, Option(help="Flips to print.")] = 100,
) -> None:
    """Grade real outputs, and print the verdicts that differ from an earlier run."""
    recorded = list(read_recorded(directory))
    requests = [item.request for item in recorded]
    start = time.process_time()
    verdicts = MathGrader().grade(requests)
    seconds = time.process_time() - start
    lines = [
        {
            "key": item.key,
            "status": verdict.status,
            "rule": verdict.rule,
            "gold": item.gold,
            "answer": verdict.answer,
            "tail": item.response[-MAX_SHOWN_CHARS:],
        }
        for item, verdict in zip(recorded, verdicts, strict=True)
    ]
    out.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    print(f"{len(lines):,} responses, {len(lines) / seconds:,.0f} per processor second")
    by_file: dict[str, Counter[str]] = defaultdict(Counter)
    for line in lines:
        by_file[line["key"].rpartition("#")[0]][line["status"]] += 1
    for file, counts in by_file.items():
        print(f"  {file:<58}{counts.total():>7,}  {dict(counts)}")
    if earlier is not None:
        earlier_lines = earlier.read_text(encoding="utf-8").splitlines()
        print_flips([json.loads(line) for line in earlier_lines], lines, limit)


def print_flips(old_lines: Sequence[Row], new_lines: Sequence[Row], limit: int) -> None:
    """Print the verdicts that differ between two runs."""
    old_by_key = {line["key"]: line for line in old_lines}
    flips = [(old_by_key[line["key"]], line) for line in new_lines if line["key"] in old_by_key]
    flips = [(old, new) for old, new in flips if old["status"] != new["status"]]
    kinds = Counter((old["status"], new["status"]) for old, new in flips)
    print(f"{len(flips):,} verdicts differ")
    for (old_status, new_status), count in kinds.most_common():
        print(f"  {old_status} → {new_status}: {count}")
    for old, new in flips[:limit]:
        print(f"{new['key']}: {old['status']} ({old['rule']}) → {new['status']} ({new['rule']})")
        print(f"    gold {new['gold']!r}, answer {old['answer']!r} → {new['answer']!r}")
        print(f"    {new['tail']!r}")


def read_recorded(directory: Path) -> Iterator[RecordedOutput]:
    """Yield the recorded responses of a data directory that have golds."""
    for file in sorted((directory / "outputs").glob("*/*.jsonl")):
        if "code" in json.loads(file.open(encoding="utf-8").readline()) and "tora" in file.name:
            continue  # programs, not responses
        for index, response in enumerate(read_outputs(file)):
            key = f"{file.relative_to(directory)}#{index}"
            completion = response.completion
            yield RecordedOutput(key, response.gold, completion.text, completion.finish_reason)
    math500 = directory / "benchmarks/math500/test.jsonl"
    problems = [json.loads(line) for line in math500.read_text(encoding="utf-8").splitlines()]
    golds = {problem["problem"]: problem["answer"] for problem in problems}
    for file in sorted((directory / "pools").glob("*/*.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as stream:
            for index, line in enumerate(stream):
                row = json.loads(line)
                # Many golds of this pool are wrong; the benchmark has the right ones.
                gold = golds[row["question"]] if file.parent.name == "math500" else row["gold"]
                key = f"{file.relative_to(directory)}#{index}"
                yield RecordedOutput(key, gold, row["response"])


if __name__ == "__main__":
    app()
