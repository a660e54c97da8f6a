"""What the commands take besides ``run``, whose options are :class:`RunOptions`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fsdpo_bench.publish.export import EXPORT_FORMATS
from fsdpo_bench.recipes.recipe import GPUS
from fsdpo_bench.results.compare import ComparisonOptions
from fsdpo_data.core.entities import OUTCOMES
from fsdpo_data.core.options import Option, Options
from fsdpo_data.steps.rewards import AGGREGATES

_FIRST = Option(positional=True)
_JSON = Option(flag="--json")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions(Options):
    """Get benchmarks that have no home on the Hub, from public repositories at pinned commits.

    `run` and `validate` do so by themselves where they need one; here it is for machines that are
    offline later. Every file is checked by its SHA-256.

    Attributes:
        task: Names of benchmarks; all that are fetched this way if none is given.
        out: Directory to give as `--data` then.
    """

    task: Annotated[Sequence[str], _FIRST] = ()
    out: Annotated[Path | None, Option(default_text="a cache that `run` looks into")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskValidateOptions(Options):
    """Check rows, digests and golds of benchmarks, without a model.

    Every gold must be right about itself and wrong about nonsense. What is known to be odd is
    listed with the reason; anything else ends in exit code 1.

    Attributes:
        suite: A suite that `fsdpo-bench tasks` lists.
        task: One benchmark, or a file of your own; may be given several times.
        data: Directory with a folder for each benchmark, or the file of one.
        as_json: Print JSON instead of a table.
    """

    suite: Annotated[str | None, Option(default_text="all")] = None
    task: Sequence[str] = ()
    data: Annotated[Path | None, Option(default_text="the Hub")] = None
    as_json: Annotated[bool, _JSON] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseGradeOptions(Options):
    """Judge what is there already: a run, a file of responses, or one, with an explanation.

    A run is graded and decided again, without its model, into a new run.

    Attributes:
        data: A run, or responses made elsewhere with their golds.
        out: Directory of the new run.
        explain: Judge one answer or response, and say why.
        task: Benchmark whose grading applies (`ocw` is tolerant).
        tolerance: Relative error that a number may have, e.g. 0.01.
        k: Of a run: samples to decide among; may be given several times.
        aggregate: Of a run: how step rewards of a sample become one number.
        show: Differing verdicts to print.
        workers: Processes that grade.
        resume: Go on with the new run in `out`.
        as_json: Print JSON instead of a table.
    """

    data: Annotated[Path | None, _FIRST] = None
    out: Path | None = None
    explain: Annotated[tuple[str, str] | None, Option(metavar="GOLD PRED")] = None
    task: str | None = None
    tolerance: Annotated[float | None, Option(min=0, exclusive_max=1)] = None
    k: Annotated[Sequence[int], Option(min=1, default_text="as it was")] = ()
    aggregate: Annotated[str | None, Option(choices=AGGREGATES, default_text="as it was")] = None
    show: Annotated[int, Option(min=0)] = 10
    workers: Annotated[int | None, Option(min=1, default_text="the cores at hand")] = None
    resume: bool = False
    as_json: Annotated[bool, _JSON] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInspectOptions(Options):
    """Show problems of a run: what was asked, answered and decided, step by step.

    Attributes:
        data: A run.
        problem: The beginning of a problem's id.
        task: Only of this benchmark.
        outcome: Only where the decoder's answer has this status.
        decoder: Whose answer.
        subject: Only of this subject.
        level: Only of this level.
        count: Problems to show.
        samples: Samples of each to show.
        as_json: Print the records.
    """

    data: Annotated[Path, _FIRST]
    problem: Annotated[str | None, _FIRST] = None
    task: str | None = None
    outcome: Annotated[str | None, Option(choices=OUTCOMES)] = None
    decoder: Annotated[str | None, Option(default_text="the first of the run")] = None
    subject: str | None = None
    level: str | None = None
    count: Annotated[int, Option(min=1)] = 3
    samples: Annotated[int, Option(min=0)] = 2
    as_json: Annotated[bool, _JSON] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDiffOptions(Options, ComparisonOptions):
    """Compare two runs problem by problem: is one better, and where?

    Interval and p belong together: both are by base problem where problems share one.

    Attributes:
        run_a: The run that the other is held against.
        run_b: The other run.
        show: Changed problems to print.
        html: Page to write, with every problem side by side.
        as_json: Print JSON instead of a table.
    """

    run_a: Annotated[Path, _FIRST]
    run_b: Annotated[Path, _FIRST]
    show: Annotated[int, Option(min=0)] = 10
    html: Path | None = None
    as_json: Annotated[bool, _JSON] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions(Options):
    """Write results.json, report.md, report.html and the card of a finished run again.

    Attributes:
        data: A run.
        megabytes: Text of problems and solutions in report.html.
        as_json: Print JSON instead of a table.
    """

    data: Annotated[Path, _FIRST]
    megabytes: Annotated[float, Option(min=0.1)] = 16
    as_json: Annotated[bool, _JSON] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsPushOptions(Options):
    """Show results on the Hub: in the model's repository, for its page and for leaderboards.

    A file of `.eval_results` for each benchmark and decoder, and `model-index` in the model's card,
    where other results stay. Only whole benchmarks that the Hub has are sent. The token comes from
    `HF_TOKEN` or `hf auth login`.

    Attributes:
        data: A run.
        name: The model on the Hub.
        pull_request: Propose it, which anybody may of any model.
        dry_run: Show what would be sent, then stop.
    """

    data: Annotated[Path, _FIRST]
    name: Annotated[str, Option(positional=True, metavar="ORG/NAME")]
    pull_request: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunExportOptions(Options):
    """Write a run's responses in the form of another harness; `--replay` reads them, too.

    Attributes:
        data: A run.
        to: Whose form: `samples_TASK.jsonl` or `details_TASK.parquet`.
        out: Directory for a file of each benchmark.
        decoder: Whose responses: its own solution, or the samples that it chose among.
    """

    data: Annotated[Path, _FIRST]
    to: Annotated[str, Option(choices=EXPORT_FORMATS)]
    out: Path
    decoder: Annotated[str | None, Option(default_text="the first of the run")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions(Options):
    """Write a page of all runs under a directory, those that still go on among them.

    Attributes:
        data: A directory with runs.
        out: The page.
        watch: Write it again every so many seconds, until no run goes on any more.
    """

    data: Annotated[Path, _FIRST]
    out: Annotated[Path | None, Option(default_text="DATA/index.html")] = None
    watch: Annotated[int | None, Option(min=1)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeOptions(Options):
    """Run a row of the paper's tables, stage by stage; those that are done are passed over.

    Attributes:
        name: Name of a recipe, or a TOML file of your own; without it, the recipes are listed.
        stage: Only this stage; may be given several times.
        dry_run: Print commands, estimates and what was spent, run nothing.
        gpu: What is estimated for.
        price: Of an hour of that GPU, in any currency.
        as_json: Print the plan as JSON, run nothing.
    """

    name: Annotated[str | None, _FIRST] = None
    stage: Sequence[str] = ()
    dry_run: bool = False
    gpu: Annotated[str, Option(choices=GPUS)] = "a100"
    price: Annotated[float | None, Option(min=0)] = None
    as_json: Annotated[bool, _JSON] = False
