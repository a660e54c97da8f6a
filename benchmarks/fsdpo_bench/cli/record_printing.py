"""Print the problems of a run with their solutions, step by step."""

from collections.abc import Iterator

from fsdpo_cards.render import format_token_count
from rich.console import Console
from rich.rule import Rule

from fsdpo_bench.cli.options import RunInspectOptions
from fsdpo_bench.cli.tables import plain_text, print_text
from fsdpo_bench.decode.records import ProblemRecord, SolutionRecord
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
        if entry.solution is None:
            text += f"  (sample {entry.sample})"
        _print_wrapped(text, _VERDICT_STYLES[entry.correct])
    for name, solution in record.own_solutions.items():
        _print_solution(name, solution)
    for index, sample in enumerate(record.samples[:samples]):
        _print_solution(f"sample {index}", sample)
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
