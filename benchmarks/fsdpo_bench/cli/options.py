"""The options of all commands except ``run``, whose options are :class:`RunOptions`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fsdpo_bench.report.comparison_table import DIFF_COLUMNS
from fsdpo_bench.results.compare import ComparisonOptions
from fsdpo_data.core.entities import OUTCOMES
from fsdpo_data.core.options import Option, Options
from fsdpo_data.engines.answer_judge import AnswerJudgeOptions
from fsdpo_data.exchange.response_formats import ResponseReading
from fsdpo_data.steps.rewards import AGGREGATES

_POSITIONAL = Option(positional=True)
_JSON = Option(flags=["--json"], in_digest=False)
_NOT_IN_DIGEST = Option(in_digest=False)


class FetchOptions(Options):
    """Download benchmarks that are not on the Hub, from public repositories at pinned commits.

    `run` and `validate` download them when they need them. Use this command for machines that are
    offline later. The SHA-256 of every file is checked.

    Examples:
        fsdpo-bench fetch addsub gsm_ic2

        fsdpo-bench fetch --out bench    # all, for a machine without a network

        fsdpo-bench run --suite ood --data bench --model ./policy
    """

    task: Annotated[Sequence[str], _POSITIONAL] = ()
    """Names of benchmarks. By default, all benchmarks that are not on the Hub."""
    out: Annotated[Path | None, Option(default_text="the cache of `run`")] = None
    """Directory for the files; pass it to `--data` later."""


class TaskValidateOptions(Options):
    """Check the rows, digests and gold answers of benchmarks, without a model.

    The grader must accept every gold answer for itself and reject wrong answers. Known exceptions
    are listed with the reason. Any other exception ends the command with exit code 1.

    Examples:
        fsdpo-bench validate --suite all --data benchmarks

        fsdpo-bench validate --task ocw --data ocw_test.jsonl

        fsdpo-bench validate --task my.toml
    """

    suite: Annotated[str | None, Option(default_text="all")] = None
    """A suite; `fsdpo-bench tasks` lists them."""
    task: Sequence[str] = ()
    """One benchmark, or a file of your own. Repeatable."""
    data: Annotated[Path | None, Option(default_text="the Hub")] = None
    """Directory with a folder for each benchmark, or the file of one benchmark."""
    as_json: Annotated[bool, _JSON] = False
    """Print JSON instead of a table."""


class ResponseGradeOptions(AnswerJudgeOptions, ResponseReading):
    r"""Grade existing responses: a run, a file, or one response with an explanation.

    Grading a run writes a new run, and needs no model. A judge may decide the undecided answers of
    a run.

    Examples:
        fsdpo-bench grade --explain '\frac12' 'The answer is 0.5'

        fsdpo-bench grade --explain 4.47e14 4.45e14 --tolerance 0.01

        fsdpo-bench grade outputs.jsonl    # fields: answer, response

        fsdpo-bench grade outputs.jsonl --out verdicts.jsonl    # one row per response

        fsdpo-bench grade runs/bench --out runs/again    # the current grader

        fsdpo-bench grade runs/bench --out runs/curve --k 1 --k 2 --k 4 --k 8

        fsdpo-bench grade runs/bench --out runs/judged \
          --judge Qwen/Qwen2.5-7B-Instruct    # decides undecided answers
    """

    data: Annotated[Path | None, Option(positional=True)] = None
    """A run, or a file with responses and gold answers."""
    out: Annotated[Path | None, _NOT_IN_DIGEST] = None
    """Directory of the new run. For a file: new JSONL file with the verdict on each response."""
    explain: Annotated[tuple[str, str] | None, Option(metavar="GOLD PRED", in_digest=False)] = None
    """Grade one answer or response, and explain the verdict."""
    task: Annotated[str | None, _NOT_IN_DIGEST] = None
    """Benchmark whose tolerance applies (`ocw` has one)."""
    tolerance: Annotated[float | None, Field(ge=0, lt=1), Option(in_digest=False)] = None
    """Maximum relative error of a number, e.g. 0.01."""
    k: Annotated[Sequence[Annotated[int, Field(ge=1)]], Option(default_text="as in the run")] = ()
    """For a run: number of samples that the decoders use. Repeatable."""
    aggregate: Annotated[str | None, Option(choices=AGGREGATES, default_text="as in the run")] = (
        None
    )
    """For a run: function that turns the step rewards of a sample into one number."""
    show: Annotated[int, Field(ge=0), Option(in_digest=False)] = 10
    """Number of printed responses whose verdict differs from the published verdict."""
    workers: Annotated[
        int | None, Field(ge=1), Option(default_text="all CPU cores", in_digest=False)
    ] = None
    """Number of grading processes."""
    resume: Annotated[bool, _NOT_IN_DIGEST] = False
    """Continue the new run in `out`."""
    as_json: Annotated[bool, _JSON] = False
    """Print JSON instead of a table."""


class RunInspectOptions(Options):
    r"""Show problems of a run: question, answers, verdicts and solutions, step by step.

    Examples:
        fsdpo-bench inspect runs/bench 5e0c    # by the beginning of its id

        fsdpo-bench inspect runs/bench --outcome incorrect \
          --decoder bon@5:min --subject Algebra

        fsdpo-bench inspect runs/bench --count 20 \
          --columns row,gold,answer,outcome
    """

    data: Annotated[Path, _POSITIONAL]
    """A run."""
    problem: Annotated[str | None, _POSITIONAL] = None
    """The beginning of a problem id."""
    task: str | None = None
    """Show only problems of this benchmark."""
    outcome: Annotated[str | None, Option(choices=OUTCOMES)] = None
    """Show only problems where the decoder's answer has this outcome."""
    decoder: Annotated[str | None, Option(default_text="the first of the run")] = None
    """The decoder for `outcome`."""
    subject: str | None = None
    """Show only problems of this subject."""
    level: str | None = None
    """Show only problems of this level."""
    count: Annotated[int, Field(ge=1)] = 3
    """Number of problems to show."""
    samples: Annotated[int, Field(ge=0)] = 2
    """Number of samples to show per problem."""
    columns: Sequence[str] = ()
    """Print a table with one row per problem and these columns, with commas:
    `problem_id,answer,outcome`. A column is a field of the problem, a group such as `subject`, or a
    field of the decoder's answer.
    """
    as_json: Annotated[bool, _JSON] = False
    """Print the records as JSON lines."""


class RunDiffOptions(ComparisonOptions):
    r"""Compare two runs problem by problem, with intervals and exact p-values.

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

    run_a: Annotated[Path, _POSITIONAL]
    """The first run, A."""
    run_b: Annotated[Path, _POSITIONAL]
    """The second run, B. Differences are B minus A."""
    show: Annotated[int, Field(ge=0)] = 10
    """Number of changed problems to print."""
    columns: Annotated[
        Sequence[str], Option(names_in_value=DIFF_COLUMNS, default_text="all that fit")
    ] = ()
    """Columns of the table, with commas."""
    html: Path | None = None
    """File for a page with the solutions of both runs to every problem."""
    as_json: Annotated[bool, _JSON] = False
    """Print JSON instead of a table."""


class BaselinesOptions(Options):
    r"""Compare the decoders of one or two runs with baselines that need no reward model.

    The baselines are an average sample, the vote, and the sample with the highest likelihood under
    the model of the run. The last row is a perfect choice, which no decoder exceeds.

    Examples:
        fsdpo-bench baselines runs/before --likelihood runs/sft

        fsdpo-bench baselines runs/before runs/after \
          --likelihood runs/sft --likelihood runs/dpo
    """

    runs: Annotated[Sequence[Path], _POSITIONAL]
    """One or two runs on the same problems. Differences are the second minus the first."""
    likelihood: Annotated[Sequence[str], Option(default_text="no choice by likelihood")] = ()
    """The model of each run, for the choice by likelihood; may be repeated."""
    as_json: Annotated[bool, _JSON] = False
    """Print JSON instead of a table."""


class ReportOptions(Options):
    """Write results.json, report.md, report.html and the card of a complete run again.

    Examples:
        fsdpo-bench report runs/bench

        fsdpo-bench report runs/bench --megabytes 100
    """

    data: Annotated[Path, _POSITIONAL]
    """A run."""
    megabytes: Annotated[float, Field(ge=0.1)] = 16
    """Megabytes of text (problems and solutions) in report.html."""
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

    data: Annotated[Path, _POSITIONAL]
    """A run."""
    name: Annotated[str, Option(positional=True, metavar="ORG/NAME")]
    """Repository of the model on the Hub."""
    pull_request: bool = False
    """Open a pull request; this needs no write access."""
    dry_run: bool = False
    """Print the files without sending them. It refuses what the push would refuse."""


class RecipeOptions(Options):
    """Run a recipe, such as a row of the paper's tables, stage by stage; skip finished stages.

    Examples:
        fsdpo-bench recipe                # list the recipes

        fsdpo-bench recipe qwen2-7b-sft-full-step-dpo --dry-run

        fsdpo-bench recipe embedded       # runs on a laptop

        fsdpo-bench recipe embedded --set seed=1 --set folder=runs/embedded-1

        fsdpo-bench recipe qwen2-7b-sft-full-step-dpo --stage samples
    """

    name: Annotated[str | None, _POSITIONAL] = None
    """Name of a recipe, a TOML file of your own, or FILE.toml:NAME for one of the recipes in a
    file. Without a name, all recipes are listed.
    """
    stage: Sequence[str] = ()
    """Run only this stage. Repeatable."""
    set: Sequence[str] = ()
    """NAME=VALUE, in place of a value in the file of the recipe, such as seed=1; may be repeated.
    """
    dry_run: bool = False
    """Print the commands and their measured cost without running the stages."""
    as_json: Annotated[bool, _JSON] = False
    """Print the plan as JSON without running the stages."""
