"""Options that the chosen loss does not read are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fsdpo_data.core.errors import InputError
from fsdpo_train.config import DpoConfig, PrmConfig
from fsdpo_train.losses.preference_losses import PREFERENCE_LOSSES, PreferenceSpec
from fsdpo_train.losses.prm_losses import PRM_LOSSES

OTHER_VALUES: dict[str, Any] = {
    "beta": 0.5,
    "gamma": 8.0,
    "zeta": 1.0,
    "loss_reduction": "mean",
    "last_step_only": True,
}


@pytest.mark.parametrize(
    ("options_class", "losses"), [(PreferenceSpec, PREFERENCE_LOSSES), (PrmConfig, PRM_LOSSES)]
)
def test_each_loss_takes_exactly_the_options_that_it_reads(options_class: Any, losses: Any) -> None:
    names = {option for loss in losses.values() for option in loss.options}
    required = {"data": Path("d"), "out": Path("o")} if options_class is PrmConfig else {}
    for loss in losses.values():
        for name in names:
            values = {"loss": loss.name, name: OTHER_VALUES[name], **required}
            if name in loss.options:
                assert getattr(options_class(**values), name) == OTHER_VALUES[name]
                continue
            with pytest.raises(InputError) as refused:
                options_class(**values)
            assert f"the loss {loss.name} does not read this option" in str(refused.value)
            readers = [entry.name for entry in losses.values() if name in entry.options]
            assert str(refused.value).endswith(f"reads it: {', '.join(readers)}.")


def test_an_outcome_has_nothing_to_reduce() -> None:
    """The implicit loss reads one label of each solution."""
    with pytest.raises(InputError, match="loss implicit does not read this option"):
        PrmConfig(data=Path("d"), out=Path("o"), loss="implicit", loss_reduction="mean")


def test_the_default_of_an_option_is_no_statement() -> None:
    config = DpoConfig(data=Path("d"), out=Path("o"), loss="dpo", gamma=0.5)
    assert config.gamma == 0.5
    with pytest.raises(InputError, match=r"gamma = 8"):
        DpoConfig(data=Path("d"), out=Path("o"), loss="dpo", gamma=8)
