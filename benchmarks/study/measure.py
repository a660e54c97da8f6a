"""What was measured, with intervals: of policies, and of what separates them problem by problem."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from plan import Policy, StudyQuestion
from policies import Measurements

RESAMPLES = 10_000
#: By arm: what its runs found, a run for each seed.
Results = Mapping[str, Sequence[Measurements]]
Rows = list[dict[str, object]]


@dataclass(frozen=True)
class MeanEstimate:
    """A mean with its 95 % interval, and the chance of a mean as far from 0 were there nothing."""

    value: float
    low: float
    high: float
    p: float


def estimate(value_SP: np.ndarray, seed: int = 0) -> MeanEstimate:
    """Return the mean over training seeds and problems with a bootstrap interval.

    Seeds are drawn anew and, within each, its problems; that is on the wide side, as the problems
    make a part of what separates seeds.

    ``value_SP`` has a value for each seed and problem; ``seed`` is that of the draws.
    """
    rng = np.random.default_rng(seed)
    seeds, problems = value_SP.shape
    drawn_RSP = rng.integers(problems, size=(RESAMPLES, seeds, problems))
    means_RS = np.take_along_axis(value_SP[None], drawn_RSP, axis=2).mean(-1)
    drawn_RS = rng.integers(seeds, size=(RESAMPLES, seeds))
    means_R = np.take_along_axis(means_RS, drawn_RS, axis=1).mean(-1)
    low, high = np.quantile(means_R, (0.025, 0.975))
    tail = min((means_R <= 0).mean(), (means_R >= 0).mean())
    p = min(1.0, 2 * max(float(tail), 1 / RESAMPLES))
    return MeanEstimate(float(value_SP.mean()), float(low), float(high), p)


def holm(ps: Sequence[float]) -> list[float]:
    """Return p-values corrected for how many there are (Holm 1979), in their order."""
    corrected, most = [0.0] * len(ps), 0.0
    for rank, at in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        most = max(most, min(1.0, (len(ps) - rank) * ps[at]))
        corrected[at] = most
    return corrected


def stack_values(runs: Sequence[Measurements], kind: str, what: str) -> np.ndarray:
    """Return a value for each run and problem: shares in percent, ``kl`` in nats."""
    scale = 1 if what == "kl" else 100
    return scale * np.array([run[kind][what] for run in runs])


def final_rows(results: Results, chosen: Mapping[str, Policy]) -> Rows:
    """Return a row for each arm and measure, with its distance from the SFT policy."""
    rows: Rows = []
    base = results["SFT"]
    for arm, runs in results.items():
        for kind, found in runs[0].items():
            for what in found:
                value, before = (stack_values(each, kind, what) for each in (runs, base))
                row = {"arm": arm, **_setting(chosen[arm]), "problems": kind}
                told = _columns(estimate(value)) | _columns(estimate(value - before), "gain")
                rows.append({**row, "measure": what, "seeds": len(runs), **told})
    return rows


def contrast_rows(results: Results, questions: Sequence[StudyQuestion]) -> Rows:
    """Return by how many points of avg@k arms are ahead of the first arm of each question.

    Their p-values are corrected for all comparisons of all questions.
    """
    rows: Rows = []
    ps: list[float] = []
    for question in questions:
        first, *others = question.arms
        for arm in others if first in results else ():
            if arm in results:
                values = (stack_values(results[name], "solve", "sampled") for name in (arm, first))
                found = estimate(np.subtract(*values))
                row = {"question": question.name, "arm": arm, "against": first}
                rows.append({**row, **_columns(found, "ahead"), "p": f"{found.p:.4f}"})
                ps.append(found.p)
    for row, p in zip(rows, holm(ps), strict=True):
        row["p (Holm)"] = f"{p:.4f}"
    return rows


def sweep_rows(swept: Mapping[Policy, Measurements], chosen: Mapping[str, Policy]) -> Rows:
    """Return a row for each setting; it collapsed if it ended below the first one, SFT's."""
    values = {policy: stack_values([found], "solve", "sampled") for policy, found in swept.items()}
    level = next(iter(values.values())).mean()
    return [
        {
            **{"arm": policy.arm.name, **_setting(policy), **_columns(estimate(value))},
            "collapsed": "yes" if value.mean() < level else "",
            "chosen": "yes" if policy in chosen.values() else "",
        }
        for policy, value in values.items()
    ]


def _setting(policy: Policy) -> dict[str, object]:
    return {"lr": f"{policy.lr:g}", "beta": f"{policy.beta:g}"}


def _columns(found: MeanEstimate, name: str = "value") -> dict[str, object]:
    ends = (("", found.value), (" low", found.low), (" high", found.high))
    return {f"{name}{end}": f"{number:.2f}" for end, number in ends}
