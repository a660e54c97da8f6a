"""The advantages of the RL example agree with the authors' code, transcribed as plain loops."""

from __future__ import annotations

import gzip
import json
import math
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "examples/rl"))
import step_advantages as advantages

NAN = math.nan
Rows = list[list[float]]


def close(tensor: Any, rows: Any) -> bool:
    """Return whether a tensor has the values, up to float64 rounding."""
    return bool(torch.allclose(tensor, torch.tensor(rows, dtype=tensor.dtype), atol=1e-12))


def random_steps(seed: int, n: int, low: float = -1.0) -> Rows:
    """Return step rewards of ``n`` completions with one to six steps."""
    rng = random.Random(seed)
    return [[rng.uniform(low, 1) for _ in range(rng.randint(1, 6))] for _ in range(n)]


def pad(rows: Sequence[Sequence[float] | None]) -> tuple[Any, Any]:
    """Return rewards in float64 with NaN at padding, which no function may read, and the mask."""
    reward, mask = advantages.pad_step_rewards(rows)
    return reward.double().masked_fill(~mask, NAN), mask


def exact(rows: Rows) -> tuple[Any, Any]:
    """Return ``pad`` of rows with the exact float64 values."""
    reward, mask = pad(rows)
    for index, row in enumerate(rows):
        reward[index, : len(row)] = torch.tensor(row, dtype=torch.float64)
    return reward, mask


def unpad(tensor: Any, mask: Any) -> Rows:
    assert not tensor[~mask].any(), "padding has advantages"
    return [row[keep].tolist() for row, keep in zip(tensor, mask, strict=True)]


def assert_rows(tensor: Any, mask: Any, expected: Rows) -> None:
    for row, expected_row in zip(unpad(tensor, mask), expected, strict=True):
        assert row == pytest.approx(expected_row, abs=1e-10)


def test_a_completion_without_others_has_no_advantage() -> None:
    group = torch.tensor([0, 1, 1])
    reward, mask = pad([[0.5, 0.2], [0.3, 0.1], None])
    assert not advantages.min_form_advantages(reward, mask, mask.long(), group).any()
    assert not advantages.token_advantages(reward, mask, group).any()


# --- PURE -----------------------------------------------------------------------------------------


def pure_process_rewards(rewards: list[float], temperature: float) -> list[float]:
    """Transcribe the weighted rewards of one completion.

    CJReinforce/PURE, openrlhf/utils/utils.py (``turn_process_reward_logits_to_reward``), commit
    41f9363b8cc4af044b7fc5f7f9bbbf62139e9553. The rewards are the differences of probabilities that
    the function computes from logits.
    """
    exponents = [math.exp(-reward / temperature) for reward in rewards]
    return [reward * e / sum(exponents) for reward, e in zip(rewards, exponents, strict=True)]


def pure_advantages(rewards: Rows, step_tokens: list[list[int]], n_samples: int) -> Rows:
    """Transcribe the advantages of the tokens, for rewards of steps alone.

    CJReinforce/PURE, openrlhf/trainer/ppo_utils/experience_maker.py (``process_experiences`` and
    ``make_experience_list``), commit 41f9363b8cc4af044b7fc5f7f9bbbf62139e9553, with the baseline
    ``token``, and no KL term. The code leaves the separator at the end of a step out of the
    baseline; here, all tokens count.

    Args:
        rewards: Differences of probabilities of the steps.
        step_tokens: Tokens of each step.
        n_samples: Completions per prompt, one after the other.
    """
    result: Rows = []
    weighted = [pure_process_rewards(row, 0.1) for row in rewards]
    for i, row in enumerate(weighted):
        start = i // n_samples * n_samples
        other_indices = [j for j in range(start, start + n_samples) if j != i]
        process_reward = [0.0] * sum(step_tokens[i])
        position = -1
        average_per_token = sum(sum(weighted[j]) for j in other_indices) / sum(
            sum(step_tokens[j]) for j in other_indices
        )
        for reward, n_tokens in zip(row, step_tokens[i], strict=True):
            position += n_tokens
            process_reward[position] = reward - average_per_token * n_tokens
        returns = [sum(process_reward[t:]) for t in range(len(process_reward))]
        result.append(returns)
    return result


def test_min_form_advantages_are_pures() -> None:
    rng = random.Random(1)
    rows = random_steps(1, 12)
    step_tokens = [[rng.randint(2, 5) for _ in row] for row in rows]
    expected = pure_advantages(rows, step_tokens, 4)

    reward, mask = exact(rows)
    counts, _ = advantages.pad_step_rewards(step_tokens)
    step = torch.full((12, 40), -1)
    for index, row_tokens in enumerate(step_tokens):
        ids = [k for k, n_tokens in enumerate(row_tokens) for _ in range(n_tokens)]
        step[index, : len(ids)] = torch.tensor(ids)
    assert torch.equal(advantages.count_step_tokens(step, mask.shape[1]), counts.long())
    step_advantages = advantages.min_form_advantages(
        reward, mask, counts.double(), torch.arange(12) // 4
    )
    assert_rows(advantages.broadcast_steps(step_advantages, step), step >= 0, expected)


def min_form_sums(rows: Rows, temperature: float) -> Any:
    reward, mask = exact(rows)
    return advantages.min_form_rewards(reward, mask, temperature=temperature).sum(-1)


def test_min_form_rewards_ignore_padding_and_empty_rows() -> None:
    reward, mask = pad([[0.5], None, [0.5, -1.0]])
    result = advantages.min_form_rewards(reward, mask)
    assert not result[1].any() and not result.isnan().any()
    assert result[0, 0] == 0.5 and result[2].sum() == pytest.approx(-1, abs=1e-5)


def step_scores(file: Path) -> Rows:
    with gzip.open(file, "rt") as lines:
        return [row["step_scores"] for row in map(json.loads, lines)]


def check_minimum(rows: Rows) -> None:
    """Check that the sums fall to the minimum, within the bound (K − 1)·T/e."""
    minimum = torch.tensor([min(row) for row in rows], dtype=torch.float64)
    n_steps = torch.tensor([len(row) for row in rows])
    previous = torch.full_like(minimum, torch.inf)
    for temperature in (1, 0.1, 0.01, 1e-3, 1e-4, 1e-9):
        sums = min_form_sums(rows, temperature)
        gap = sums - minimum
        assert (gap >= -1e-12).all()
        assert (gap <= (n_steps - 1) * temperature / math.e + 1e-12).all()
        assert (sums <= previous + 1e-12).all()
        previous = sums
    assert torch.allclose(previous, minimum, rtol=0, atol=1e-7)


def test_min_form_rewards_of_real_scores_sum_to_the_minimum(shared: Path) -> None:
    check_minimum(step_scores(shared / "data/pools/gsm8k/scores/qwen_prm.jsonl.gz")[:2000])


@pytest.mark.proof
def test_min_form_rewards_of_all_real_scores_sum_to_the_minimum(shared: Path) -> None:
    files = sorted((shared / "data/pools").glob("*/scores/*.jsonl.gz"))
    assert len(files) == 8
    for file in files:
        check_minimum(step_scores(file))


# --- PRIME ----------------------------------------------------------------------------------------


def test_the_baseline_of_primes_paper_leaves_out_the_completion() -> None:
    """The formula of arXiv 2502.01456, with one sum per symbol."""
    rows = random_steps(3, 8)
    reward, mask = exact(rows)
    group = torch.arange(8) // 4
    expected = []
    for i, row in enumerate(rows):
        other_indices = [j for j in range(i // 4 * 4, i // 4 * 4 + 4) if j != i]
        baseline = sum(sum(rows[j]) / len(rows[j]) for j in other_indices) / 3
        expected.append([sum(r - baseline for r in row[t:]) for t in range(len(row))])
    assert_rows(advantages.token_advantages(reward, mask, group), mask, expected)


def test_completions_without_step_rewards_change_no_advantage() -> None:
    rows = random_steps(5, 4)
    reward, mask = exact(rows)
    more_reward, more_mask = exact([*rows, []])
    group = torch.zeros(4, dtype=torch.long)
    more_group = torch.zeros(5, dtype=torch.long)
    n_tokens = mask.long() * 3
    more_tokens = torch.full(more_mask.shape, 3)
    pairs = [
        (
            advantages.token_advantages(reward, mask, group),
            advantages.token_advantages(more_reward, more_mask, more_group),
        ),
        (
            advantages.min_form_advantages(reward, mask, n_tokens, group),
            advantages.min_form_advantages(more_reward, more_mask, more_tokens, more_group),
        ),
    ]
    for few, many in pairs:
        assert torch.allclose(few, many[:4]) and not many[4].any()


# --- steps to tokens ------------------------------------------------------------------------------


def test_steps_reach_their_tokens() -> None:
    step = torch.tensor([[0, 0, 1, 2, 2, -1], [0, 1, -1, -1, -1, -1], [0, 0, 0, 1, 1, 1]])
    reward, mask = advantages.pad_step_rewards([[1.0, 2, 3], [4.0, 5], None])
    result = advantages.broadcast_steps(reward, step)
    assert result.tolist() == [[1, 1, 2, 3, 3, 0], [4, 5, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]]
    last = advantages.scatter_to_last_tokens(reward, mask, step)
    assert last.tolist() == [[0, 1, 2, 0, 3, 0], [4, 5, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]]


def test_a_step_without_tokens_adds_its_reward_to_the_token_before_it() -> None:
    step = torch.tensor([[0, 0, 2, 2]])
    reward, mask = advantages.pad_step_rewards([[1.0, 2, 3]])
    assert advantages.scatter_to_last_tokens(reward, mask, step).tolist() == [[0, 3, 0, 3]]


def test_no_completion_has_step_rewards() -> None:
    reward, mask = advantages.pad_step_rewards([None, None])
    step = torch.tensor([[0, 1], [0, -1]])
    group = torch.zeros(2)
    assert reward.shape == mask.shape == (2, 0)
    counts = advantages.count_step_tokens(step, 0)
    result = advantages.min_form_advantages(reward, mask, counts, group)
    assert advantages.broadcast_steps(result, step).tolist() == [[0, 0], [0, 0]]
    assert not advantages.scatter_to_last_tokens(reward, mask, step).any()
