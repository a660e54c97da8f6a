r"""Preference losses as pure functions of tensors.

Name suffixes give the shapes: ``_S`` solutions, ``_T`` tokens, ``_K`` steps, ``_P`` pairs. A pair
is two indices into the solutions. The T² pairs of a problem therefore cost 2T forward passes.

All losses share one gradient (section 3.2 of the paper):

.. math:: ∇L = −β · E[ σ(r̂_l − r̂_w) · ( Σ_t w_t ∇log π_t(y_w) − Σ_t w_t ∇log π_t(y_l) ) ]

Here, r̂ = β Σ_t log(π_t / π_ref,t) is the implicit reward over all tokens of a solution, without
weights and without gradient. The losses differ in the token weights w:

=====================  ==========================================================================
``dpo``                w = 1. This is the gradient of −log σ(r̂_w − r̂_l) (Rafailov et al. 2023).
``step-dpo``           w = 1. Both solutions end with the first step in which they differ. The
                       shared steps before it cancel (Lai et al. 2024).
``full-step``          w = α of the token's step: the step-wise DPO loss of the paper.
``full-step-scaled``   w = K·α, with K the number of steps. It equals DPO for γ → 0, while
                       ``full-step`` gives DPO's gradient with each side divided by its K.
``public-code``        The loss of public code that is presented as the paper's. The softmax runs
                       over *tokens* without the end-of-sequence token. The weight is multiplied by
                       σ(∓(log π − log π_ref)) of the token, and the factor β is missing.
=====================  ==========================================================================
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from fsdpo_train.config import REWARD_FREE_LOSSES, PreferenceSpec


@dataclass(frozen=True, slots=True)
class SolutionBatch:
    """The different solutions of a batch, padded to one shape."""

    #: Log-probabilities of the tokens under the reference policy. Padding may hold any number.
    reference_ST: Tensor
    step_ST: Tensor  #: Step index of each token, -1 at padding.
    is_eos_ST: Tensor  #: Whether the token is the end-of-sequence token.
    reward_SK: Tensor  #: Step rewards. Entries without a step may hold any number.


def preference_loss(
    logp_ST: Tensor,
    solutions: SolutionBatch,
    chosen_P: Tensor,
    rejected_P: Tensor,
    spec: PreferenceSpec,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the mean loss over pairs, and metrics for the log.

    The value of the loss is always the mean of −log σ(r̂_w − r̂_l). Its gradient is the gradient of
    ``spec.loss``, see the table at the top of this module.

    Args:
        logp_ST: Log-probabilities of the tokens under the policy. Padding may hold any finite
            number.
        solutions: The other tensors of the same solutions.
        chosen_P: Index of the chosen solution of each pair.
        rejected_P: Index of the rejected solution of each pair.
        spec: The loss with its β and γ.

    Returns:
        A scalar, and these detached scalars:

        - ``rewards/chosen``, ``rewards/rejected``, ``rewards/margins``: mean implicit rewards.
        - ``rewards/accuracies``: fraction of pairs with a positive margin. A tie counts half.
        - ``kl``: KL divergence from the reference to the policy, in nats per solution. The estimate
          assumes that the solutions are samples of the reference.
        - ``alpha_entropy``: entropy of the step weights, 1 if they are uniform. NaN if every
          solution has a single step.
    """
    mask_ST = solutions.step_ST >= 0
    logp_ST = logp_ST.masked_fill(~mask_ST, 0)
    ratio_ST = (logp_ST.detach() - solutions.reference_ST).masked_fill(~mask_ST, 0)
    implicit_reward_S = spec.beta * ratio_ST.sum(-1)
    margin_P = implicit_reward_S[chosen_P] - implicit_reward_S[rejected_P]

    chosen_weight_ST = _token_weights(ratio_ST, solutions, spec, sign=1)
    rejected_weight_ST = _token_weights(ratio_ST, solutions, spec, sign=-1)
    chosen_logp_S = (chosen_weight_ST * logp_ST).sum(-1)
    rejected_logp_S = (rejected_weight_ST * logp_ST).sum(-1)
    weighted_margin_P = chosen_logp_S[chosen_P] - rejected_logp_S[rejected_P]
    scale = 1.0 if spec.loss == "public-code" else spec.beta
    surrogate = -scale * (torch.sigmoid(-margin_P) * weighted_margin_P).mean()

    loss = -logsigmoid(margin_P).mean()
    reward_SK, mask_SK = _masked_rewards(solutions)
    metrics = {
        "rewards/chosen": implicit_reward_S[chosen_P].mean(),
        "rewards/rejected": implicit_reward_S[rejected_P].mean(),
        "rewards/margins": margin_P.mean(),
        "rewards/accuracies": ((margin_P > 0) + 0.5 * (margin_P == 0)).float().mean(),
        "kl": -ratio_ST.sum(-1).mean(),
        "alpha_entropy": _relative_entropy(step_weights(reward_SK, mask_SK, spec.gamma, sign=1)),
    }
    # The surrogate adds its gradient and cancels in the value.
    return loss + (surrogate - surrogate.detach()), metrics


def step_weights(reward_SK: Tensor, mask_SK: Tensor, gamma: float, sign: int) -> Tensor:
    """Return the step weights α of section 3.2 of the paper, shape [S, K].

    .. math:: α_i = exp(±γ r_i) / Σ_j exp(±γ r_j)

    Each row sums to one. Entries without a step are zero.

    Args:
        reward_SK: Step rewards r.
        mask_SK: Whether the step exists.
        gamma: Inverse temperature γ. With γ = ∞ the best (worst) step gets all the weight.
        sign: 1 for a chosen solution, -1 for a rejected solution.
    """
    score_SK = (sign * reward_SK).masked_fill(~mask_SK, -torch.inf)
    if gamma == float("inf"):
        is_best_SK = score_SK == score_SK.amax(-1, keepdim=True)
        return is_best_SK.to(reward_SK.dtype) / is_best_SK.sum(-1, keepdim=True)
    # The mask comes after γ, because γ = 0 times −∞ would be NaN.
    return (gamma * sign * reward_SK).masked_fill(~mask_SK, -torch.inf).softmax(-1)


def _token_weights(
    ratio_ST: Tensor, solutions: SolutionBatch, spec: PreferenceSpec, *, sign: int
) -> Tensor:
    """Return the weight w of each token, shape [S, T], zero at padding.

    Args:
        ratio_ST: log π − log π_ref of each token, without gradient.
        solutions: The solutions, with their step rewards.
        spec: The loss and its γ.
        sign: 1 for the weights of chosen solutions, -1 for the weights of rejected solutions.
    """
    mask_ST = solutions.step_ST >= 0
    if spec.loss in REWARD_FREE_LOSSES:
        return mask_ST.to(ratio_ST.dtype)
    reward_SK, mask_SK = _masked_rewards(solutions)
    step_index_ST = solutions.step_ST.clamp_min(0)
    if spec.loss == "public-code":
        trained_ST = mask_ST & ~solutions.is_eos_ST
        reward_ST = reward_SK.gather(1, step_index_ST)
        weight_ST = step_weights(reward_ST, trained_ST, spec.gamma, sign)
        return (weight_ST * torch.sigmoid(-sign * ratio_ST)).masked_fill(~trained_ST, 0)
    alpha_SK = step_weights(reward_SK, mask_SK, spec.gamma, sign)
    if spec.loss == "full-step-scaled":
        alpha_SK = alpha_SK * mask_SK.sum(-1, keepdim=True)
    return alpha_SK.to(ratio_ST.dtype).gather(1, step_index_ST).masked_fill(~mask_ST, 0)


def _masked_rewards(solutions: SolutionBatch) -> tuple[Tensor, Tensor]:
    """Return the step rewards (zero without a step) and the mask of the steps, both [S, K]."""
    n_steps_S = solutions.step_ST.amax(-1) + 1
    step_K = torch.arange(solutions.reward_SK.shape[1], device=n_steps_S.device)
    mask_SK = step_K < n_steps_S[:, None]
    return solutions.reward_SK.masked_fill(~mask_SK, 0), mask_SK


def _relative_entropy(alpha_SK: Tensor) -> Tensor:
    """Return the mean entropy of the rows, each divided by the entropy of uniform weights.

    Rows with a single step are skipped, because their entropy is always zero.
    """
    entropy_S = torch.special.entr(alpha_SK).sum(-1)
    max_entropy_S = (alpha_SK > 0).sum(-1).log()
    return (entropy_S / max_entropy_S)[max_entropy_S > 0].mean()
