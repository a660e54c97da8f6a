"""Advantages agree with the authors' code, transcribed as plain loops over lists."""

from __future__ import annotations

import gzip
import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from fsdpo_data.core.errors import InputError
from fsdpo_data.rewards import advantages

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


# --- outcomes -------------------------------------------------------------------------------------


def trl_advantages(rewards: list[float], n_generations: int, scale: str) -> list[float]:
    """Transcribe the advantages of one reward function.

    huggingface/trl, trl/trainer/grpo_trainer.py (``_generate_and_score_completions``) and
    trl/trainer/utils.py (``nanstd``), release 1.16.0: ``sum_then_normalize``.
    """
    result = []
    for start in range(0, len(rewards), n_generations):
        group = rewards[start : start + n_generations]
        numbers = [reward for reward in group if not math.isnan(reward)]
        if not numbers:
            result += [0.0] * len(group)
            continue
        mean = sum(numbers) / len(numbers)
        variance = sum((number - mean) ** 2 for number in numbers) / len(numbers)
        count = len(numbers)
        std = math.sqrt(variance * count / (count - 1)) if count > 1 else NAN
        for reward in group:
            advantage = reward - mean
            if scale != "none":
                advantage /= std + 1e-4
            result.append(0.0 if math.isnan(advantage) else advantage)
    return result


@pytest.mark.parametrize("scale", ["group", "none"])
def test_outcome_advantages_are_trls(scale: str) -> None:
    rewards = [1, 0, 0, 1, NAN, 1, 0, 0, 1, 1, 1, 1, NAN, NAN, NAN, 1, NAN, NAN, NAN, NAN]
    outcome = torch.tensor(rewards, dtype=torch.float64)
    result = advantages.outcome_advantages(outcome, torch.arange(20) // 4, scale=scale == "group")
    assert close(result, trl_advantages([float(reward) for reward in rewards], 4, scale))


def test_groups_may_be_in_any_order() -> None:
    outcome = torch.tensor([1.0, 0, 0, 1, 1, NAN], dtype=torch.float64)
    group = torch.tensor([7, 3, 7, 3, 3, 7])
    order = torch.tensor([0, 2, 5, 1, 3, 4])
    for function in (advantages.outcome_advantages, advantages.leave_one_out):
        shuffled = function(outcome, group)
        assert torch.equal(shuffled[order], function(outcome[order], group[order]))


def rloo_code(scores: list[float], index: list[str]) -> list[float]:
    """Transcribe RLOO, without its tiling over the tokens.

    volcengine/verl, verl/trainer/ppo/core_algos.py (``compute_rloo_outcome_advantage``), commit
    b178a3cd56f58b2d502255daba591e92833930a7.
    """
    by_index: dict[str, list[float]] = {}
    for score, key in zip(scores, index, strict=True):
        by_index.setdefault(key, []).append(score)
    result = []
    for score, key in zip(scores, index, strict=True):
        n = len(by_index[key])
        mean = sum(by_index[key]) / n
        result.append(score * n / (n - 1) - mean * n / (n - 1))
    return result


def test_leave_one_out_is_rloo() -> None:
    scores = [0.5, 1, -2, 0, 0.25, 3]
    result = advantages.leave_one_out(
        torch.tensor(scores, dtype=torch.float64), torch.tensor([0, 1, 0, 1, 0, 1])
    )
    assert close(result, rloo_code(scores, ["a", "b"] * 3))


def test_undecided_outcomes_count_in_no_baseline() -> None:
    outcome = torch.tensor([1, 0, NAN, 1], dtype=torch.float64)
    result = advantages.leave_one_out(outcome, torch.zeros(4))
    assert close(result, [0.5, -1, 0, 0.5])


@pytest.mark.parametrize("outcome", [1.0, NAN])
def test_a_completion_without_others_has_no_advantage(outcome: float) -> None:
    outcomes = torch.tensor([outcome, 1.0, NAN])
    group = torch.tensor([0, 1, 1])
    reward, mask = pad([[0.5, 0.2], [0.3, 0.1], None])
    assert not advantages.outcome_advantages(outcomes, group).any()
    assert not advantages.leave_one_out(outcomes, group).any()
    for baseline in ("token", "step"):
        result = advantages.min_form_advantages(reward, mask, mask.long(), group, baseline=baseline)
        assert not result.any()
    assert not advantages.implicit_advantages(reward, mask, group, outcome_B=outcomes).any()


def test_unknown_baselines_are_errors() -> None:
    group = torch.tensor([0, 0])
    reward, mask = pad([[0.5, 0.2], [0.3, 0.1]])
    with pytest.raises(InputError, match="baseline = 'steps': expected one of token, step"):
        advantages.min_form_advantages(reward, mask, mask.long(), group, baseline="steps")
    with pytest.raises(InputError, match="baseline = 'token': expected one of paper, code"):
        advantages.implicit_advantages(reward, mask, group, baseline="token")


# --- reward to go ---------------------------------------------------------------------------------


def verl_returns(rewards: list[float], mask: list[int], gamma: float) -> list[float]:
    """Transcribe the returns of one completion in REINFORCE++.

    volcengine/verl, verl/trainer/ppo/core_algos.py
    (``compute_reinforce_plus_plus_outcome_advantage``), commit
    b178a3cd56f58b2d502255daba591e92833930a7.
    """
    returns = [0.0] * len(rewards)
    running_return = 0.0
    for t in range(len(rewards) - 1, -1, -1):
        running_return = rewards[t] + gamma * running_return
        returns[t] = running_return
        running_return *= mask[t]
    return returns


@pytest.mark.parametrize("gamma", [1.0, 0.9, 0.0])
def test_reward_to_go_is_verls(gamma: float) -> None:
    rows = random_steps(0, 20)
    reward, mask = exact(rows)
    result = advantages.reward_to_go(reward, mask, gamma=gamma)
    assert_rows(result, mask, [verl_returns(row, [1] * len(row), gamma) for row in rows])


# --- PURE -----------------------------------------------------------------------------------------


def pure_process_rewards(rewards: list[float], temperature: float) -> list[float]:
    """Transcribe the weighted rewards of one completion.

    CJReinforce/PURE, openrlhf/utils/utils.py (``turn_process_reward_logits_to_reward``), commit
    41f9363b8cc4af044b7fc5f7f9bbbf62139e9553. The rewards are the differences of probabilities that
    the function computes from logits.
    """
    exponents = [math.exp(-reward / temperature) for reward in rewards]
    return [reward * e / sum(exponents) for reward, e in zip(rewards, exponents, strict=True)]


def pure_advantages(
    rewards: Rows,
    step_tokens: list[list[int]],
    solved: list[float],
    n_samples: int,
    reward_baseline: str,
) -> Rows:
    """Transcribe the advantages of the tokens, for rewards of steps and verifiable rewards.

    CJReinforce/PURE, openrlhf/trainer/ppo_utils/experience_maker.py (``process_experiences`` and
    ``make_experience_list``), commit 41f9363b8cc4af044b7fc5f7f9bbbf62139e9553, with
    ``verifiable_reward_coef`` 1, ``nomask_separator_adv``, and no KL term.

    Args:
        rewards: Differences of probabilities of the steps.
        step_tokens: Tokens of each step. The last token of a step is its separator, or the
            end-of-sequence token, which the code does not count in ``num_tokens_per_step``.
        solved: 1 for a correct answer, else 0.
        n_samples: Completions per prompt, one after the other.
        reward_baseline: ``token`` or ``step``.
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
        average_per_step = sum(sum(weighted[j]) / len(weighted[j]) for j in other_indices) / len(
            other_indices
        )
        for reward, n_tokens in zip(row, step_tokens[i], strict=True):
            position += n_tokens
            baseline = average_per_step
            if reward_baseline == "token":
                baseline = average_per_token * (n_tokens - 1)
            process_reward[position] = reward - baseline
        verifier_baseline = sum(solved[j] - 1 for j in other_indices) / len(other_indices)
        process_reward[-1] += solved[i] - 1 - verifier_baseline
        returns = [sum(process_reward[t:]) for t in range(len(process_reward))]
        result.append(returns)
    return result


@pytest.mark.parametrize("reward_baseline", ["token", "step"])
def test_min_form_advantages_are_pures(reward_baseline: Any) -> None:
    rng = random.Random(1)
    rows = random_steps(1, 12)
    step_tokens = [[rng.randint(2, 5) for _ in row] for row in rows]
    solved = [float(rng.random() < 0.5) for _ in rows]
    expected = pure_advantages(rows, step_tokens, solved, 4, reward_baseline)

    reward, mask = exact(rows)
    group = torch.arange(12) // 4
    counts, _ = advantages.pad_step_rewards(step_tokens)
    step = torch.full((12, 40), -1)
    for index, row_tokens in enumerate(step_tokens):
        ids = [k for k, n_tokens in enumerate(row_tokens) for _ in range(n_tokens)]
        step[index, : len(ids)] = torch.tensor(ids)
    assert torch.equal(advantages.count_step_tokens(step, mask.shape[1]), counts.long())
    step_advantages = advantages.min_form_advantages(
        reward,
        mask,
        counts.double() - 1,  # the code does not count the separators
        group,
        baseline=reward_baseline,
        n_tokens_B=counts.sum(-1),
    )
    outcome = advantages.leave_one_out(torch.tensor(solved, dtype=torch.float64), group)
    result = advantages.broadcast_steps(step_advantages, step)
    result += advantages.broadcast_outcomes(outcome, step >= 0)
    assert_rows(result, step >= 0, expected)


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


def prime_returns(
    token_rewards: Rows, correct: list[float], n_samples: int, gammas: tuple[float, float]
) -> Rows:
    """Transcribe the returns of rewards of tokens and of outcomes.

    PRIME-RL/PRIME, training/verl/trainer/ppo/core_algos.py (``compute_rloo_returns``), commit
    18ad596f08d487bb546d80d738d99ec697bd2e75.
    """
    outcome_rewards = [
        [0.0] * (len(row) - 1) + [outcome]
        for row, outcome in zip(token_rewards, correct, strict=True)
    ]
    masks = ([[1] * len(row) for row in token_rewards], None)
    total = [[0.0] * len(row) for row in token_rewards]
    for rewards, mask, gamma in zip((token_rewards, outcome_rewards), masks, gammas, strict=True):
        for start in range(0, len(rewards), n_samples):
            group = rewards[start : start + n_samples]
            # The mean over the rewarded tokens: all of them, or the last one.
            means = [sum(row) / len(row) if mask else row[-1] for row in group]
            baseline = sum(means) / (n_samples - 1)
            for offset, row in enumerate(group):
                shifted = [
                    reward * (n_samples / (n_samples - 1)) - baseline
                    if mask or t == len(row) - 1
                    else 0.0
                    for t, reward in enumerate(row)
                ]
                discounted = 0.0
                for t in range(len(row) - 1, -1, -1):
                    discounted = shifted[t] + gamma * discounted
                    total[start + offset][t] += discounted
    return total


def masked_whiten(rows: Rows) -> Rows:
    """Transcribe verl's normalization.

    PRIME-RL/PRIME, training/verl/utils/torch_functional.py (``masked_whiten``), commit
    18ad596f08d487bb546d80d738d99ec697bd2e75.
    """
    values = [value for row in rows for value in row]
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    variance *= len(values) / (len(values) - 1)
    return [[(value - mean) / math.sqrt(variance + 1e-8) for value in row] for row in rows]


@pytest.mark.parametrize("gamma", [1.0, 0.95])
def test_implicit_advantages_are_primes(gamma: float) -> None:
    rows = random_steps(2, 8)
    correct = [1.0, 0, 0, 1, 1, 1, 0, 1]
    reward, mask = exact(rows)
    group = torch.arange(8) // 4
    result = advantages.implicit_advantages(
        reward,
        mask,
        group,
        outcome_B=torch.tensor(correct, dtype=torch.float64),
        gamma=gamma,
        baseline="code",
    )
    expected = prime_returns(rows, correct, 4, (gamma, 1.0))
    assert_rows(result, mask, expected)
    assert_rows(advantages.whiten(result, mask), mask, masked_whiten(expected))


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
    result = advantages.implicit_advantages(reward, mask, group)
    assert_rows(result, mask, expected)
    code = advantages.implicit_advantages(reward, mask, group, baseline="code")
    assert torch.allclose(result[:, 0], code[:, 0])  # as the docstring says
    assert not torch.allclose(result, code)


def test_implicit_rewards_are_log_ratios() -> None:
    logp = torch.tensor([[-1.0, -2.0, NAN]], dtype=torch.float64)
    reference = torch.tensor([[-2.0, -1.5, NAN]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False]])
    assert close(advantages.implicit_rewards(logp, reference, mask, beta=0.5), [[0.5, -0.25, 0.0]])


# --- process supervision of GRPO ------------------------------------------------------------------


def deepseek_math_advantages(rewards: Rows, n_samples: int) -> Rows:
    """Compute section 4.1.3 of arXiv 2402.03300, whose authors published no code."""
    result: Rows = []
    for start in range(0, len(rewards), n_samples):
        group = rewards[start : start + n_samples]
        numbers = [reward for row in group for reward in row]
        mean = sum(numbers) / len(numbers)
        std = math.sqrt(sum((number - mean) ** 2 for number in numbers) / (len(numbers) - 1))
        for row in group:
            normalized = [(reward - mean) / (std + 1e-4) for reward in row]
            result.append([sum(normalized[k:]) for k in range(len(row))])
    return result


def test_step_group_advantages_are_those_of_the_paper() -> None:
    rows = random_steps(4, 12, low=0)
    reward, mask = exact(rows)
    result = advantages.step_group_advantages(reward, mask, torch.arange(12) // 4)
    assert_rows(result, mask, deepseek_math_advantages(rows, 4))


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
            advantages.step_group_advantages(reward, mask, group),
            advantages.step_group_advantages(more_reward, more_mask, more_group),
        ),
        (
            advantages.implicit_advantages(reward, mask, group),
            advantages.implicit_advantages(more_reward, more_mask, more_group),
        ),
    ]
    for baseline in ("token", "step"):
        pairs.append(
            (
                advantages.min_form_advantages(reward, mask, n_tokens, group, baseline=baseline),
                advantages.min_form_advantages(
                    more_reward, more_mask, more_tokens, more_group, baseline=baseline
                ),
            )
        )
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
