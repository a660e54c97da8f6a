"""Print the problems of a run with their solutions, step by step."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fsdpo_cards.render import format_token_count
from rich.console import Console
from rich.rule import Rule

from fsdpo_bench.cli.options import RunInspectOptions
from fsdpo_bench.decode.records import ProblemRecord, SolutionRecord
from fsdpo_bench.report.tables import (
    check_names,
    plain_text,
    print_table,
    print_text,
    split_names,
)
from fsdpo_bench.runs.records import read_records, select_decoder

_INDENT = "    "  #: Indentation of the lines of a solution.
_VERDICT_STYLES = {True: "green", False: "red", None: "dim"}


def matching_records(options: RunInspectOptions) -> Iterator[ProblemRecord]:
    """Yield the records of a run that match the filters.

    Raises:
        InputError: if there is no run, or it lacks the benchmark or the decoder.
    """
    decoder = select_decoder(options.data, options.decoder)
    filters = {
        "outcome": options.outcome,
        "subject": options.subject,
        "level": options.level,
    }
    required = {name: value for name, value in filters.items() if value is not None}
    for record in read_records(options.data, options.task):
        entry = record.decoded.get(decoder)
        if entry is None or not record.problem_id.startswith(options.problem or ""):
            continue
        fields = {**record.metadata, "outcome": entry.status}
        if required.items() <= fields.items():
            yield record


def print_records(records: Iterator[ProblemRecord], count: int, samples: int) -> None:
    """Print the first problems step by step, then the number of matching problems.

    Args:
        records: The matching records.
        count: Number of problems to print.
        samples: Number of samples to print per problem.
    """
    n_records = 0
    for n_records, record in enumerate(records, start=1):
        if n_records <= count:
            _print_record(record, samples)
    _print_match_count(n_records, count)


def selected_fields(
    records: Iterable[ProblemRecord], options: RunInspectOptions
) -> list[dict[str, Any]]:
    """Return the fields of ``options.columns`` for each problem, as plain JSON.

    Raises:
        InputError: if no problem has such a field.
    """
    names = split_names(options.columns)
    decoder = select_decoder(options.data, options.decoder)
    rows = [_record_fields(record, decoder) for record in records]
    known_names = dict.fromkeys(name for row in rows for name in row)
    if rows:
        check_names(names, known_names, field="columns")
    return [{name: row.get(name) for name in names} for row in rows]


def _record_fields(record: ProblemRecord, decoder: str) -> dict[str, Any]:
    """Return the fields of a problem that a table can show."""
    entry = record.decoded[decoder]
    return {
        "task": record.task,
        "row": record.row,
        "problem_id": record.problem_id,
        "question": record.question,
        "gold": record.gold,
        "answer": entry.answer,
        "outcome": entry.status,
        "rule": entry.rule,
        **record.metadata,
    }


def print_fields(rows: Sequence[Mapping[str, Any]], count: int) -> None:
    """Print a table of the first ``count`` problems, then the number of matching problems."""
    if rows:
        cells = [[_cell_text(value) for value in row.values()] for row in rows[:count]]
        print_table(list(rows[0]), cells)
    _print_match_count(len(rows), count)


def _cell_text(value: Any) -> str:
    """Return a value on one line."""
    return "–" if value is None else " ".join(str(value).split())


def _print_match_count(n_records: int, count: int) -> None:
    hint = f"; --count {n_records} shows all" if n_records > count else ""
    _print_wrapped(f"matching problems: {n_records:,}{hint}")


def _print_record(record: ProblemRecord, samples: int) -> None:
    metadata = ", ".join(f"{name} {value}" for name, value in record.metadata.items())
    heading = f"{record.task} row {record.row}  {record.problem_id}"
    Console().print(Rule(plain_text(f"{heading}  {metadata}"), align="left"))
    _print_wrapped(record.question)
    _print_wrapped(f"gold: {record.gold}\n", "bold")
    for name, entry in record.decoded.items():
        text = f"{name}: {entry.answer}  {entry.status} ({entry.rule})"
        if entry.sample is not None:
            text += f"  (sample {entry.sample})"
        _print_wrapped(text, _VERDICT_STYLES[entry.correct])
    for name, solution in record.own_solutions.items():
        _print_solution(name, solution)
    for index, sample in enumerate(record.samples[:samples]):
        _print_solution(f"sample {index}", sample)
    n_samples = len(record.samples)
    if n_samples > samples:
        _print_wrapped(
            f"\n{samples} of {n_samples} samples of this problem; --samples {n_samples} shows all"
        )
    _print_wrapped("")


def _print_solution(name: str, solution: SolutionRecord) -> None:
    ending = f"{format_token_count(solution.n_tokens)}, ended by {solution.finish_reason}"
    verdict = f"{solution.status} ({solution.rule})"
    _print_wrapped(f"\n{name}: {solution.answer}  {verdict}, {ending}")
    rewards = solution.rewards or [None] * len(solution.steps)
    for step, reward in zip(solution.steps, rewards, strict=True):
        reward_text = "     " if reward is None else f"{reward:.3f}"
        lines = step.rstrip().replace("\n", f"\n{_INDENT}      ")
        _print_wrapped(f"{_INDENT}{reward_text} {lines}")


def _print_wrapped(text: str, style: str = "") -> None:
    print_text(text, style, wrap=True)
