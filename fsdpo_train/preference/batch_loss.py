r"""The preference loss of a batch of solutions, with its metrics.

A pair is two indices into the solutions of the batch. A solution is computed once, however many
pairs contain it, so the T² pairs of a prompt cost 2T forward passes. The gradient has one
coefficient c_i per solution and side:

.. math:: ∇L = Σ_i c_i ∇F_i

- F_i is the sum of the solution's log-probabilities, weighted as the chosen or as the rejected one.
- c_i is the mean over all P pairs of ∂L_p/∂F_i. For losses with weights, a pair of margin m_p
  adds −β·σ(−m_p)/P to the c_i of its chosen solution, and β·σ(−m_p)/P to its rejected one.

No line computes the c_i. The indices ``chosen_P`` and ``rejected_P`` repeat F_i for each pair of a
solution. The backward pass of this indexing adds the terms of its pairs.

Name suffixes give the shapes: ``_S`` solutions, ``_T`` tokens, ``_K`` steps, ``_P`` pairs.
"""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from fsdpo_train.losses.preference_losses import (
    PairLogprobs,
    PreferenceSpec,
    SolutionBatch,
    StepWeights,
)


def preference_loss(
    logp_ST: Tensor, solutions: SolutionBatch, spec: PreferenceSpec
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the mean loss over pairs, and metrics for the log.

    The value of a loss with weights is the mean of −log σ(r̂_w − r̂_l).

    Args:
        logp_ST: Log-probabilities of the tokens under the policy. Padding may hold any finite
            number.
        solutions: The other tensors of the same solutions, and their pairs.
        spec: The loss with its β and γ.

    Returns:
        A scalar, and these detached scalars:

        - ``rewards/chosen``, ``rewards/rejected``, ``rewards/margins``: mean implicit rewards.
        - ``rewards/accuracies``: fraction of pairs with a positive margin. A tie counts half.
        - ``kl``: KL divergence from the reference to the policy, in nats per solution. The estimate
          assumes that the solutions are samples of the reference. NaN without a reference.
        - ``alpha_entropy``: entropy of the step weights, 1 if they are uniform, and 0 if one step
          has all the weight. NaN if every solution has a single step, or the loss gives no weights
          to steps by their rewards.
    """
    chosen_P = solutions.chosen_P
    rejected_P = solutions.rejected_P
    mask_ST = solutions.step_ST >= 0
    logp_ST = logp_ST.masked_fill(~mask_ST, 0)
    ratio_ST = (logp_ST - solutions.reference_ST).masked_fill(~mask_ST, 0)
    ratio_S = ratio_ST.detach().sum(-1)
    implicit_reward_S = spec.beta * ratio_S
    margin_P = implicit_reward_S[chosen_P] - implicit_reward_S[rejected_P]
    loss = spec.preference_loss
    if loss.pair_loss is not None:
        pairs = _pair_logprobs(logp_ST, ratio_ST, solutions)
        value = loss.pair_loss(pairs, spec).mean()
    else:
        chosen_weight_ST = _token_weights(ratio_ST.detach(), solutions, spec, sign=1)
        rejected_weight_ST = _token_weights(ratio_ST.detach(), solutions, spec, sign=-1)
        chosen_logp_S = (chosen_weight_ST * logp_ST).sum(-1)
        rejected_logp_S = (rejected_weight_ST * logp_ST).sum(-1)
        weighted_margin_P = chosen_logp_S[chosen_P] - rejected_logp_S[rejected_P]
        surrogate = -spec.beta * (torch.sigmoid(-margin_P) * weighted_margin_P).mean()
        # The surrogate adds its gradient and cancels in the value.
        value = -logsigmoid(margin_P).mean() + (surrogate - surrogate.detach())
    not_available = margin_P.new_tensor(torch.nan)
    metrics = {
        "rewards/chosen": implicit_reward_S[chosen_P].mean(),
        "rewards/rejected": implicit_reward_S[rejected_P].mean(),
        "rewards/margins": margin_P.mean(),
        "rewards/accuracies": ((margin_P > 0) + 0.5 * (margin_P == 0)).float().mean(),
        "kl": -ratio_S.mean() if loss.uses_reference else not_available,
        "alpha_entropy": (
            _alpha_entropy(solutions, loss.step_weights, spec.gamma)
            if loss.step_weights is not None and loss.uses_rewards
            else not_available
        ),
    }
    return value, metrics


def _pair_logprobs(logp_ST: Tensor, ratio_ST: Tensor, solutions: SolutionBatch) -> PairLogprobs:
    """Return the sums of each pair. The sums of a solution are computed once for all its pairs."""
    logp_S = logp_ST.sum(-1)
    # Sums of token ratios round less than the difference of two large sums.
    ratio_S = ratio_ST.sum(-1)
    n_tokens_S = (solutions.step_ST >= 0).sum(-1)
    chosen_P = solutions.chosen_P
    rejected_P = solutions.rejected_P
    return PairLogprobs(
        chosen_P=logp_S[chosen_P],
        rejected_P=logp_S[rejected_P],
        chosen_ratio_P=ratio_S[chosen_P],
        rejected_ratio_P=ratio_S[rejected_P],
        chosen_tokens_P=n_tokens_S[chosen_P],
        rejected_tokens_P=n_tokens_S[rejected_P],
    )


def _token_weights(
    ratio_ST: Tensor, solutions: SolutionBatch, spec: PreferenceSpec, *, sign: int
) -> Tensor:
    """Return the weight w of each token, shape [S, T], zero at padding.

    Args:
        ratio_ST: log π − log π_ref of each token, without gradient.
        solutions: The solutions, with their step rewards.
        spec: The loss with its β and γ.
        sign: 1 for the weights of chosen solutions, -1 for the weights of rejected solutions.
    """
    loss = spec.preference_loss
    if loss.token_weights is not None:
        weight_ST = loss.token_weights(solutions, ratio_ST, spec, sign)
    else:
        assert loss.step_weights is not None  # a PreferenceLoss has one form
        weight_SK = loss.step_weights(*solutions.masked_rewards(), spec.gamma, sign)
        weight_ST = weight_SK.to(ratio_ST.dtype).gather(1, solutions.step_ST.clamp_min(0))
    return weight_ST.masked_fill(solutions.step_ST < 0, 0)


def _alpha_entropy(solutions: SolutionBatch, weigh_steps: StepWeights, gamma: float) -> Tensor:
    """Return the mean relative entropy of the step weights over chosen and rejected solutions.

    The weights of a solution are divided by their sum.
    """
    reward_SK, mask_SK = solutions.masked_rewards()
    chosen_S = solutions.chosen_P.unique()
    rejected_S = solutions.rejected_P.unique()
    chosen_SK = weigh_steps(reward_SK[chosen_S], mask_SK[chosen_S], gamma, 1)
    rejected_SK = weigh_steps(reward_SK[rejected_S], mask_SK[rejected_S], gamma, -1)
    weight_SK = torch.cat((chosen_SK, rejected_SK))
    solution_S = torch.cat((chosen_S, rejected_S))
    return _relative_entropy(weight_SK / weight_SK.sum(-1, keepdim=True), mask_SK[solution_S])


def _relative_entropy(alpha_SK: Tensor, mask_SK: Tensor) -> Tensor:
    """Return the mean entropy of the rows, each divided by the entropy of uniform weights.

    Rows with a single step are skipped, because their entropy is always zero.
    """
    entropy_S = torch.special.entr(alpha_SK).sum(-1)
    max_entropy_S = mask_SK.sum(-1).to(alpha_SK.dtype).log()
    return (entropy_S / max_entropy_S)[max_entropy_S > 0].mean()
