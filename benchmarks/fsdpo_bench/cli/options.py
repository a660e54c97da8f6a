"""The options of all commands except ``run``, whose options are :class:`RunOptions`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fsdpo_data.core.options import Option, Options

_POSITIONAL = Option(positional=True)
_JSON = Option(flag="--json", in_digest=False)
_NOT_IN_DIGEST = Option(in_digest=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions(Options):
    """Download benchmarks that are not on the Hub, from public repositories at pinned commits.

    `run` downloads them when it needs them. Use this command for machines that are
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
        name: Name of a recipe, a TOML file of your own, or FILE.toml:NAME for one of the recipes in
            a file. Without a name, all recipes are listed.
        stage: Run only this stage. Repeatable.
        set: NAME=VALUE, in place of a value in the file of the recipe, such as seed=1; may be
            repeated.
        dry_run: Print the commands and their measured cost without running the stages.
        as_json: Print the plan as JSON without running the stages.

    Examples:
        fsdpo-bench recipe                # list the recipes

        fsdpo-bench recipe qwen2-7b-sft-full-step-dpo --dry-run

        fsdpo-bench recipe embedded       # runs on a laptop

        fsdpo-bench recipe embedded --set seed=1 --set folder=runs/embedded-1

        fsdpo-bench recipe qwen2-7b-sft-full-step-dpo --stage samples
    """

    name: Annotated[str | None, _POSITIONAL] = None
    stage: Sequence[str] = ()
    set: Sequence[str] = ()
    dry_run: bool = False
    as_json: Annotated[bool, _JSON] = False
