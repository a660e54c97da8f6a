"""The options of all commands except ``run``, whose options are :class:`RunOptions`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fsdpo_bench.report.comparison_table import DIFF_COLUMNS
from fsdpo_bench.results.compare import ComparisonOptions
from fsdpo_data.core.entities import OUTCOMES
from fsdpo_data.core.options import Option, Options
from fsdpo_data.engines.answer_judge import AnswerJudgeOptions
from fsdpo_data.recorded.formats import ResponseReading
from fsdpo_data.steps.rewards import AGGREGATES

_POSITIONAL = Option(positional=True)
_JSON = Option(flag="--json", in_digest=False)
_NOT_IN_DIGEST = Option(in_digest=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions(Options):
    """Download benchmarks that are not on the Hub, from public repositories at pinned commits.

    `run` and `validate` download them when they need them. Use this command for machines that are
    offline later. The SHA-256 of every file is checked.

    Attributes:
        task: Names of benchmarks. By default, all benchmarks that are not on the Hub.
        out: Directory for the files; pass it to `--data` later.

    Examples:
        fsdpo-bench fetch addsub gsm_ic2

        fsdpo-bench fetch --out bench    # all, for a machine without a network

        fsdpo-bench run --suite ood --data bench --model ./policy
    """

    task: Annotated[Sequence[str], _POSITIONAL] = ()
    out: Annotated[Path | None, Option(default_text="the cache of `run`")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskValidateOptions(Options):
    """Check the rows, digests and gold answers of benchmarks, without a model.

    The grader must accept every gold answer for itself and reject wrong answers. Known exceptions
    are listed with the reason. Any other exception ends the command with exit code 1.

    Attributes:
        suite: A suite; `fsdpo-bench tasks` lists them.
        task: One benchmark, or a file of your own. Repeatable.
        data: Directory with a folder for each benchmark, or the file of one benchmark.
        as_json: Print JSON instead of a table.

    Examples:
        fsdpo-bench validate --suite all --data benchmarks

        fsdpo-bench validate --task ocw --data ocw_test.jsonl

        fsdpo-bench validate --task my.toml
    """

    suite: Annotated[str | None, Option(default_text="all")] = None
    task: Sequence[str] = ()
    data: Annotated[Path | None, Option(default_text="the Hub")] = None
    as_json: Annotated[bool, _JSON] = False


@dataclass(frozen=True, kw_only=True)
class ResponseGradeOptions(AnswerJudgeOptions, ResponseReading):
    r"""Grade existing responses: a run, a file, or one response with an explanation.

    Grading a run writes a new run, and needs no model. A judge may decide the undecided answers of
    a run.

    Attributes:
        data: A run, or a file with responses and gold answers.
        out: Directory of the new run. For a file: new JSONL file with the verdict on each response.
        explain: Grade one answer or response, and explain the verdict.
        task: Benchmark whose tolerance applies (`ocw` has one).
        tolerance: Maximum relative error of a number, e.g. 0.01.
        k: For a run: number of samples that the decoders use. Repeatable.
        aggregate: For a run: function that turns the step rewards of a sample into one number.
        show: Number of printed responses whose verdict differs from the published verdict.
        workers: Number of grading processes.
        resume: Continue the new run in `out`.
        as_json: Print JSON instead of a table.

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
    out: Annotated[Path | None, _NOT_IN_DIGEST] = None
    explain: Annotated[tuple[str, str] | None, Option(metavar="GOLD PRED", in_digest=False)] = None
    task: Annotated[str | None, _NOT_IN_DIGEST] = None
    tolerance: Annotated[float | None, Option(min=0, exclusive_max=1, in_digest=False)] = None
    k: Annotated[Sequence[int], Option(min=1, default_text="as in the run")] = ()
    aggregate: Annotated[str | None, Option(choices=AGGREGATES, default_text="as in the run")] = (
        None
    )
    show: Annotated[int, Option(min=0, in_digest=False)] = 10
    workers: Annotated[int | None, Option(min=1, default_text="all CPU cores", in_digest=False)] = (
        None
    )
    resume: Annotated[bool, _NOT_IN_DIGEST] = False
    as_json: Annotated[bool, _JSON] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInspectOptions(Options):
    r"""Show problems of a run: question, answers, verdicts and solutions, step by step.

    Attributes:
        data: A run.
        problem: The beginning of a problem id.
        task: Show only problems of this benchmark.
        outcome: Show only problems where the decoder's answer has this outcome.
        decoder: The decoder for `outcome`.
        subject: Show only problems of this subject.
        level: Show only problems of this level.
        count: Number of problems to show.
        samples: Number of samples to show per problem.
        columns: Print a table with one row per problem and these columns, with commas:
            `problem_id,answer,outcome`. A column is a field of the problem, a group such as
            `subject`, or a field of the decoder's answer.
        as_json: Print the records as JSON lines.

    Examples:
        fsdpo-bench inspect runs/bench 5e0c    # by the beginning of its id

        fsdpo-bench inspect runs/bench --outcome incorrect \
          --decoder bon@5:min --subject Algebra

        fsdpo-bench inspect runs/bench --count 20 \
          --columns row,gold,answer,outcome
    """

    data: Annotated[Path, _POSITIONAL]
    problem: Annotated[str | None, _POSITIONAL] = None
    task: str | None = None
    outcome: Annotated[str | None, Option(choices=OUTCOMES)] = None
    decoder: Annotated[str | None, Option(default_text="the first of the run")] = None
    subject: str | None = None
    level: str | None = None
    count: Annotated[int, Option(min=1)] = 3
    samples: Annotated[int, Option(min=0)] = 2
    columns: Sequence[str] = ()
    as_json: Annotated[bool, _JSON] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDiffOptions(Options, ComparisonOptions):
    r"""Compare two runs problem by problem, with intervals and exact p-values.

    If problems share base problems, intervals and p-values are over base problems.

    Attributes:
        run_a: The first run, A.
        run_b: The second run, B. Differences are B minus A.
        show: Number of changed problems to print.
        columns: Columns of the table, with commas.
        html: File for a page with the solutions of both runs to every problem.
        as_json: Print JSON instead of a table.

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
    run_b: Annotated[Path, _POSITIONAL]
    show: Annotated[int, Option(min=0)] = 10
    columns: Annotated[
        Sequence[str], Option(names_in_value=DIFF_COLUMNS, default_text="all that fit")
    ] = ()
    html: Path | None = None
    as_json: Annotated[bool, _JSON] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselinesOptions(Options):
    r"""Compare the decoders of one or two runs with baselines that need no reward model.

    The baselines are an average sample, the vote, and the sample with the highest likelihood under
    the model of the run. The last row is a perfect choice, which no decoder exceeds.

    Attributes:
        runs: One or two runs on the same problems. Differences are the second minus the first.
        likelihood: The model of each run, for the choice by likelihood; may be repeated.
        as_json: Print JSON instead of a table.

    Examples:
        fsdpo-bench baselines runs/before --likelihood runs/sft

        fsdpo-bench baselines runs/before runs/after \
          --likelihood runs/sft --likelihood runs/dpo
    """

    runs: Annotated[Sequence[Path], _POSITIONAL]
    likelihood: Annotated[Sequence[str], Option(default_text="no choice by likelihood")] = ()
    as_json: Annotated[bool, _JSON] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions(Options):
    """Write results.json, report.md, report.html and the card of a complete run again.

    Attributes:
        data: A run.
        megabytes: Megabytes of text (problems and solutions) in report.html.
        as_json: Print JSON instead of a table.

    Examples:
        fsdpo-bench report runs/bench

        fsdpo-bench report runs/bench --megabytes 100
    """

    data: Annotated[Path, _POSITIONAL]
    megabytes: Annotated[float, Option(min=0.1)] = 16
    as_json: Annotated[bool, _JSON] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsPushOptions(Options):
    """Push results to the model's repository on the Hub, for its page and for leaderboards.

    The push writes a file in `.eval_results` for each benchmark and decoder, and `model-index` in
    the model's card; other results stay. It includes only complete benchmarks with a dataset on the
    Hub. The token comes from `HF_TOKEN` or `hf auth login`.

    Attributes:
        data: A run.
        name: Repository of the model on the Hub.
        pull_request: Open a pull request; this needs no write access.
        dry_run: Print the files without sending them. It refuses what the push would refuse.

    Examples:
        fsdpo-bench push runs/bench me/my-model --dry-run    # send nothing

        fsdpo-bench push runs/bench org/their-model --pull-request
    """

    data: Annotated[Path, _POSITIONAL]
    name: Annotated[str, Option(positional=True, metavar="ORG/NAME")]
    pull_request: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeOptions(Options):
    """Run a recipe, such as a row of the paper's tables, stage by stage; skip finished stages.

    Attributes:
        name: Name of a recipe, or a TOML file of your own. `paper` stands for all tables and
            figures of the paper. Without a name, all recipes are listed.
        row: Run only this recipe of the file. Repeatable.
        stage: Run only this stage. Repeatable.
        set: NAME=VALUE, in place of a value in the file of the recipe, such as seed=1; may be
            repeated.
        dry_run: Print the commands and their measured cost without running the stages.
        smoke: Run all stages with tiny models and few problems, to find errors before a long run.
        results: Print the paper's numbers next to those of finished stages without running any.
        as_json: Print the plan as JSON without running the stages.

    Examples:
        fsdpo-bench recipe                # list the recipes

        fsdpo-bench recipe paper --row qwen2-7b-full-step --dry-run

        fsdpo-bench recipe paper --results    # the paper's tables next to ours

        fsdpo-bench recipe embedded       # runs on a laptop

        fsdpo-bench recipe embedded --set seed=1 --set folder=runs/embedded-1

        fsdpo-bench recipe qwen2-7b-full-step --stage prm-samples --set gpus=4
    """

    name: Annotated[str | None, _POSITIONAL] = None
    row: Sequence[str] = ()
    stage: Sequence[str] = ()
    set: Sequence[str] = ()
    dry_run: bool = False
    smoke: bool = False
    results: bool = False
    as_json: Annotated[bool, _JSON] = False
