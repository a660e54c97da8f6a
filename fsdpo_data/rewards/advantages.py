r"""Advantages from outcomes and step rewards, as pure functions of tensors.

Trainers for reinforcement learning weight the gradient of each token by an advantage. The functions
compute advantages of solutions [B], of steps [B, K] and of tokens [B, T], from the rewards of the
reward functions in this folder. Other trainers call them: the training stages of ``fsdpo_train``
have no advantages.

Name suffixes give the shapes: ``_B`` completions, ``_K`` steps, ``_T`` generated tokens. Padding
may hold any number.

- ``group_B`` has equal numbers for completions of the same prompt, in any order. Baselines are
  means over a group. A completion without another one in its group has advantage 0.
- ``mask_BK`` tells which steps exist. A completion without step rewards has none: it counts in no
  baseline, and its advantage is 0. :func:`pad_step_rewards` makes both tensors from lists.
- ``step_BT`` is the index of the step of each token, -1 at padding; see
  :func:`fsdpo_data.engines.step_tokens.find_step_ids`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from fsdpo_data.core.errors import unknown_name_error
from fsdpo_data.core.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

#: TRL's ε, which is added to the standard deviation of a group.
STD_EPSILON = 1e-4
#: The temperature of the authors of PURE.
MIN_FORM_TEMPERATURE = 0.1


def pad_step_rewards(rewards: Sequence[Sequence[float] | None]) -> tuple[Tensor, Tensor]:
    """Return step rewards and their mask, both [B, K], with zeros after the last step.

    Args:
        rewards: One list of step rewards per completion; None for a completion without rewards.
    """
    rows = [list(row or ()) for row in rewards]
    n_steps = max(map(len, rows), default=0)
    reward_BK = torch.zeros(len(rows), n_steps)
    mask_BK = torch.zeros(len(rows), n_steps, dtype=torch.bool)
    for index, row in enumerate(rows):
        reward_BK[index, : len(row)] = torch.tensor(row)
        mask_BK[index, : len(row)] = True
    return reward_BK, mask_BK


def outcome_advantages(
    outcome_B: Tensor, group_B: Tensor, *, scale: bool = True, epsilon: float = STD_EPSILON
) -> Tensor:
    r"""Return the advantages of GRPO with outcome supervision, [B].

    Shao et al. 2024 (arXiv 2402.03300), section 4.1.2. All tokens of a completion have the same
    advantage; :func:`broadcast_outcomes` copies it to them.

    .. math:: A_i = (r_i − mean(r)) / (std(r) + ε)

    Mean and standard deviation are over the group. The standard deviation divides by n − 1, and ε
    is 1e-4, as in TRL.

    Args:
        outcome_B: Outcome rewards; NaN for undecided ones, which count in no baseline and have
            advantage 0.
        group_B: Group of each completion.
        scale: Whether to divide by the standard deviation; Liu et al. 2025 (arXiv 2503.20783) do
            not.
        epsilon: ε.
    """
    is_decided_B = ~outcome_B.isnan()
    same_BB = _same_group(group_B) & is_decided_B
    outcome_B = outcome_B.masked_fill(~is_decided_B, 0)
    n_B = same_BB.sum(-1).clamp_min(1)
    centered_B = outcome_B - same_BB.to(outcome_B.dtype) @ outcome_B / n_B
    if not scale:
        return centered_B.masked_fill(~is_decided_B, 0)
    # Within a group all completions have the same mean.
    variance_B = same_BB.to(outcome_B.dtype) @ centered_B.square() / (n_B - 1).clamp_min(1)
    return (centered_B / (variance_B.sqrt() + epsilon)).masked_fill(~is_decided_B, 0)


def leave_one_out(reward_B: Tensor, group_B: Tensor) -> Tensor:
    r"""Return the rewards minus the mean reward of the others in the group (RLOO), [B].

    Ahmadian et al. 2024 (arXiv 2402.14740).

    .. math:: A_i = r_i − 1/(n − 1) · Σ_{j ≠ i} r_j

    Args:
        reward_B: Rewards; NaN for undecided ones, which count in no baseline and have advantage 0.
        group_B: Group of each completion.
    """
    is_decided_B = ~reward_B.isnan()
    others_BB = _other_completions(group_B) & is_decided_B
    n_others_B = others_BB.sum(-1)
    reward_B = reward_B.masked_fill(~is_decided_B, 0)
    baseline_B = others_BB.to(reward_B.dtype) @ reward_B / n_others_B.clamp_min(1)
    has_baseline_B = is_decided_B & (n_others_B > 0)
    return (reward_B - baseline_B).masked_fill(~has_baseline_B, 0)


def reward_to_go(reward_BK: Tensor, mask_BK: Tensor, *, gamma: float = 1.0) -> Tensor:
    r"""Return the discounted sum of the rewards from each step on, [B, K].

    Sutton and Barto 2018, equation 3.8. The steps may also be tokens.

    .. math:: G_k = Σ_{j ≥ k} γ^{j−k} r_j

    Args:
        reward_BK: Step rewards.
        mask_BK: Whether the step exists.
        gamma: Discount factor γ.
    """
    reward_BK = reward_BK.masked_fill(~mask_BK, 0)
    if gamma == 1:
        return_BK = reward_BK.flip(-1).cumsum(-1).flip(-1)
    else:
        return_BK = torch.zeros_like(reward_BK)
        return_B = torch.zeros_like(reward_BK[:, :0].sum(-1))
        for k in reversed(range(reward_BK.shape[-1])):
            return_B = reward_BK[:, k] + gamma * return_B
            return_BK[:, k] = return_B
    return return_BK.masked_fill(~mask_BK, 0)


def min_form_rewards(
    reward_BK: Tensor, mask_BK: Tensor, *, temperature: float = MIN_FORM_TEMPERATURE
) -> Tensor:
    r"""Return PURE's transformed step rewards, whose sum approximates the minimum, [B, K].

    Cheng et al. 2025 (arXiv 2504.15275). Their rewards are in [−1, 1]: the probability of a right
    step minus the probability of a wrong one. For a probability p this is 2p − 1.

    .. math:: r*_k = softmax(−r / T)_k · r_k,   Σ_k r*_k → min_k r_k  for  T → 0

    Args:
        reward_BK: Step rewards r.
        mask_BK: Whether the step exists.
        temperature: Temperature T, above 0. The authors use 0.1.
    """
    has_steps_B1 = mask_BK.any(-1, keepdim=True)
    # A row without steps would be a softmax of nothing, which is NaN.
    score_BK = (-reward_BK / temperature).masked_fill(~mask_BK & has_steps_B1, -torch.inf)
    weight_BK = score_BK.softmax(-1)
    return (weight_BK * reward_BK).masked_fill(~mask_BK, 0)


def min_form_advantages(
    reward_BK: Tensor,
    mask_BK: Tensor,
    n_tokens_BK: Tensor,
    group_B: Tensor,
    *,
    temperature: float = MIN_FORM_TEMPERATURE,
    baseline: Literal["token", "step"] = "token",
    n_tokens_B: Tensor | None = None,
) -> Tensor:
    r"""Return PURE's step advantages: min-form credit with a leave-one-out baseline, [B, K].

    Cheng et al. 2025 (arXiv 2504.15275), with the baselines of their code (CJReinforce/PURE,
    ``experience_maker.py``). The symbol r* is a reward of :func:`min_form_rewards`, N is a number
    of tokens, and K a number of steps. The index j runs over the other completions of the group:

    .. math::
        A_k = Σ_{l ≥ k} (r*_l − b_l),   b_l = N_l · Σ_j Σ_m r*_{j,m} / Σ_j N_j  (token),
        b_l = mean_j (Σ_m r*_{j,m} / K_j)  (step)

    The authors prefer the baseline per token, because the other one favours few long steps. They
    add the advantage of the outcome to all tokens, which is ``leave_one_out(outcome_B, group_B)``.
    They do not count the separator at the end of a step as a token, and do not train on it.

    Args:
        reward_BK: Step rewards, in [−1, 1].
        mask_BK: Whether the step exists.
        n_tokens_BK: Tokens of each step; see :func:`count_step_tokens`.
        group_B: Group of each completion.
        temperature: Temperature T of the transformed rewards.
        baseline: Kind of the baseline.
        n_tokens_B: Tokens N of the completions; the sum over the steps if None.

    Raises:
        InputError: if there is no such baseline.
    """
    _check_baseline(baseline, ("token", "step"))
    reward_BK = min_form_rewards(reward_BK, mask_BK, temperature=temperature)
    n_tokens_BK = n_tokens_BK.masked_fill(~mask_BK, 0).to(reward_BK.dtype)
    is_scored_B = mask_BK.any(-1)
    others_BB = (_other_completions(group_B) & is_scored_B).to(reward_BK.dtype)
    total_B = reward_BK.sum(-1)
    if baseline == "token":
        n_tokens_B = n_tokens_BK.sum(-1) if n_tokens_B is None else n_tokens_B.to(reward_BK.dtype)
        n_other_tokens_B = others_BB @ n_tokens_B
        reward_per_token_B = others_BB @ total_B / n_other_tokens_B.clamp_min(1)
        baseline_BK = reward_per_token_B[:, None] * n_tokens_BK
    else:
        mean_B = total_B / mask_BK.sum(-1).clamp_min(1)
        baseline_BK = (others_BB @ mean_B / others_BB.sum(-1).clamp_min(1))[:, None]
    has_others_B1 = (others_BB.sum(-1) > 0)[:, None]
    return reward_to_go(reward_BK - baseline_BK, mask_BK & has_others_B1)


def implicit_rewards(
    logp_BT: Tensor, reference_BT: Tensor, mask_BT: Tensor, *, beta: float = 0.05
) -> Tensor:
    r"""Return the implicit process reward of each token, [B, T].

    Yuan et al. 2024 (arXiv 2412.01981), Cui et al. 2025 (PRIME, arXiv 2502.01456).

    .. math:: r_t = β · log( π_φ(y_t | y_{<t}) / π_ref(y_t | y_{<t}) )

    Args:
        logp_BT: Log-probabilities of the generated tokens under the implicit PRM π_φ.
        reference_BT: Log-probabilities under the reference model π_ref.
        mask_BT: Whether the token was generated.
        beta: β. The authors train with 0.05, and their advantages have no factor: β = 1.
    """
    return (beta * (logp_BT - reference_BT)).masked_fill(~mask_BT, 0)


def implicit_advantages(
    reward_BT: Tensor,
    mask_BT: Tensor,
    group_B: Tensor,
    *,
    outcome_B: Tensor | None = None,
    gamma: float = 1.0,
    baseline: Literal["paper", "code"] = "paper",
) -> Tensor:
    r"""Return PRIME's token advantages: reward to go over a leave-one-out baseline, [B, T].

    Cui et al. 2025 (PRIME, arXiv 2502.01456). The index j runs over the other completions of the
    group, and n is the size of the group. The symbol r̄ is the mean reward per token of a
    completion:

    .. math:: A_t = Σ_{s ≥ t} γ^{s−t} ( r_s − 1/(n−1) · Σ_j r̄_j )  +  o − 1/(n−1) · Σ_j o_j

    The authors' code (PRIME-RL/PRIME, ``core_algos.py``) subtracts (r̄_1 + … + r̄_n − r_s)/(n−1)
    instead: it leaves out the reward of the token, and not the mean of its completion. With γ = 1
    both give the first token the same advantage. The code then normalizes; see :func:`whiten`.

    Args:
        reward_BT: Rewards of the tokens, such as :func:`implicit_rewards`.
        mask_BT: Whether the token was generated.
        group_B: Group of each completion.
        outcome_B: Outcome rewards o, for the second part; NaN for undecided ones.
        gamma: Discount factor γ of the rewards of tokens.
        baseline: Whether the baseline is the one of the paper or of the code.

    Raises:
        InputError: if there is no such baseline.
    """
    _check_baseline(baseline, ("paper", "code"))
    reward_BT = reward_BT.masked_fill(~mask_BT, 0)
    has_tokens_B = mask_BT.any(-1)
    others_BB = _other_completions(group_B) & has_tokens_B
    n_others_B1 = others_BB.sum(-1, keepdim=True)
    mean_B = reward_BT.sum(-1) / mask_BT.sum(-1).clamp_min(1)
    baseline_BT = (others_BB.to(reward_BT.dtype) @ mean_B)[:, None]
    if baseline == "code":
        baseline_BT = baseline_BT + mean_B[:, None] - reward_BT
    is_trained_BT = mask_BT & (n_others_B1 > 0)
    advantage_BT = reward_to_go(
        reward_BT - baseline_BT / n_others_B1.clamp_min(1), is_trained_BT, gamma=gamma
    )
    if outcome_B is not None:
        advantage_BT = advantage_BT + leave_one_out(outcome_B, group_B)[:, None]
    return advantage_BT.masked_fill(~mask_BT, 0)


def step_group_advantages(
    reward_BK: Tensor, mask_BK: Tensor, group_B: Tensor, *, epsilon: float = STD_EPSILON
) -> Tensor:
    r"""Return the step advantages of GRPO with process supervision, [B, K].

    Shao et al. 2024 (arXiv 2402.03300), section 4.1.3. R holds the rewards of all steps of all
    completions of the group:

    .. math:: A_k = Σ_{j ≥ k} (r_j − mean(R)) / (std(R) + ε)

    The paper has no ε and no definition of the standard deviation. As in
    :func:`outcome_advantages`, ε is 1e-4, and the standard deviation divides by the number of
    steps − 1.

    Args:
        reward_BK: Step rewards.
        mask_BK: Whether the step exists.
        group_B: Group of each completion.
        epsilon: ε.
    """
    reward_BK = reward_BK.masked_fill(~mask_BK, 0)
    same_BB = _same_group(group_B).to(reward_BK.dtype)
    n_steps_B = same_BB @ mask_BK.sum(-1).to(reward_BK.dtype)
    mean_B = same_BB @ reward_BK.sum(-1) / n_steps_B.clamp_min(1)
    centered_BK = (reward_BK - mean_B[:, None]).masked_fill(~mask_BK, 0)
    variance_B = same_BB @ centered_BK.square().sum(-1) / (n_steps_B - 1).clamp_min(1)
    normalized_BK = centered_BK / (variance_B.sqrt() + epsilon)[:, None]
    return reward_to_go(normalized_BK, mask_BK)


def whiten(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the values with mean 0 and variance 1 over all generated tokens, [B, T].

    As in verl and PRIME, the variance divides by the number of tokens − 1, plus 1e-8.
    """
    value_N = value_BT[mask_BT]
    if value_N.numel() < 2:
        return torch.zeros_like(value_BT)
    whitened_BT = (value_BT - value_N.mean()) * (value_N.var() + 1e-8).rsqrt()
    return whitened_BT.masked_fill(~mask_BT, 0)


def broadcast_outcomes(advantage_B: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the advantage of the completion at each of its tokens, 0 at padding, [B, T]."""
    return advantage_B[:, None].expand(mask_BT.shape).masked_fill(~mask_BT, 0)


def broadcast_steps(advantage_BK: Tensor, step_BT: Tensor) -> Tensor:
    """Return the advantage of the step at each of its tokens, 0 at padding, [B, T]."""
    if not advantage_BK.shape[-1]:
        return torch.zeros(step_BT.shape, dtype=advantage_BK.dtype, device=step_BT.device)
    # A completion without step rewards has fewer columns than steps.
    is_known_BT = (step_BT >= 0) & (step_BT < advantage_BK.shape[-1])
    token_BT = advantage_BK.gather(1, step_BT.masked_fill(~is_known_BT, 0))
    return token_BT.masked_fill(~is_known_BT, 0)


def scatter_to_last_tokens(reward_BK: Tensor, mask_BK: Tensor, step_BT: Tensor) -> Tensor:
    """Return the reward of each step at its last token, 0 at all others, [B, T].

    Trainers with rewards of tokens read them in this form, such as verl. A step without a token of
    its own adds its reward to the token before it.
    """
    step_K = torch.arange(reward_BK.shape[-1], device=step_BT.device)
    is_within_BKT = (step_BT[:, None, :] >= 0) & (step_BT[:, None, :] <= step_K[:, None])
    last_BK = (is_within_BKT.sum(-1) - 1).clamp_min(0)
    token_BT = torch.zeros(step_BT.shape, dtype=reward_BK.dtype, device=step_BT.device)
    return token_BT.scatter_add(1, last_BK, reward_BK.masked_fill(~mask_BK, 0))


def count_step_tokens(step_BT: Tensor, n_steps: int) -> Tensor:
    """Return the number of tokens of each step, [B, K] with ``n_steps`` columns."""
    step_K = torch.arange(n_steps, device=step_BT.device)
    return (step_BT[:, None, :] == step_K[:, None]).sum(-1)


def _check_baseline(baseline: str, names: Sequence[str]) -> None:
    """Raise an InputError if the name of a baseline is unknown."""
    if baseline not in names:
        raise unknown_name_error("baseline", baseline, names)


def _same_group(group_B: Tensor) -> Tensor:
    """Return whether two completions are in the same group, [B, B]."""
    return group_B[:, None] == group_B[None, :]


def _other_completions(group_B: Tensor) -> Tensor:
    """Return whether a completion is another one of the same group, [B, B]."""
    is_self_BB = torch.eye(len(group_B), dtype=torch.bool, device=group_B.device)
    return _same_group(group_B) & ~is_self_BB
