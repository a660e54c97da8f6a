"""The commands of ``fsdpo-data`` that push, pull, export and import datasets."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import Field

from fsdpo_data import api
from fsdpo_data.cli.commands import app
from fsdpo_data.cli.console import print_next_command
from fsdpo_data.cli.options import DatasetOptions, command
from fsdpo_data.cli.printing import print_summary
from fsdpo_data.cli.stage_commands import create_dataset, print_inspect_command
from fsdpo_data.core.command_line import check_read_options, command_parameters
from fsdpo_data.core.errors import InputError, UnavailableError
from fsdpo_data.core.lazy import hf
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.progress import Progress, progress
from fsdpo_data.dataset.benchmark_problems import AllowBenchmark
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.run_directory import QUARANTINE_FILE
from fsdpo_data.dataset.stage_records import SAMPLE_STAGE, SampleRecord
from fsdpo_data.exchange.formats import (
    FORMATS,
    ExchangeFormat,
    export_formats,
    get_step_label_format,
    step_label_formats,
)
from fsdpo_data.exchange.import_options import ImportOutputsOptions, OutputsFieldName
from fsdpo_data.exchange.importing import (
    import_training_rows,
    quarantine_path,
    run_import,
)
from fsdpo_data.exchange.step_label_formats import STEP_SEPARATORS, StepLabelFields
from fsdpo_data.models.prompts import RECORDED_TEMPLATE
from fsdpo_data.problems.row_formats import FieldName
from fsdpo_data.publish.push import (
    MISSING_TOKEN,
    PushPlan,
    RemoteState,
    plan_push,
    push_dataset,
)
from fsdpo_data.stages.import_labels import ImportSettings


def _list_formats(descriptions: Mapping[str, str]) -> str:
    """Return a Markdown list of formats with their descriptions."""
    lines = [f"- `{name}` — {description}" for name, description in descriptions.items()]
    return "\n".join(["\n\n**Formats**\n", *lines])


def _export_notes() -> str:
    """Return the Markdown list of the export formats."""
    descriptions = {
        name: f"{export_format.used_with}; drops {export_format.drops}"
        for name, export_format in export_formats().items()
    }
    return _list_formats(descriptions)


def _import_notes() -> str:
    """Return the Markdown lists of the readable responses and step labels, a line for each."""
    publishers = [
        f"- {entry.responses.publisher}"
        for entry in FORMATS.values()
        if entry.responses is not None
    ]
    responses = "\n".join(["\n\n**Responses**, which `--from outputs` recognises\n", *publishers])
    descriptions = {
        name: entry.step_labels.summary
        for name, entry in FORMATS.items()
        if entry.step_labels is not None
    }
    return f"{responses}{_list_formats(descriptions)}"


class PushOptions(DatasetOptions):
    """Validate a dataset, and publish it on the Hub as one commit with one version tag.

    The command also writes a card. It uploads only changed files, and compares the SHA-256 of each
    file on the Hub with its own. If the upload stops, run the same command again; readers see
    nothing before the commit. The token comes from `HF_TOKEN` or `hf auth login`, never from the
    command line.

    Examples:
        List the files to upload, and stop:

            fsdpo-data push runs/pairs org/name --dry-run

        Upload the next version (v1.0.0, v1.0.1, …) to a private dataset:

            fsdpo-data push runs/pairs org/name

        Make the dataset public:

            fsdpo-data push runs/pairs org/name --public
    """

    name: Annotated[str, Option(positional=True, metavar="ORG/NAME")]
    """Dataset on the Hub."""
    public: bool = False
    """Make the dataset public. New datasets are private."""
    dry_run: bool = False
    """Stop after the list of files. It refuses what the push would refuse, and needs no token."""
    revision: str = "main"
    """Branch that gets the commit."""
    allow_benchmark: AllowBenchmark = False
    """Publish benchmark problems, too."""


@command(app, PushOptions, panel="Exchange")
def push(options: PushOptions) -> None:
    """Print the plan of a push, and carry the plan out."""
    _disable_hub_progress_bars()
    plan = _plan_push(options)
    _print_plan(plan, public=options.public)
    changes_visibility = options.public and plan.remote.is_private
    if options.dry_run or (plan.is_up_to_date and not changes_visibility):
        return
    with progress() as progress_bar:
        commit = push_dataset(plan, public=options.public, progress=progress_bar)
    typer.echo(f"\npushed {plan.repo.url} {plan.tag} at {commit}, downloaded and compared")
    print_next_command(["fsdpo-data", "pull", f"{options.name}@{plan.tag}"])


def _plan_push(options: PushOptions) -> PushPlan:
    """Return the plan of a push.

    A dry run without a token plans a first push, with a warning. A dry run that the Hub refuses
    prints the plan of a first push before the error.
    """
    root = api.open_dataset(options.data).path
    plan = partial(
        plan_push,
        root,
        options.name,
        branch=options.revision,
        allow_benchmark=options.allow_benchmark,
    )
    if options.dry_run and hf.get_token() is None:
        typer.echo(f"warning: planned as a first push, without the Hub: {MISSING_TOKEN}", err=True)
        return plan(remote=RemoteState())
    try:
        return plan()
    except UnavailableError:
        if options.dry_run:
            first = plan(remote=RemoteState())
            typer.echo("not compared with the Hub; this is the plan of a first push:")
            _print_plan(first, public=options.public)
        raise


def _print_plan(plan: PushPlan, *, public: bool) -> None:
    """Print the changes that a push makes on the Hub."""
    if plan.is_up_to_date:
        typer.echo(f"{plan.repo.url} is up to date: {plan.tag} at {plan.remote.head}")
        return
    if plan.remote.is_private is None:
        typer.echo(f"new {'public' if public else 'private'} dataset {plan.repo.url}")
    else:
        typer.echo(f"{plan.repo.url}, branch {plan.branch} at {plan.remote.head}")
    for content in plan.uploads:
        change = "change" if content.path in plan.remote.file_ids else "add"
        typer.echo(f"  {change:<7}{_format_size(content.size):>9}  {content.path}")
    for path in plan.deletions:
        typer.echo(f"  remove {'':>9}  {path}")
    n_unchanged = len(plan.files) - len(plan.uploads)
    size = _format_size(sum(content.size for content in plan.uploads))
    typer.echo(f"{len(plan.uploads)} files, {size}, as {plan.tag}; {n_unchanged} are unchanged")


def _format_size(size: float) -> str:
    """Format a number of bytes with a decimal unit."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _disable_hub_progress_bars() -> None:
    """Turn off the progress bars of the Hub client if the output is not a terminal."""
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()


class PullOptions(Options):
    """Download a dataset from the Hub, and check every file, row and count.

    Examples:
        fsdpo-data pull org/name@v1.0.0 --out runs/theirs
    """

    name: Annotated[str, Option(positional=True, metavar="ORG/NAME[@TAG]")]
    """Dataset on the Hub, with a version tag. Without a tag, the latest version."""
    out: Annotated[Path | None, Option(default_text="runs/NAME-TAG")] = None
    """New directory for the dataset."""


@command(app, PullOptions, panel="Exchange")
def pull(options: PullOptions) -> None:
    """Download a dataset, and print its summary."""
    _disable_hub_progress_bars()
    with progress() as progress_bar:
        data = api.pull(options.name, options.out, progress_bar)
    print_summary(data.statistics(), f"pulled {options.name} to {data.path}")
    print_inspect_command(data)


class ExportOptions(DatasetOptions):
    """Export a dataset to the format of another tool.

    Formats with step labels have the labels that `fsdpo-train prm` reads by default. A step is
    right if its label is at least 0.5: if half of its continuations or more are correct, for
    example. Solutions without such labels are left out.

    Examples:
        fsdpo-data export runs/pairs --to trl-preference --out runs/trl
    """

    to: Annotated[str, Option(choices=export_formats(), metavar="FORMAT")]
    """Format, from the list below."""
    out: Path
    """New directory for the files."""
    allow_benchmark: AllowBenchmark = False
    """Export benchmark problems, too."""


@command(app, ExportOptions, panel="Exchange", notes=_export_notes())
def export(options: ExportOptions) -> None:
    """Export a dataset, and print the data that the format drops."""
    data = api.open_dataset(options.data)
    result = data.export(options.to, options.out, allow_benchmark=options.allow_benchmark)
    export_format = export_formats()[options.to]
    typer.echo(f"wrote {result.rows:,} rows to {result.file}, for {export_format.used_with}")
    typer.echo(f"dropped: {export_format.drops}")
    for reason, count in sorted(result.left_out.items()):
        typer.echo(f"left out: {count:,} rows, because {reason}")
    template = data.manifest.get(SAMPLE_STAGE, SampleRecord).options.template
    if export_format.is_for_sft and template.name != RECORDED_TEMPLATE.name:
        typer.echo(
            f"the prompts have the template {template.name}: `fsdpo-train sft "
            f"{shlex.quote(str(result.file))} --template {shlex.quote(str(data.path))}`"
        )


ROWS_SUFFIX = ".jsonl"  #: Suffix of an output that gets rows in place of a dataset.
#: Value of ``--from`` for recorded responses; the rows determine their format.
OUTPUTS = "outputs"
#: Value of ``--from`` for step labels whose fields the options name.
FIELDS = "fields"
_STEP_LABELS_PANEL = "Step labels"
_FIELDS_PANEL = "Step labels in other fields"
#: Options of all sources.
_COMMON_OPTIONS = frozenset({"source", "file", "out", "template", "resume"})
#: Options that change the solutions of step labels.
_SOLUTION_OPTIONS = ("step_separator", "first_error_only")
_FIELD_OPTIONS = (
    *("question_field", "steps_field", "label_field", "first_error_field", "first_step"),
    *("gold_field", "right_label", "wrong_label"),
)

#: Those of them that also name fields of responses.
_SHARED_FIELD_OPTIONS = ("question_field", "gold_field", "steps_field")


class ImportOptions(ImportOutputsOptions):
    r"""Import recorded responses or published step labels as a dataset.

    Responses (`outputs`) are split into steps, graded and labelled as in `build`. Step labels keep
    their steps and labels, and no answer is graded. Step-DPO's rows are also preference pairs.
    Unreadable rows go to another file, with the reasons.

    Examples:
        Import recorded responses as a dataset:

            fsdpo-data import samples.jsonl --from outputs --model-name 'Their 7B' \
              --out runs/theirs

            fsdpo-data import 'output-rs*.jsonl' --from outputs --temperature 0.7 \
              --out runs/nemo

            fsdpo-data import out.jsonl --from outputs --requests in.jsonl \
              --problems gsm8k --split test --out runs/batch

        Import responses with the step scores of a reward model as step rewards:

            fsdpo-data import rows.jsonl --from outputs --scores scores.jsonl \
              --prm-name org/prm --out runs/scored

        Import step labels for `fsdpo-train prm`:

            fsdpo-data import prm800k.jsonl --from prm800k --out runs/prm800k

        Import the pairs of Step-DPO for `fsdpo-train dpo --loss step-dpo`:

            fsdpo-data import xinlai/Math-Step-DPO-10K --from step-dpo-10k \
              --template alpaca-newline --out runs/step-dpo-10k

        Import step labels of another format, by naming its fields:

            fsdpo-data import mine.jsonl --from fields --question-field question \
              --steps-field steps --first-error-field first_error --out runs/mine

            fsdpo-data import mine.jsonl --from fields --question-field task \
              --steps-field lines.text --label-field lines.mark --right-label ok \
              --wrong-label bad --out runs/mine
    """

    source: Annotated[
        str,
        Option(
            flags=["--from"], choices=(OUTPUTS, FIELDS, *step_label_formats()), metavar="FORMAT"
        ),
    ] = ""
    """`outputs`, a format of step labels from the list below, or `fields` for step labels in fields
    that the options name.
    """
    out: Annotated[str | Path, Option(in_digest=False)]
    """New directory of the dataset. For step labels also a new file ending in .jsonl, which gets
    rows in place of a dataset.
    """
    template: Annotated[
        str | None,
        Option(default_text="recorded prompt, else the question; for step labels: problem"),
    ] = None
    """Prompt template of the problems; replaces the recorded prompts of outputs."""
    steps_field: OutputsFieldName = None
    """Field with the steps of a response, or of step labels."""
    question_field: FieldName = None
    """Field with the question. A dot leads into an object, and into the objects of a list:
    steps.text is the text of each step.
    """
    label_field: Annotated[str | None, Option(panel=_FIELDS_PANEL, metavar="FIELD")] = None
    """Field with one label per step."""
    first_error_field: Annotated[str | None, Option(panel=_FIELDS_PANEL, metavar="FIELD")] = None
    """Field with the number of the first wrong step. Null, -1 and "none" mean that no step is
    wrong. The steps after the first wrong step have no label, and are dropped.
    """
    first_step: Annotated[int, Field(ge=0, le=1), Option(panel=_FIELDS_PANEL)] = 0
    """Number of the first step in that field."""
    right_label: Annotated[Sequence[str], Option(panel=_FIELDS_PANEL)] = ()
    """Label that means right; may be given several times. By default labels are true, false, +, -
    or numbers from 0 to 1.
    """
    wrong_label: Annotated[Sequence[str], Option(panel=_FIELDS_PANEL)] = ()
    """Label that means wrong; may be given several times."""
    step_separator: Annotated[
        str | None,
        Option(panel=_STEP_LABELS_PANEL, choices=STEP_SEPARATORS, default_text="by format"),
    ] = None
    """Text between two steps. It replaces the separator of the format, and step markers such as
    "Step 1:".
    """
    first_error_only: Annotated[bool, Option(panel=_STEP_LABELS_PANEL)] = False
    """Drop the steps after the first wrong step, whose label is below 0.5. Formats without labels
    for these steps always do.
    """

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        if not self.source:
            formats = ", ".join((OUTPUTS, FIELDS, *step_label_formats()))
            raise InputError(
                f"missing. Give the format of the file: {formats}.",
                field=f"{type(self).__name__}.source",
            )
        super().model_post_init(context)
        if self.source == FIELDS:
            self._check_fields()
        self._check_source_options()

    def _check_fields(self) -> None:
        """Refuse missing and contradictory names of fields."""
        for name in ("question_field", "steps_field"):
            if not getattr(self, name):
                raise self.field_error(name, f"missing. `source={FIELDS}` needs the field.")
        if (self.label_field is None) == (self.first_error_field is None):
            raise self.field_error(
                "label_field",
                "expected either the field with one label per step, or `first_error_field`.",
            )
        if self.first_error_field is None and self.first_step:
            raise self.field_error("first_step", "only `first_error_field` uses it. Remove it.")
        if bool(self.right_label) != bool(self.wrong_label):
            raise self.field_error("right_label", "give `right_label` and `wrong_label`, or none.")
        if self.right_label and self.label_field is None:
            raise self.field_error("right_label", "only `label_field` uses it. Remove it.")

    def _check_source_options(self) -> None:
        """Refuse options that the source does not use."""
        if self.resume and self.source != OUTPUTS and Path(self.out).suffix == ROWS_SUFFIX:
            raise self.field_error(
                "resume", "rows in one file are imported at once. Remove the option."
            )
        only_labels = {*_SOLUTION_OPTIONS, *_FIELD_OPTIONS}.difference(_SHARED_FIELD_OPTIONS)
        outputs_options = command_parameters(type(self)).keys() - _COMMON_OPTIONS - only_labels
        read_options = {
            OUTPUTS: outputs_options,
            FIELDS: (*_SOLUTION_OPTIONS, *_FIELD_OPTIONS),
            **dict.fromkeys(step_label_formats(), _SOLUTION_OPTIONS),
        }
        check_read_options(self, "format", [self.source], read_options)

    def step_label_format(self) -> ExchangeFormat:
        """Return the format of the step labels, with the options that change the solutions."""
        label_format = self._named_format()
        assert label_format.step_labels is not None
        content = label_format.step_labels.with_options(
            self.step_separator, first_error_only=self.first_error_only
        )
        return replace(label_format, step_labels=content)

    def _named_format(self) -> ExchangeFormat:
        """Return the format of the table, or the one whose fields the options name."""
        if self.source != FIELDS:
            return get_step_label_format(self.source)
        assert self.question_field and self.steps_field
        dropped = "all other fields"
        if self.first_error_field is not None:
            first_step = f", counted from {self.first_step}"
            meaning = f"{self.first_error_field} is the first wrong step{first_step}"
            dropped = f"the steps after the first wrong step, and {dropped}"
        elif self.right_label:
            meaning = (
                f"{self.label_field}: {', '.join(self.right_label)} is right; "
                f"{', '.join(self.wrong_label)} is wrong"
            )
        else:
            meaning = f"{self.label_field}: unchanged, or + is right"
        content = StepLabelFields(
            settings=ImportSettings(format=FIELDS, meaning=meaning, drops=dropped),
            problem=self.question_field,
            steps=self.steps_field,
            label=(self.label_field,) if self.label_field else (),
            right_labels=tuple(self.right_label),
            wrong_labels=tuple(self.wrong_label),
            first_error=self.first_error_field or "",
            first_step=self.first_step,
            ends_at_first_error=self.first_error_field is not None,
            answer=self.gold_field or "",
        )
        return ExchangeFormat(name=FIELDS, step_labels=content)


@command(app, ImportOptions, name="import", panel="Exchange", notes=_import_notes())
def import_(options: ImportOptions) -> None:
    """Import recorded responses or step labels, and print the counts."""
    if options.source == OUTPUTS:
        print_inspect_command(create_dataset(partial(_import_outputs, options)))
        return
    out = Path(options.out)
    label_format = options.step_label_format()
    content = label_format.step_labels
    assert content is not None
    if out.suffix == ROWS_SUFFIX:
        result = import_training_rows(options, label_format)
        quarantine_file = quarantine_path(out)
    else:
        with progress() as progress_bar:
            manifest, result = run_import(options, progress_bar, label_format)
        quarantine_file = out / QUARANTINE_FILE
        print_summary(api.open_output(out, manifest).statistics(), f"sealed {out}")
    typer.echo(
        f"wrote {result.n_solutions:,} solutions of {result.n_rows:,} rows to {out}: "
        f"{result.steps[True]:,} right steps, {result.steps[False]:,} wrong"
    )
    typer.echo(f"labels: {content.settings.meaning}")
    typer.echo(f"dropped: {content.settings.drops}")
    if result.quarantined:
        typer.echo(f"quarantined: {len(result.quarantined):,} rows, in {quarantine_file}")
    if content.has_pairs and out.suffix != ROWS_SUFFIX:
        training = ["dpo", out, "--loss", "step-dpo", "--model", "MODEL", "--out", "runs/policy"]
    else:
        training = ["prm", out, "--model", "MODEL", "--out", "runs/prm"]
    print_next_command(["fsdpo-train", *training])


def _import_outputs(options: ImportOptions, progress: Progress) -> tuple[Path, Manifest]:
    """Import recorded responses; return the directory of the dataset, and its manifest."""
    manifest, _ = run_import(options, progress)
    return Path(options.out), manifest
