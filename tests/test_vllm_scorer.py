"""Scoring with vLLM, for real: the rewards of the transformers backend."""

from __future__ import annotations

from pathlib import Path

import pytest
from random_model import save_random_model, save_random_prm

# vLLM's own imports warn.
pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]


def test_vllm_gives_the_rewards_of_transformers(tmp_path: Path) -> None:
    from test_scorer import REF, solutions, worst

    from fsdpo_data.scorers import SteppedText
    from fsdpo_train.scorer import PrmScorer
    from fsdpo_train.vllm_scorer import VllmPrmScorer

    model = save_random_prm(tmp_path / "prm", save_random_model(tmp_path / "policy"))
    odd = [SteppedText("p", []), SteppedText("p", ["x" * 300])]
    items = [*solutions(), *odd]
    ours = PrmScorer(str(model), REF, device="cpu").score(items)
    theirs = VllmPrmScorer(str(model), REF).score(items)
    assert theirs[-2:] == ours[-2:] == [[], None]
    assert worst(theirs[:-2], [each or [] for each in ours[:-2]]) < 1e-5
