"""The options of all commands except ``run``, whose options are :class:`RunOptions`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fsdpo_bench.metrics.compare import ComparisonOptions
from fsdpo_bench.report.comparison_table import DIFF_COLUMNS
from fsdpo_data.core.options import NotWith, OnlyWith, Option, Options
from fsdpo_data.stages.merge import MergeOptions

_POSITIONAL = Option(positional=True)
_JSON = Option(flags=["--json"], in_digest=False)
#: For options of the measurement, which the list of disagreements does not need.
_MEASUREMENT = NotWith("disagreements")


class FetchOptions(Options):
    """Download benchmarks that are not on the Hub, from public repositories at pinned commits.

    `run` downloads them when it needs them. Use this command for machines that are
    offline later. The SHA-256 of every file is checked.

    Examples:
        fsdpo-bench fetch addsub gsm_ic2

        fsdpo-bench fetch --out bench    # all that are not on the Hub

        fsdpo-bench run --task addsub --task gsm_ic2 --data bench --model ./policy
    """

    task: Annotated[Sequence[str], _POSITIONAL] = ()
    """Names of benchmarks. By default, all benchmarks that are not on the Hub."""
    out: Annotated[Path | None, Option(default_text="the cache of `run`")] = None
    """Directory for the files; pass it to `--data` later."""


class RunMergeOptions(MergeOptions):
    """Merge the shards that `run --shard i/N` has written into one run, and write its report.

    The result is the run without shards. The policy is not loaded. The merge loads the reward model
    for decoders that choose from samples by reward, and the judge. If the merge is interrupted, run
    the same command again.

    Examples:
        fsdpo-bench merge runs/shards/* --out runs/bench

        fsdpo-bench merge 's3://bucket/shards/*' --out s3://bucket/bench
    """

    out: Annotated[str | Path, Option(in_digest=False, dataset="output")]
    """Directory or URL of the new run."""
    as_json: Annotated[bool, Option(flags=["--json"], in_digest=False)] = False
    """Print JSON instead of a table."""


class ReportOptions(Options):
    r"""Measure runs and datasets with gold answers.

    The results are the accuracy of each decoder, avg@k and pass@k, with intervals over problems.
    With step rewards, they include best-of-N and votes at every N, ranking AUC and calibration.
    Below the number of samples, accuracies are means over subsets of N samples: exact for
    best-of-N, and over random subsets for votes.

    Datasets with equal solutions and the step rewards of different models are measured together.
    Other datasets are columns next to each other. The report of a run is written into its folder,
    except for a run at a URL.

    Examples:
        fsdpo-bench report runs/bench    # writes results.json and report.html

        fsdpo-bench report runs/scored --k 4 --k 16 --out runs/page

        fsdpo-bench report runs/qwen runs/shepherd    # two reward models

        fsdpo-bench report runs/before runs/after \
          --likelihood runs/sft --likelihood runs/dpo

        fsdpo-bench report s3://bucket/runs/bench --out runs/page
    """

    data: Annotated[Sequence[str | Path], Option(positional=True, dataset="input")]
    """Runs and datasets, as directories or URLs."""
    k: Annotated[
        Sequence[Annotated[int, Field(ge=1)]],
        Option(default_text="those of a run, or powers of 2 and all"),
        _MEASUREMENT,
    ] = ()
    """Number of samples N to choose from; may be repeated."""
    aggregate: Annotated[
        Sequence[str], Option(default_text="those of a run, or all"), _MEASUREMENT
    ] = ()
    """Function that turns the step rewards of a sample into one number; may be repeated."""
    likelihood: Annotated[
        Sequence[str],
        Option(default_text="no choice by likelihood", metavar="MODEL"),
        _MEASUREMENT,
    ] = ()
    """The model that wrote the samples, for the choice of the most likely sample; one for each set
    of samples.
    """
    gamma: Annotated[
        Sequence[Annotated[float, Field(gt=0)]], Option(default_text="no pairs"), _MEASUREMENT
    ] = ()
    """Also compare the step weights of pairs at this γ; may be repeated."""
    problems: Annotated[Path | None, _MEASUREMENT] = None
    """File of problems; only these problems count, by their questions."""
    disagreements: bool = False
    """Print where recorded verdicts of an import differ from ours."""
    show: Annotated[int, Field(ge=0), OnlyWith("disagreements"), NotWith("as_json")] = 10
    """Number of disagreements to print."""
    out: Annotated[Path | None, _MEASUREMENT] = None
    """Folder for the results and the page."""
    as_json: Annotated[bool, _JSON] = False
    """Print JSON instead of tables."""


class MeasurementDiffOptions(ComparisonOptions):
    r"""Compare two runs or datasets problem by problem, with intervals and p-values.

    If problems share base problems, intervals and p-values are over base problems.

    Examples:
        fsdpo-bench diff runs/sft runs/full-step    # all decoders of both runs

        fsdpo-bench diff runs/sft runs/full-step --decoder greedy --show 20

        fsdpo-bench diff runs/sft runs/full-step --html page.html

        fsdpo-bench diff runs/sft runs/full-step \
          --columns benchmark,decoder,difference,interval

        fsdpo-bench diff runs/sft runs/sft --decoder greedy \
          --decoder-b bon@5:min
    """

    a: Annotated[str | Path, Option(positional=True, dataset="input")]
    """The first run or dataset, A: a directory or URL."""
    b: Annotated[str | Path, Option(positional=True, dataset="input")]
    """The second run or dataset, B: a directory or URL. Differences are B minus A."""
    show: Annotated[int, Field(ge=0), NotWith("as_json")] = 10
    """Number of changed problems to print."""
    columns: Annotated[
        Sequence[str],
        Option(names_in_value=DIFF_COLUMNS, default_text="all that fit"),
        NotWith("as_json"),
    ] = ()
    """Columns of the table, with commas."""
    html: Path | None = None
    """File for a page with the solutions of both to every problem."""
    as_json: Annotated[bool, _JSON] = False
    """Print JSON instead of a table."""


class ResultsPushOptions(Options):
    """Push results to the model's repository on the Hub, for its page and for leaderboards.

    The push writes a file in `.eval_results` for each benchmark and decoder, and `model-index` in
    the model's card; other results stay. It includes only complete benchmarks with a dataset on the
    Hub. The token comes from `HF_TOKEN` or `hf auth login`.

    Examples:
        fsdpo-bench push runs/bench me/my-model --dry-run    # send nothing

        fsdpo-bench push runs/bench org/their-model --pull-request
    """

    data: Annotated[str | Path, Option(positional=True, dataset="input")]
    """Directory or URL of a run."""
    name: Annotated[str, Option(positional=True, metavar="ORG/NAME")]
    """Repository of the model on the Hub."""
    pull_request: bool = False
    """Open a pull request; this needs no write access."""
    dry_run: bool = False
    """Print the files without sending them. It refuses what the push would refuse."""


class RecipeOptions(Options):
    """Run a recipe, such as a row of the paper of Full-Step-DPO; finished stages are skipped.

    Examples:
        fsdpo-bench recipe                # list the recipes

        fsdpo-bench recipe paper --row qwen2-7b-full-step --dry-run

        fsdpo-bench recipe paper --results    # the published tables next to ours

        fsdpo-bench recipe embedded       # runs on a laptop

        fsdpo-bench recipe embedded --set seed=1 --set folder=runs/embedded-1

        fsdpo-bench recipe qwen2-7b-full-step --stage prm-samples --set gpus=4
    """

    name: Annotated[str | None, _POSITIONAL] = None
    """Name of a recipe, or a TOML file of your own. `paper` stands for all tables and figures of
    the paper of Full-Step-DPO (arXiv 2502.14356). Without a name, all recipes are listed.
    """
    row: Annotated[Sequence[str], OnlyWith("name")] = ()
    """Run only this recipe of the file. Repeatable."""
    stage: Annotated[Sequence[str], OnlyWith("name")] = ()
    """Run only this stage. Repeatable."""
    set: Annotated[Sequence[str], OnlyWith("name")] = ()
    """NAME=VALUE, in place of a value in the file of the recipe, such as seed=1; may be repeated.
    """
    dry_run: Annotated[bool, OnlyWith("name"), NotWith("as_json")] = False
    """Print the commands and their measured cost without running the stages."""
    smoke: Annotated[bool, OnlyWith("name")] = False
    """Run all stages with tiny models and few problems, to find errors before a long run."""
    results: Annotated[bool, OnlyWith("name"), NotWith("dry_run", "as_json")] = False
    """Print the published numbers next to those of finished stages without running any."""
    as_json: Annotated[bool, _JSON, OnlyWith("name")] = False
    """Print the plan as JSON without running the stages."""
