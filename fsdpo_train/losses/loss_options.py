"""The check that a loss reads the options that are set."""

from __future__ import annotations

from typing import Any

from fsdpo_data.core.command_line import check_read_options
from fsdpo_data.core.options import Options
from fsdpo_data.core.registry import Registry

LOSS_PANEL = "Loss"  #: Heading in ``--help`` of the options of losses.


def check_loss_options(options: Options, loss: str, losses: Registry[Any]) -> None:
    """Check that the options of other losses have their defaults.

    Args:
        options: The options, whose fields include the options of all losses.
        loss: Name of the loss.
        losses: The losses of this kind.

    Raises:
        InputError: if an option that the loss does not read has another value.
    """
    read_options = {entry.name: entry.options for entry in losses.importable_entries()}
    check_read_options(options, "loss", [loss], read_options)
