"""Texts without their thinking are neither exported for policies nor trained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from fakes import FixedSampler
from helpers import problem_set, sample_settings, small_build
from paired_data import MadeUpRewards

pytest.importorskip("torch")
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.dataset.separate_thinking import THINKING_IS_MISSING
from fsdpo_data.exchange.export import export
from fsdpo_data.pairs.best_worst import PairSpec
from fsdpo_data.stages.pair import PairStage
from fsdpo_train.losses.preference_losses import PREFERENCE_LOSSES
from fsdpo_train.trainer.row_formats import pair_rows
from fsdpo_train.trainer.row_source import open_source

TEXTS = [f"Step 1: 20 + 22 = {value}.\nThe answer is: {value}" for value in (42, 43)]


def build_pairs(root: Path, *, reasoning: list[str], texts: list[str] = TEXTS) -> Path:
    """Build and pair a right and a wrong solution of one problem, with their thinking."""
    source = problem_set(1)
    completions = [
        Completion(text, "stop", 9, reasoning=thinking)
        for text, thinking in zip(texts, reasoning, strict=True)
    ]

    class Thinker(FixedSampler):
        def complete_texts(
            self, prompts: Sequence[str], spec: SamplingSpec
        ) -> list[list[Completion]]:
            return [completions for _ in prompts]

    settings = sample_settings(n=2)
    small_build(root / "built", source, sampling=settings, make_sampler=lambda: Thinker({}))
    stages = [MadeUpRewards(), PairStage(pair_spec=PairSpec(top=1))]
    derive_dataset(root / "built", root / "pairs", stages, progress=LineProgress())
    return root / "pairs"


def test_a_text_without_its_thinking_is_refused(tmp_path: Path) -> None:
    root = build_pairs(tmp_path, reasoning=["Hm, 20 + 22.", ""])
    result = export(root, "trl-sft", tmp_path / "sft")
    assert (result.rows, result.left_out) == (0, {THINKING_IS_MISSING: 1})
    rows = open_source(root, pair_rows(PREFERENCE_LOSSES["dpo"])).rows()
    with pytest.raises(InputError, match="no pair is left: the thinking of the solution is in"):
        list(rows)


def test_a_text_with_its_thinking_is_trained(tmp_path: Path) -> None:
    texts = [f"<think>Hm.</think>\n{text}" for text in TEXTS]
    root = build_pairs(tmp_path, reasoning=["", ""], texts=texts)
    assert export(root, "trl-sft", tmp_path / "sft").rows == 1
    assert len(list(open_source(root, pair_rows(PREFERENCE_LOSSES["dpo"])).rows())) == 1
