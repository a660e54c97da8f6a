"""The command ``grade``: grade a dataset again, a file of responses, or one response."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import Field

from fsdpo_data.answers import GradingRequest
from fsdpo_data.answers.versions import get_grader
from fsdpo_data.cli import response_printing
from fsdpo_data.cli.commands import app
from fsdpo_data.cli.options import command
from fsdpo_data.cli.stage_commands import CREATE_PANEL, run_stage
from fsdpo_data.core.command_line import check_read_options
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import write_text
from fsdpo_data.core.options import NotWith, Option
from fsdpo_data.core.row_files import data_suffix
from fsdpo_data.core.terminal import strip_control_characters
from fsdpo_data.dataset.stage_registry import STAGES
from fsdpo_data.engines.options import Resume
from fsdpo_data.exchange.response_formats import ResponseReading, UnknownValues
from fsdpo_data.stages.grade import GradeOptions, GradingOptions

#: Options that only some kinds of input read.
_READ_OPTIONS: Mapping[str, Sequence[str]] = {
    "dataset": ["grade_thinking", "workers", "out", "resume"],
    "file": [
        "question_field",
        "gold_field",
        "response_field",
        "gold",
        "grade_thinking",
        "workers",
        "out",
        "series",
        "show",
        "as_json",
    ],
    "response": [],
}


class GradeCommandOptions(GradingOptions, ResponseReading):
    r"""Grade a dataset again, a file of responses, or one response.

    Grading a dataset writes a new dataset without sampling, and reports the changes. Its labels
    follow the new outcomes. Preference pairs depend on the old outcomes and are removed. A judge
    may decide the answers that the grader leaves undecided.

    Examples:
        Use the default grader of this release:

            fsdpo-data grade runs/a --out runs/a-regraded

        Accept numbers within a relative tolerance of 1 %:

            fsdpo-data grade runs/a --out runs/tolerant --grader math@6+tolerance=0.01

        Ask a judge about undecided answers:

            fsdpo-data grade runs/a --out runs/judged --judge Qwen/Qwen2.5-7B-Instruct

            fsdpo-data grade runs/a --out runs/judged --judge judge.toml    # a server

        Grade the responses in a file, which has the fields `answer` and `response` or `responses`:

            fsdpo-data grade outputs.jsonl --out verdicts.jsonl

        Explain a verdict:

            fsdpo-data grade --explain '\frac12' 'The answer is 0.5'
    """

    data: Annotated[str | Path | None, Option(positional=True, dataset="input")] = None
    """A dataset (a directory or a URL), or a file with responses and gold answers."""
    out: Annotated[str | Path | None, Option(in_digest=False, dataset="output")] = None
    """Directory or URL of the new dataset. For a file: new JSONL file with the verdict on each
    response.
    """
    explain: Annotated[tuple[str, str] | None, Option(metavar="GOLD RESPONSE", in_digest=False)] = (
        None
    )
    """Grade one response, and explain the verdict."""
    resume: Resume = False
    """Continue the run in `out`."""
    show: Annotated[int, Field(ge=0), Option(in_digest=False), NotWith("as_json")] = 10
    """For a file: number of printed responses whose verdict differs from the recorded one."""
    as_json: Annotated[bool, Option(flags=["--json"], in_digest=False)] = False
    """For a file: print JSON instead of a table."""

    @property
    def kind(self) -> str:
        """The kind of the input: ``dataset``, ``file`` or ``response``."""
        if self.data is None:
            return "response"
        is_file = Path(self.data).is_file() or data_suffix(Path(self.data))
        return "file" if is_file else "dataset"

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        super().model_post_init(context)
        if self.data is not None and self.explain is not None:
            raise self.field_error(
                "explain",
                "expected a gold answer and one response, and no other word, but "
                f"{str(self.data)!r} follows. Put a text with spaces in quotes. To grade a file or "
                "a dataset, leave out `explain`.",
            )
        if self.data is None and self.explain is None:
            raise InputError(
                "either `data` or `explain` is required. Give a dataset or a file of responses, or "
                "a gold answer with a response to explain."
            )
        check_read_options(self, "input", [self.kind], _READ_OPTIONS)
        if self.judge is not None and self.kind != "dataset":
            raise self.field_error(
                "judge",
                "a judge decides the undecided answers of a dataset. Give a dataset; `fsdpo-data "
                "import` makes one of a file with questions.",
            )


@command(app, GradeCommandOptions, name="grade", panel=CREATE_PANEL)
def grade(options: GradeCommandOptions) -> None:
    """Grade the input, and print the result."""
    if options.explain is not None:
        gold, response = options.explain
        [verdict] = get_grader(options.grader).grade([GradingRequest(gold, response)])
        response_printing.print_verdict(gold, verdict)
    elif options.kind == "file":
        _grade_file(Path(str(options.data)), options)
    else:
        _grade_dataset(options)


def _grade_dataset(options: GradeCommandOptions) -> None:
    """Run the stage."""
    if options.out is None:
        raise options.field_error(
            "out", "missing. Grading a dataset writes a new dataset: name its directory."
        )
    names = GradeOptions.model_fields.keys() & options.model_fields_set
    stage_options = GradeOptions(**{name: getattr(options, name) for name in names})
    run_stage(STAGES["grade"], stage_options)


def _grade_file(file: Path, options: GradeCommandOptions) -> None:
    """Grade the responses of a file, and print their accuracy."""
    from fsdpo_data.exchange.outputs import (
        grade_outputs,
        read_outputs,
        summarize_by_series,
    )
    from fsdpo_data.problems.golds import describe_solutions

    out = None if options.out is None else Path(options.out)
    if out is not None and (out.suffix != ".jsonl" or out.exists()):
        raise options.field_error("out", "expected a new file ending in .jsonl for the verdicts.")
    recorded = read_outputs(file, options)
    unknown_values = UnknownValues()
    for response in recorded:
        unknown_values.add(response)
    solutions = describe_solutions([response.gold for response in recorded])
    for warning in filter(None, [solutions, *unknown_values.warnings()]):
        print(strip_control_characters(f"warning: {warning}"), file=sys.stderr)
    responses = grade_outputs(
        recorded, options.grader, options.workers, grade_thinking=options.grade_thinking
    )
    if out is not None:
        write_text(out, "".join(json.dumps(response.to_row()) + "\n" for response in responses))
    series: list[dict[str, Any]] = summarize_by_series(responses)
    if options.as_json:
        typer.echo(json.dumps(series, indent=2, ensure_ascii=False))
        return
    response_printing.print_series(series)
    disputed = [response for response in responses if response.differs_from_recorded]
    response_printing.print_disputed(disputed, options.show)
