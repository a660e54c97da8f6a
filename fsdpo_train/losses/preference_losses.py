r"""Preference losses: one entry per loss, with everything that training asks about the loss.

Name suffixes give the shapes: ``_S`` solutions, ``_T`` tokens, ``_K`` steps, ``_P`` pairs.

A loss has one of three forms:

- Step weights w. The gradient is the one of the paper (section 3.2), with the weight of its step
  for each token:

  .. math:: ∇L = −β · E[ σ(r̂_l − r̂_w) · ( Σ_t w_t ∇log π_t(y_w) − Σ_t w_t ∇log π_t(y_l) ) ]

  Here, r̂ = β Σ_t log(π_t / π_ref,t) is the implicit reward over all tokens of a solution, without
  weights and without gradient.
- Token weights w, with the same gradient.
- A function of the log-probabilities of the two solutions of a pair, with its own gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import torch
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.registry import Registry
from fsdpo_data.steps.rewards import DEFAULT_GAMMA
from fsdpo_train.losses.loss_options import check_loss_options

if TYPE_CHECKING:
    from torch import Tensor


class SolutionBatch(NamedTuple):
    """The different solutions of a batch as tensors of one shape, and the pairs between them."""

    #: Log-probabilities of the tokens under the reference policy. Padding may hold any number.
    reference_ST: Tensor
    step_ST: Tensor  #: Step index of each token, -1 at padding.
    is_eos_ST: Tensor  #: Whether the token is the end-of-sequence token.
    reward_SK: Tensor  #: Step rewards. Entries without a step may hold any number.
    chosen_P: Tensor  #: Index of the chosen solution of each pair.
    rejected_P: Tensor  #: Index of the rejected solution of each pair.

    def masked_rewards(self) -> tuple[Tensor, Tensor]:
        """Return the step rewards (zero without a step) and the mask of the steps, both [S, K]."""
        n_steps_S = self.step_ST.amax(-1) + 1
        step_K = torch.arange(self.reward_SK.shape[1], device=n_steps_S.device)
        mask_SK = step_K < n_steps_S[:, None]
        return self.reward_SK.masked_fill(~mask_SK, 0), mask_SK


@dataclass(frozen=True, slots=True)
class PairLogprobs:
    """Log-probabilities of the two solutions of each pair, as sums over tokens."""

    chosen_P: Tensor  #: log π of the chosen solution.
    rejected_P: Tensor  #: log π of the rejected solution.
    chosen_ratio_P: Tensor  #: log π/π_ref of the chosen solution; log π for reference-free losses.
    rejected_ratio_P: Tensor  #: The same for the rejected solution.
    chosen_tokens_P: Tensor  #: Number of tokens of the chosen solution.
    rejected_tokens_P: Tensor  #: Number of tokens of the rejected solution.

    @property
    def ratio_difference_P(self) -> Tensor:
        """Log π/π_ref of the chosen minus log π/π_ref of the rejected solution."""
        return self.chosen_ratio_P - self.rejected_ratio_P


#: Function of (step rewards [S, K], mask of the steps, γ, sign). The sign is 1 for the weights of
#: chosen solutions and -1 for the weights of rejected ones. It returns weights [S, K].
StepWeights = Callable[["Tensor", "Tensor", float, int], "Tensor"]
#: Function of (solutions, log π/π_ref of the tokens [S, T], options, sign). It returns weights
#: [S, T]; the weights of padding may be any number.
TokenWeights = Callable[[SolutionBatch, "Tensor", "PreferenceSpec", int], "Tensor"]
#: Function of (log-probabilities of the pairs, options). It returns the loss of each pair, [P].
PairLoss = Callable[[PairLogprobs, "PreferenceSpec"], "Tensor"]


@dataclass(frozen=True)
class PreferenceLoss:
    """A preference loss, with one of ``step_weights``, ``token_weights`` and ``pair_loss``.

    Raises:
        InputError: if the loss has several forms, or none.
    """

    name: str  #: The name on the command line.
    summary: str  #: One sentence about the loss, for ``--help``.
    source: str  #: The paper, with its section or equation.
    options: tuple[str, ...] = ("beta",)  #: Names of the options that the loss reads.
    uses_rewards: bool = False  #: Whether pairs need step rewards.
    uses_reference: bool = True  #: Whether the loss needs log-probabilities of the reference.
    #: Whether both solutions of a pair end with the first step in which they differ, without an
    #: end-of-sequence token.
    ends_at_first_difference: bool = False
    step_weights: StepWeights | None = None  #: Weights of the steps; None for other forms.
    token_weights: TokenWeights | None = None  #: Weights of the tokens; None for other forms.
    pair_loss: PairLoss | None = None  #: Loss of each pair; None for other forms.

    def __post_init__(self) -> None:
        forms = (self.step_weights, self.token_weights, self.pair_loss)
        if sum(form is not None for form in forms) != 1:
            raise InputError(
                "expected exactly one of step_weights, token_weights and pair_loss.",
                field="PreferenceLoss",
                value=self.name,
            )

    @property
    def needs_steps(self) -> bool:
        """Whether the solutions of a pair must be split into steps."""
        return self.pair_loss is None or self.uses_rewards or self.ends_at_first_difference

    @property
    def description(self) -> str:
        """The text about the loss in ``--help``."""
        flags = (f"--{option}" for option in self.options)
        options = " and ".join(flags)
        rewards = "" if self.uses_rewards else "; needs no step rewards"
        return f"{self.summary} ({self.source}; reads {options}{rewards})"


#: The preference losses by name. A module that ``--plugin`` names registers further losses.
PREFERENCE_LOSSES = Registry("preference loss", PreferenceLoss, "fsdpo.losses")


class PreferenceSpec(Options):
    """The preference loss with its parameters β and γ."""

    loss: Annotated[str, Option(choices=PREFERENCE_LOSSES)] = "full-step"
    """Name of the loss."""
    beta: Annotated[float, Field(gt=0)] = 0.05
    """Strength β of the pull towards the reference policy."""
    gamma: Annotated[float, Field(ge=0, allow_inf_nan=True)] = DEFAULT_GAMMA
    """Inverse temperature γ of the step weights. 0 gives all steps equal weights. Larger values
    shift weight to the best steps of chosen solutions and the worst steps of rejected solutions.
    ``inf`` keeps only the best or worst step.
    """

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        super().model_post_init(context)
        check_loss_options(self, self.preference_loss.name, PREFERENCE_LOSSES)

    @property
    def preference_loss(self) -> PreferenceLoss:
        """The registered loss."""
        return PREFERENCE_LOSSES.find(self.loss, field="loss")


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


def scaled_step_weights(reward_SK: Tensor, mask_SK: Tensor, gamma: float, sign: int) -> Tensor:
    """Return K·α, with α of :func:`step_weights` and K the number of steps of the solution."""
    return step_weights(reward_SK, mask_SK, gamma, sign) * mask_SK.sum(-1, keepdim=True)


def public_code_weights(
    solutions: SolutionBatch, ratio_ST: Tensor, spec: PreferenceSpec, sign: int
) -> Tensor:
    """Return the token weights of public code that is presented as the paper's.

    The softmax runs over *tokens* without the end-of-sequence token. The weight is multiplied by
    σ(∓log π/π_ref) of the token, and the factor β is missing.
    """
    reward_SK, _ = solutions.masked_rewards()
    reward_ST = reward_SK.gather(1, solutions.step_ST.clamp_min(0))
    is_trained_ST = (solutions.step_ST >= 0) & ~solutions.is_eos_ST
    weight_ST = step_weights(reward_ST, is_trained_ST, spec.gamma, sign)
    weight_ST = (weight_ST * torch.sigmoid(-sign * ratio_ST)).masked_fill(~is_trained_ST, 0)
    return weight_ST / spec.beta  # cancels the factor β of the gradient


def dpo_pair_loss(pairs: PairLogprobs, spec: PreferenceSpec) -> Tensor:
    """Return −log σ(r̂_w − r̂_l) of each pair (equation 7 of Rafailov et al. 2023)."""
    return -torch.nn.functional.logsigmoid(spec.beta * pairs.ratio_difference_P)


def ipo_pair_loss(pairs: PairLogprobs, spec: PreferenceSpec) -> Tensor:
    """Return (h − 1 / 2τ)² of each pair (equation 17 of Azar et al. 2024), with β as τ.

    As in the paper, h = log π/π_ref(y_w) − log π/π_ref(y_l) sums over the tokens of a solution.
    TRL divides both sums by the number of tokens.
    """
    return (pairs.ratio_difference_P - 1 / (2 * spec.beta)).square()


PREFERENCE_LOSSES.register(
    PreferenceLoss(
        name="full-step",
        summary="Step-wise DPO, which weights each step by its reward",
        source="Full-Step-DPO, section 3.2",
        options=("beta", "gamma"),
        uses_rewards=True,
        step_weights=step_weights,
    )
)
PREFERENCE_LOSSES.register(
    PreferenceLoss(
        name="full-step-scaled",
        summary="The same weights times the number of steps, so that γ = 0 gives DPO",
        source="Full-Step-DPO, section 3.2",
        options=("beta", "gamma"),
        uses_rewards=True,
        step_weights=scaled_step_weights,
    )
)
PREFERENCE_LOSSES.register(
    PreferenceLoss(
        name="dpo",
        summary="DPO on complete solutions",
        source="Rafailov et al. 2023, equation 7",
        pair_loss=dpo_pair_loss,
    )
)
PREFERENCE_LOSSES.register(
    PreferenceLoss(
        name="step-dpo",
        summary="DPO on solutions that end with the first step in which they differ",
        source="Lai et al. 2024",
        ends_at_first_difference=True,  # the shared steps before it cancel
        pair_loss=dpo_pair_loss,
    )
)
PREFERENCE_LOSSES.register(
    PreferenceLoss(
        name="ipo",
        summary="Squared distance of the log-ratio difference from 1 / 2β, summed over tokens",
        source="Azar et al. 2024, equation 17",
        pair_loss=ipo_pair_loss,
    )
)
PREFERENCE_LOSSES.register(
    PreferenceLoss(
        name="public-code",
        summary="Public code that is presented as Full-Step-DPO: a softmax over tokens, not steps",
        source="no paper",
        options=("beta", "gamma"),
        uses_rewards=True,
        token_weights=public_code_weights,
    )
)
