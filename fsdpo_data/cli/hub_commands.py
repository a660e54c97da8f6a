"""The commands of ``fsdpo-data`` that talk to the Hub."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsdpo_data.core.progress import progress

if TYPE_CHECKING:
    from fsdpo_data.publish.push import Plan

_PUSH_EXAMPLES = """
The token comes from `HF_TOKEN` or `hf auth login`, never from the command line.

**Examples**

- `fsdpo-data push org/name runs/pairs --dry-run` — what would be sent, and nothing more
- `fsdpo-data push org/name runs/pairs` — private; the next version, v1.0, v1.1 …
- `fsdpo-data push org/name runs/pairs --public`
"""


def push(
    name: Annotated[str, typer.Argument(metavar="ORG/NAME", help="Dataset on the Hub.")],
    directory: Annotated[Path, typer.Argument(help="A sealed dataset.")],
    public: Annotated[
        bool, typer.Option("--public", help="Let everybody read it; new ones are private.")
    ] = False,
    revision: Annotated[str, typer.Option(help="Branch that gets the commit.")] = "main",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be sent, then stop.")
    ] = False,
) -> None:
    """Publish a dataset: validate, one commit, one tag, read back.

    Only what changed is sent. Stopped at any moment, the same command goes on; until the commit,
    nobody sees anything of it.
    """
    from fsdpo_data.publish.push import plan_push
    from fsdpo_data.publish.push import push as carry_out

    _quiet_bars()
    plan = plan_push(directory, name, branch=revision)
    _show(plan, public=public)
    opens = public and plan.remote.private
    if dry_run or (plan.up_to_date and not opens):
        return
    with progress() as shown:
        commit = carry_out(plan, public=public, progress=shown)
    typer.echo(f"\npushed {plan.repo.url} {plan.tag} at {commit}, read back and compared")
    typer.echo(f"next: fsdpo-data pull {name}@{plan.tag}")


def _show(plan: Plan, *, public: bool) -> None:
    """Print what a push will do."""
    if plan.up_to_date:
        typer.echo(f"{plan.repo.url} has it already: {plan.tag} at {plan.remote.head}")
        return
    if plan.remote.private is None:
        typer.echo(f"new {'public' if public else 'private'} dataset {plan.repo.url}")
    else:
        typer.echo(f"{plan.repo.url}, branch {plan.branch} at {plan.remote.head}")
    for content in plan.send:
        change = "change" if content.path in plan.remote.files else "add"
        typer.echo(f"  {change:<7}{_size(content.size):>9}  {content.path}")
    for path in plan.remove:
        typer.echo(f"  remove {'':>9}  {path}")
    kept = len(plan.contents) - len(plan.send)
    size = _size(sum(content.size for content in plan.send))
    typer.echo(f"{len(plan.send)} files, {size}, as {plan.tag}; {kept} are there already")


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


def pull(
    name: Annotated[
        str,
        typer.Argument(metavar="ORG/NAME[@TAG]", help="Dataset; the latest if no tag is given."),
    ],
    out: Annotated[Path | None, typer.Option(help="Directory.  [default: runs/NAME-TAG]")] = None,
) -> None:
    """Fetch a dataset from the Hub and check every file, row and count."""
    from fsdpo_data.cli.summary import print_summary
    from fsdpo_data.publish.pull import pull as fetch

    _quiet_bars()
    target = out or Path("runs") / name.rpartition("/")[2].replace("@", "-")
    with progress() as shown:
        manifest = fetch(name, target, progress=shown)
    print_summary(manifest, f"pulled {name} to {target}")
    typer.echo(f"\nnext: fsdpo-data inspect {target}")


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command(epilog=_PUSH_EXAMPLES)(push)
    app.command(epilog="**Example** `fsdpo-data pull org/name@v1.0 --out runs/theirs`")(pull)
