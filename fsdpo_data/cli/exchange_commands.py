"""The commands of ``fsdpo-data`` that give datasets to others, and take theirs."""

import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from fsdpo_data import api
from fsdpo_data.cli.build_commands import next_step, run_with_progress
from fsdpo_data.cli.console import print_next_command
from fsdpo_data.cli.options import DatasetOptions
from fsdpo_data.cli.printing import print_summary
from fsdpo_data.core.errors import UnavailableError
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.progress import progress
from fsdpo_data.exchange.formats import FORMATS
from fsdpo_data.exchange.importing import import_rows, quarantine_path
from fsdpo_data.exchange.step_label_readers import STEP_LABEL_READERS
from fsdpo_data.problems.recorded_responses import RESPONSE_FORMATS as OUTPUT_FORMS
from fsdpo_data.publish.push import PushPlan, RemoteState, plan_push
from fsdpo_data.publish.push import push_dataset as carry_out
from fsdpo_data.stages.import_outputs import ImportOutputsOptions, run_import


@dataclass(frozen=True, kw_only=True)
class PushOptions(DatasetOptions):
    """Publish a dataset: validate, one commit, one tag, read back.

    Only what changed is sent. Stopped at any moment, the same command goes on; until the commit,
    nobody sees anything of it. The token comes from `HF_TOKEN` or `hf auth login`, never from the
    command line.

    Attributes:
        name: Dataset on the Hub.
        public: Let everybody read it; new ones are private.
        dry_run: Show what would be sent, then stop.
        revision: Branch that gets the commit.
    """

    name: Annotated[str, Option(positional=True, metavar="ORG/NAME")]
    public: bool = False
    dry_run: bool = False
    revision: str = "main"


def push(options: PushOptions) -> None:
    """Show the plan, and carry it out."""
    _quiet_bars()
    plan = _plan_push(options)
    _print_plan(plan, public=options.public)
    opens = options.public and plan.remote.is_private
    if options.dry_run or (plan.is_up_to_date and not opens):
        return
    with progress() as shown:
        commit = carry_out(plan, public=options.public, progress=shown)
    typer.echo(f"\npushed {plan.repo.url} {plan.tag} at {commit}, read back and compared")
    print_next_command("fsdpo-data", "pull", f"{options.name}@{plan.tag}")


def _plan_push(options: PushOptions) -> PushPlan:
    """Plan a push; a dry run needs neither token nor network."""
    try:
        return plan_push(options.data, options.name, branch=options.revision)
    except UnavailableError as error:
        if not options.dry_run:
            raise
        typer.echo(f"not compared with the Hub, so as a first push: {error}\n")
        return plan_push(options.data, options.name, branch=options.revision, remote=RemoteState())


def _print_plan(plan: PushPlan, *, public: bool) -> None:
    """Print what a push will do."""
    if plan.is_up_to_date:
        typer.echo(f"{plan.repo.url} has it already: {plan.tag} at {plan.remote.head}")
        return
    if plan.remote.is_private is None:
        typer.echo(f"new {'public' if public else 'private'} dataset {plan.repo.url}")
    else:
        typer.echo(f"{plan.repo.url}, branch {plan.branch} at {plan.remote.head}")
    for content in plan.uploads:
        change = "change" if content.path in plan.remote.file_ids else "add"
        typer.echo(f"  {change:<7}{_size(content.size):>9}  {content.path}")
    for path in plan.deletions:
        typer.echo(f"  remove {'':>9}  {path}")
    kept = len(plan.files) - len(plan.uploads)
    size = _size(sum(content.size for content in plan.uploads))
    typer.echo(f"{len(plan.uploads)} files, {size}, as {plan.tag}; {kept} are there already")


def _size(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _quiet_bars() -> None:
    """Keep the Hub client's own bars for terminals."""
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()


@dataclass(frozen=True, kw_only=True)
class PullOptions(Options):
    """Fetch a dataset from the Hub and check every file, row and count.

    Attributes:
        name: Dataset; the latest if no tag is given.
        out: Directory.
    """

    name: Annotated[str, Option(positional=True, metavar="ORG/NAME[@TAG]")]
    out: Annotated[Path | None, Option(default_text="runs/NAME-TAG")] = None


def pull(options: PullOptions) -> None:
    """Fetch, and say what came."""
    _quiet_bars()
    with progress() as shown:
        data = api.pull(options.name, options.out, shown)
    print_summary(data.manifest, f"pulled {options.name} to {data.path}")
    next_step(data)


@dataclass(frozen=True, kw_only=True)
class ExportOptions(DatasetOptions):
    """Write a dataset in somebody else's format.

    Attributes:
        to: Format; see below.
        out: A new folder.
    """

    to: Annotated[str, Option(choices=FORMATS, metavar="FORMAT")]
    out: Path


def export(options: ExportOptions) -> None:
    """Export, and say what the format has no words for."""
    found = api.open_dataset(options.data).export(options.to, options.out)
    form = FORMATS[options.to]
    typer.echo(f"wrote {found.rows:,} rows to {found.file}, for {form.used_with}")
    typer.echo(f"lost: {form.drops}")
    for reason, count in sorted(found.left_out.items()):
        typer.echo(f"left out: {count:,} rows, because {reason}")


OUTPUTS = "outputs"  #: What ``--from`` takes for responses, whose form the rows tell.


@dataclass(frozen=True, kw_only=True)
class ImportOptions(ImportOutputsOptions):
    """Read what models wrote elsewhere, as a sealed dataset, or somebody else's step labels.

    `outputs` are segmented, graded and labelled as `build` does it. Step labels become rows for
    `fsdpo-train prm`. Rows that cannot be read are set aside, each with the reason.

    Attributes:
        source: `outputs`, or a format of step labels; see below.
        out: A new directory for outputs, a new file ending in .jsonl for step labels.
        template: Prompt template of the problems, in place of what outputs say.
    """

    source: Annotated[
        str,
        Option(
            flag="--from", choices=(OUTPUTS, *STEP_LABEL_READERS), metavar="FORMAT", default_text=""
        ),
    ]
    template: Annotated[
        str | None,
        Option(default_text="as outputs say, else the question; of step labels: problem"),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for each in fields(ImportOutputsOptions) if self.source != OUTPUTS else ():
            stands = each.default in (MISSING, getattr(self, each.name))
            if each.name != "template" and not stands:
                raise self.field_error(each.name, f"it goes with `source={OUTPUTS}`.")


def import_(options: ImportOptions) -> None:
    """Import, and say what was set aside."""
    if options.source == OUTPUTS:
        return next_step(run_with_progress(lambda shown: api.Dataset(*run_import(options, shown))))
    out = Path(options.out)
    found = import_rows(Path(options.file), options.source, out, options.template or "problem")
    typer.echo(
        f"wrote {found.rows:,} solutions of {found.read:,} rows to {out}: "
        f"{found.steps[True]:,} right steps, {found.steps[False]:,} wrong"
    )
    typer.echo(f"labels: {STEP_LABEL_READERS[options.source].label_meaning}")
    typer.echo(f"lost: {STEP_LABEL_READERS[options.source].drops}")
    if found.quarantined:
        typer.echo(f"set aside: {len(found.quarantined):,} rows, in {quarantine_path(out)}")
    print_next_command("fsdpo-train", "prm", out, "--out", "runs/prm")


def _list_formats(formats: Mapping[str, Any], told: str) -> str:
    lines = (f"- `{name}` — {told.format(each)}" for name, each in formats.items())
    return "\n".join(["\n\n**Formats**\n", *lines])


#: What follows the examples of a command.
FORMAT_HELP = {
    "export": _list_formats(FORMATS, "{0.used_with}; drops {0.drops}"),
    "import": "\n\n**Outputs** "
    + "; ".join(form.publisher for form in OUTPUT_FORMS.values())
    + _list_formats(STEP_LABEL_READERS, "labels: {0.label_meaning}; drops {0.drops}"),
}
