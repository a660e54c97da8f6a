r"""Advantages from step rewards, for the trainers on the page docs/howto/rl.md.

The functions compute advantages of steps [B, K] and of tokens [B, T] from the step rewards of
``fsdpo_data.rewards.process``.

Name suffixes give the shapes: ``_B`` completions, ``_K`` steps, ``_T`` generated tokens. Padding
may hold any number.

- ``group_B`` has equal numbers for completions of the same prompt, in any order. Baselines are
  means over the other completions of a group. A completion without another one has advantage 0.
- ``mask_BK`` tells which steps exist. A completion without step rewards has none: it counts in no
  baseline, and its advantage is 0. :func:`pad_step_rewards` makes both tensors from lists.
- ``step_BT`` is the index of the step of each token, -1 at padding; see
  :func:`fsdpo_data.engines.step_tokens.find_step_ids`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

TEMPERATURE = 0.1  #: The temperature of the authors of PURE.


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


def reward_to_go(reward_BK: Tensor, mask_BK: Tensor) -> Tensor:
    """Return the sum of the rewards from each step, or token, on, [B, K]."""
    reward_BK = reward_BK.masked_fill(~mask_BK, 0)
    return_BK = reward_BK.flip(-1).cumsum(-1).flip(-1)
    return return_BK.masked_fill(~mask_BK, 0)


def min_form_rewards(
    reward_BK: Tensor, mask_BK: Tensor, *, temperature: float = TEMPERATURE
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
    reward_BK: Tensor, mask_BK: Tensor, n_tokens_BK: Tensor, group_B: Tensor
) -> Tensor:
    r"""Return PURE's step advantages: min-form credit with a leave-one-out baseline, [B, K].

    Cheng et al. 2025 (arXiv 2504.15275), with the baseline per token of their code
    (CJReinforce/PURE, ``experience_maker.py``). The symbol r* is a reward of
    :func:`min_form_rewards`, and N is a number of tokens. The index j runs over the other
    completions of the group:

    .. math::
        A_k = Σ_{l ≥ k} (r*_l − b_l),   b_l = N_l · Σ_j Σ_m r*_{j,m} / Σ_j N_j

    The authors add the advantage of the outcome to all tokens.

    Args:
        reward_BK: Step rewards, in [−1, 1].
        mask_BK: Whether the step exists.
        n_tokens_BK: Tokens of each step; see :func:`count_step_tokens`.
        group_B: Group of each completion.
    """
    reward_BK = min_form_rewards(reward_BK, mask_BK)
    n_tokens_BK = n_tokens_BK.masked_fill(~mask_BK, 0).to(reward_BK.dtype)
    others_BB = (other_completions(group_B) & mask_BK.any(-1)).to(reward_BK.dtype)
    n_other_tokens_B = others_BB @ n_tokens_BK.sum(-1)
    reward_per_token_B = others_BB @ reward_BK.sum(-1) / n_other_tokens_B.clamp_min(1)
    baseline_BK = reward_per_token_B[:, None] * n_tokens_BK
    has_others_B1 = (others_BB.sum(-1) > 0)[:, None]
    return reward_to_go(reward_BK - baseline_BK, mask_BK & has_others_B1)


def token_advantages(reward_BT: Tensor, mask_BT: Tensor, group_B: Tensor) -> Tensor:
    r"""Return the reward to go of tokens over a leave-one-out baseline, [B, T].

    Cui et al. 2025 (PRIME, arXiv 2502.01456), without discount. The index j runs over the other
    completions of the group, and n is the size of the group. The symbol r̄ is the mean reward per
    token of a completion:

    .. math:: A_t = Σ_{s ≥ t} ( r_s − 1/(n−1) · Σ_j r̄_j )

    Args:
        reward_BT: Rewards of the tokens.
        mask_BT: Whether the token was generated.
        group_B: Group of each completion.
    """
    reward_BT = reward_BT.masked_fill(~mask_BT, 0)
    others_BB = other_completions(group_B) & mask_BT.any(-1)
    n_others_B1 = others_BB.sum(-1, keepdim=True)
    mean_B = reward_BT.sum(-1) / mask_BT.sum(-1).clamp_min(1)
    baseline_B1 = (others_BB.to(reward_BT.dtype) @ mean_B)[:, None] / n_others_B1.clamp_min(1)
    return reward_to_go(reward_BT - baseline_B1, mask_BT & (n_others_B1 > 0))


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


def other_completions(group_B: Tensor) -> Tensor:
    """Return whether a completion is another one of the same group, [B, B]."""
    is_self_BB = torch.eye(len(group_B), dtype=torch.bool, device=group_B.device)
    return (group_B[:, None] == group_B[None, :]) & ~is_self_BB
