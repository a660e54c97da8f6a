r"""Losses as pure functions of tensors.

Suffixes: ``_B`` or ``_S`` solutions, ``_T`` tokens, ``_K`` steps, ``_P`` pairs. A pair is two
indices into the solutions, so T² pairs of a problem cost 2T solutions.

The gradient of each preference loss is that of −β·E[σ(r̂_l − r̂_w)·(F_w − F_l)], where r̂ is the
implicit reward of the whole solution (never weighted, held constant) and F = Σ_t w_t log π_t; they
differ in the weights w:

=====================  ==========================================================================
``dpo``                w = 1: the gradient of −log σ(r̂_w − r̂_l) (Rafailov et al. 2023)
``step-dpo``           the same on solutions that end with the first step in which the sides
                       differ; the shared steps before it cancel (Lai et al. 2024)
``full-step``          w = α of the token's step, α = softmax over the K steps of ±γ·reward (the
                       paper's step-wise DPO loss)
``full-step-scaled``   w = K·α, whose limit γ → 0 is DPO itself; that of ``full-step`` is DPO's
                       gradient divided by K of either side
``public-code``            public code that presents itself as the paper's: softmax over *tokens*, the
                       end-of-sequence token left out, times σ(∓(log π − log π_ref)) of the token,
                       and no β in front
=====================  ==========================================================================
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from fsdpo_train.config import REWARD_FREE_LOSSES, PreferenceSpec


@dataclass(frozen=True, slots=True)
class SolutionBatch:
    """Different solutions, padded to one shape; what the losses read besides log-probabilities."""

    reference_ST: Tensor  #: Log-probabilities of the reference policy; anything at padding.
    step_ST: Tensor  #: Step of each token, -1 at padding.
    is_eos_ST: Tensor  #: Whether the token is the end-of-sequence token.
    reward_SK: Tensor  #: Step rewards; anything where there is no step.


def preference_loss(
    logp_ST: Tensor,
    solutions: SolutionBatch,
    chosen_P: Tensor,
    rejected_P: Tensor,
    spec: PreferenceSpec,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss over pairs, and what to log about it.

    ``logp_ST`` are log-probabilities of the policy; finite, and anything at padding. A pair is a
    place in ``chosen_P`` and ``rejected_P``, which index the solutions.

    Returns:
        A scalar whose value is the mean of −log σ(r̂_w − r̂_l) and whose gradient is that of the
        loss asked for, and detached metrics: ``rewards/chosen``, ``rewards/rejected``,
        ``rewards/margins``, ``rewards/accuracies`` (ties count half), ``kl`` (nats per solution
        from the reference to the policy, estimated on these samples of the reference) and
        ``alpha_entropy`` (of the step weights, 1 where they are uniform; NaN with single steps).
    """
    mask_ST = solutions.step_ST >= 0
    logp_ST = logp_ST.masked_fill(~mask_ST, 0)
    ratio_ST = (logp_ST.detach() - solutions.reference_ST).masked_fill(~mask_ST, 0)
    reward_S = spec.beta * ratio_ST.sum(-1)
    margin_P = reward_S[chosen_P] - reward_S[rejected_P]
    up_ST, down_ST = (_token_weights(ratio_ST, solutions, spec, sign) for sign in (1, -1))
    gain_P = (up_ST * logp_ST).sum(-1)[chosen_P] - (down_ST * logp_ST).sum(-1)[rejected_P]
    scale = 1.0 if spec.loss == "public-code" else spec.beta
    surrogate = -scale * (torch.sigmoid(-margin_P) * gain_P).mean()
    value = -logsigmoid(margin_P).mean()
    metrics = {
        "rewards/chosen": reward_S[chosen_P].mean(),
        "rewards/rejected": reward_S[rejected_P].mean(),
        "rewards/margins": margin_P.mean(),
        "rewards/accuracies": ((margin_P > 0) + 0.5 * (margin_P == 0)).float().mean(),
        "kl": -ratio_ST.sum(-1).mean(),
        "alpha_entropy": _entropy(step_weights(*_rewards(solutions), spec.gamma, 1)),
    }
    return value + (surrogate - surrogate.detach()), metrics


def step_weights(reward_SK: Tensor, mask_SK: Tensor, gamma: float, sign: int) -> Tensor:
    """Softmax over the steps of ±γ·reward (the paper's α), shape [S, K].

    ``mask_SK`` says whether there is such a step, ``sign`` is 1 for a preferred solution and -1 for
    a dispreferred one; γ = ∞ puts all weight on the best (worst) step.

    Rows sum to one; where there is no step they are zero.
    """
    score_SK = (sign * reward_SK).masked_fill(~mask_SK, -torch.inf)
    if gamma == float("inf"):
        best_SK = score_SK == score_SK.amax(-1, keepdim=True)
        return best_SK.to(reward_SK.dtype) / best_SK.sum(-1, keepdim=True)
    # Where there is no step 0·(-inf) would be NaN, so the mask comes after γ.
    return (gamma * sign * reward_SK).masked_fill(~mask_SK, -torch.inf).softmax(-1)


def _token_weights(
    ratio_ST: Tensor, solutions: SolutionBatch, spec: PreferenceSpec, sign: int
) -> Tensor:
    """Return the weight of each token on one side of a pair, zero at padding."""
    mask_ST = solutions.step_ST >= 0
    if spec.loss in REWARD_FREE_LOSSES:
        return mask_ST.to(ratio_ST.dtype)
    reward_SK, mask_SK = _rewards(solutions)
    at_ST = solutions.step_ST.clamp_min(0)
    if spec.loss == "public-code":
        trained_ST = mask_ST & ~solutions.is_eos_ST
        reward_ST = reward_SK.gather(1, at_ST)
        weight_ST = step_weights(reward_ST, trained_ST, spec.gamma, sign)
        return (weight_ST * torch.sigmoid(-sign * ratio_ST)).masked_fill(~trained_ST, 0)
    alpha_SK = step_weights(reward_SK, mask_SK, spec.gamma, sign)
    if spec.loss == "full-step-scaled":
        alpha_SK = alpha_SK * mask_SK.sum(-1, keepdim=True)
    return alpha_SK.to(ratio_ST.dtype).gather(1, at_ST).masked_fill(~mask_ST, 0)


def _rewards(solutions: SolutionBatch) -> tuple[Tensor, Tensor]:
    """Return the rewards, zero where there is no step, and the mask of the steps."""
    n_steps_S = solutions.step_ST.amax(-1) + 1
    steps_K = torch.arange(solutions.reward_SK.shape[1], device=n_steps_S.device)
    mask_SK = steps_K < n_steps_S[:, None]
    return solutions.reward_SK.masked_fill(~mask_SK, 0), mask_SK


def _entropy(alpha_SK: Tensor) -> Tensor:
    """Return the mean entropy of the rows over that of uniform weights; one step has none."""
    entropy_S = torch.special.entr(alpha_SK).sum(-1)
    most_S = (alpha_SK > 0).sum(-1).log()
    return (entropy_S / most_S)[most_S > 0].mean()
