"""Step labels from outcomes: the paper's N=1 estimate (section 3.3, "Our efficient approach")."""

from fsdpo_data.core.nouns import FAILED, GRADED, Outcome

#: Name of the rule, in specs and manifests.
OUTCOME_LABELS = "outcome@1"


def outcome_labels(outcome: Outcome, n_steps: int) -> list[bool] | None:
    """Give every step the solution's outcome: y = 1 if a = a*, else 0.

    Returns:
        One label per step, or None where the failure is not the model's (a gold that cannot be
        parsed, a grader that ran out of time): such a solution is counted, never labelled 0.
    """
    return [outcome not in FAILED] * n_steps if outcome in GRADED else None
