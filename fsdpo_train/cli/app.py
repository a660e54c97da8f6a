"""The ``fsdpo-train`` command line. Each command calls one function of the package's API."""

import logging
from collections.abc import Mapping

import typer

import fsdpo_train
from fsdpo_data.cli.console import new_app, run_app
from fsdpo_data.cli.options import command
from fsdpo_train.config import DpoConfig, PrmConfig, SftConfig
from fsdpo_train.trainer.processes import is_main_process
from fsdpo_train.trainer.row_formats import PRM_ROWS, SFT_ROWS, pair_rows
from fsdpo_train.trainer.row_source import check_data

app = new_app(
    "fsdpo-train", "Trains on the datasets: SFT, process reward models and preference losses."
)


@command(app, SftConfig)
def sft(config: SftConfig) -> None:
    """Fine-tune a model on prompt/completion rows."""
    check_data(config.data, SFT_ROWS)  # before torch is loaded, which takes seconds
    report = fsdpo_train.train_sft(config)
    _print_line(
        f"{report.out}: {report.rows} rows, {report.steps} steps, {_format_loss(report.loss)}"
    )


@command(app, PrmConfig)
def prm(config: PrmConfig) -> None:
    """Train a process reward model."""
    check_data(config.data, PRM_ROWS)
    report = fsdpo_train.train_prm(config)
    _print_line(f"{report.out}: {report.steps} steps, {_format_loss(report.loss)}")
    _print_line(f"held out: {_format_heldout(report.held_out)}")
    if report.no_better_than_chance and report.auc_ci95:
        low, high = report.auc_ci95
        _print_line(
            f"warning: auc {report.held_out['auc']:.3f} [{low:.3f}, {high:.3f}] on held-out "
            "problems: the model separates right from wrong steps no better than chance. Train "
            "longer, or on more problems, before you use its rewards."
        )


@command(app, DpoConfig)
def dpo(config: DpoConfig) -> None:
    """Train a policy on preference pairs."""
    check_data(config.data, pair_rows(config.preference_loss))
    report = fsdpo_train.train_dpo(config)
    _print_line(f"{report.out}: {report.steps} steps, {_format_loss(report.loss)}")
    _print_line(f"over the last logging window: {_format_metrics(report.metrics)}")


def _format_loss(loss: float) -> str:
    return f"mean loss {loss:.4f} over the last logging window"


def _format_heldout(metrics: Mapping[str, float]) -> str:
    if not metrics:
        return "nothing"
    missing = [name for name in ("auc", "ranking_auc") if name not in metrics]
    note = f" (too few problems for {' and '.join(missing)})" if missing else ""
    return _format_metrics(metrics) + note


def _format_metrics(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in values.items())


def _print_line(line: str) -> None:
    """Print a line in the main process of a distributed run."""
    if is_main_process():
        typer.echo(line)


def main() -> None:
    """Run ``fsdpo-train``, and show the messages of the stages in the main process."""
    logger = logging.getLogger(fsdpo_train.__name__)
    logger.setLevel(logging.INFO if is_main_process() else logging.WARNING)
    run_app(app)
