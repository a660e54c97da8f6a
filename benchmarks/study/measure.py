"""The tables of the study: means with intervals, and paired comparisons of arms.

The kind of problems ``solve`` is the one that policies learn on. Its metric ``sampled`` is avg@k,
the fraction of correct samples of each problem. ``chosen`` has the learning rate and β of each arm
that validation selected.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from plan import Policy, StudyQuestion
from policies import Measurements

from fsdpo_data.core.statistics import Interval, MeanDifference

RESAMPLES = 10_000  #: Draws of the bootstrap.
#: Measurements by arm, one entry per training seed.
Results = Mapping[str, Sequence[Measurements]]
Rows = list[dict[str, object]]


def estimate(value_SP: np.ndarray) -> MeanDifference:
    """Return the mean over training seeds and problems with a bootstrap interval and p-value.

    The bootstrap draws training seeds, and then problems within each seed. Each seed has test
    problems of its own, so the variance between seeds contains the variance between problems. The
    interval is therefore too wide if only the problems differ. It is too narrow if five seeds or
    fewer differ much more than their problems do; ``benchmarks/measured/intervals.txt`` has both.

    The intervals of :mod:`fsdpo_data.core.statistics` have one level of independent units and
    values in a known range. Here, the units are nested, and ``kl`` has no bounds.

    Args:
        value_SP: One value per training seed and problem.
    """
    rng = np.random.default_rng(0)
    n_seeds, n_problems = value_SP.shape
    problem_RSP = rng.integers(n_problems, size=(RESAMPLES, n_seeds, n_problems))
    means_RS = np.take_along_axis(value_SP[None], problem_RSP, axis=2).mean(-1)
    seed_RS = rng.integers(n_seeds, size=(RESAMPLES, n_seeds))
    means_R = np.take_along_axis(means_RS, seed_RS, axis=1).mean(-1)
    low, high = np.quantile(means_R, (0.025, 0.975))
    tail = min((means_R <= 0).mean(), (means_R >= 0).mean())
    p = min(1.0, 2 * max(float(tail), 1 / RESAMPLES))
    return MeanDifference(
        value=float(value_SP.mean()),
        n=value_SP.size,
        ci95=Interval(float(low), float(high)),
        p=p,
        clusters=n_seeds,
    )


def stack_values(runs: Sequence[Measurements], kind: str, metric: str) -> np.ndarray:
    """Return the values of a metric by run and problem: percent, or nats for ``kl``."""
    scale = 1 if metric == "kl" else 100
    return scale * np.array([run[kind][metric] for run in runs])


def final_rows(results: Results, chosen: Mapping[str, Policy]) -> Rows:
    """Return one row per arm, kind of problem and metric, with the gain over the SFT policy."""
    rows: Rows = []
    base_runs = results["SFT"]
    for arm, runs in results.items():
        for kind, metrics in runs[0].items():
            for metric in metrics:
                values = stack_values(runs, kind, metric)
                base_values = stack_values(base_runs, kind, metric)
                rows.append(
                    {
                        "arm": arm,
                        **_setting_columns(chosen[arm]),
                        "problems": kind,
                        "measure": metric,
                        "seeds": len(runs),
                        **_estimate_columns(estimate(values)),
                        **_estimate_columns(estimate(values - base_values), "gain"),
                    }
                )
    return rows


def contrast_rows(results: Results, questions: Sequence[StudyQuestion]) -> Rows:
    """Return how many points of avg@k each arm is ahead of the first arm of its question.

    ``report.py`` corrects the p-values, because the correction needs the comparisons of all sizes.
    """
    rows: Rows = []
    for question in questions:
        baseline, *compared_arms = question.arms
        if baseline not in results:
            continue
        baseline_values = stack_values(results[baseline], "solve", "sampled")
        for arm in compared_arms:
            if arm not in results:
                continue
            values = stack_values(results[arm], "solve", "sampled")
            difference = estimate(values - baseline_values)
            rows.append(
                {
                    "question": question.name,
                    "arm": arm,
                    "against": baseline,
                    **_estimate_columns(difference, "ahead"),
                    "p": f"{difference.p:.4f}",
                }
            )
    return rows


def sweep_rows(swept: Mapping[Policy, Measurements], chosen: Mapping[str, Policy]) -> Rows:
    """Return one row per setting.

    A setting collapsed if it ended below the first one, the SFT policy.
    """
    values = {
        policy: stack_values([measurements], "solve", "sampled")
        for policy, measurements in swept.items()
    }
    sft_mean = next(iter(values.values())).mean()
    return [
        {
            "arm": policy.arm.name,
            **_setting_columns(policy),
            **_estimate_columns(estimate(value)),
            "collapsed": "yes" if value.mean() < sft_mean else "",
            "chosen": "yes" if policy in chosen.values() else "",
        }
        for policy, value in values.items()
    ]


def _setting_columns(policy: Policy) -> dict[str, object]:
    return {"lr": f"{policy.lr:g}", "beta": f"{policy.beta:g}"}


def _estimate_columns(mean: MeanDifference, name: str = "value") -> dict[str, object]:
    return {
        name: f"{mean.value:.2f}",
        f"{name} low": f"{mean.ci95.low:.2f}",
        f"{name} high": f"{mean.ci95.high:.2f}",
    }
