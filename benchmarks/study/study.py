"""The method on the embedded world: SFT, then DPO, Step-DPO and Full-Step-DPO from the same data.

    python benchmarks/study/study.py --out runs/study              # what `make study` runs
    python benchmarks/study/study.py --out runs/demo --size demo   # what ends `make demo`

Every stage is a command that a user would run, over sealed directories: samples of the SFT policy,
one process reward model trained on their outcomes, rewards, pairs of solutions and pairs of steps.
Every loss is then trained over the same learning rates and β, and Full-Step-DPO over γ; one setting
of each is chosen by avg@k on problems of the validation split. Only what was chosen is measured on
the test split, greedily and by sampling, from several seeds. What is in `--out` is not made again,
so a stopped study goes on.

Written to `--out`: `sweep.csv` (every setting tried), `final.csv`, `figure.svg`; `--publish DIR`
copies them there.
"""

import argparse
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import measure
from commands import Commands, Data
from figure import Panel, write_figure
from measure import Estimate, Final, Measured, Swept
from plan import CHOSEN, DEMO, GAMMA, METHODS, STUDY, Policy

FILES = ("sweep.csv", "final.csv", "figure.svg")


def main() -> None:
    """Run the study, or the part of it that is owed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", choices=("study", "demo"), default="study")
    parser.add_argument("--prm", help="a process reward model that is there; else one is trained")
    parser.add_argument("--publish", type=Path, help="folder to copy the tables and the figure to")
    parser.add_argument("--jobs", type=int, default=2, help="policies measured at a time")
    options = parser.parse_args()
    sizes = STUDY if options.size == "study" else DEMO
    run = Commands(options.out, sizes, options.jobs)
    data = run.data(options.prm)
    swept = sweep(run, data)
    chosen = best(swept) or list(CHOSEN)
    bases = told_sweep(run, swept, chosen) if swept else {}
    bases["test"], final = finals(run, data, chosen)
    rows = measure.final_rows(final, bases["test"])
    measure.write_rows(options.out / "final.csv", rows)
    problems, samples = sizes.test
    told = f"{problems} test problems, k = {samples} samples at temperature 0.8; points"
    measure.print_rows(rows, told)
    write_figure(options.out / "figure.svg", panels(swept, final, bases))
    written = [options.out / name for name in FILES if (options.out / name).exists()]
    print(f"\nwritten: {', '.join(map(str, written))}")
    for file in written if options.publish else ():
        shutil.copy(file, options.publish)


def sweep(run: Commands, data: Data) -> dict[Policy, Measured]:
    """Measure every setting on validation problems, then every γ at the best of Full-Step-DPO."""
    swept = validated(run, data, list(run.sizes.settings()))
    full = [policy for policy in best(swept) if policy.loss == "full-step"]
    gammas = [replace(policy, gamma=gamma) for policy in full for gamma in run.sizes.gammas]
    return swept | validated(run, data, gammas)


def validated(run: Commands, data: Data, policies: Sequence[Policy]) -> dict[Policy, Measured]:
    """Train policies and measure them on validation problems."""
    trained = [run.trained(policy, data) for policy in policies]
    return dict(zip(policies, run.measured(trained, "validation"), strict=True))


def finals(run: Commands, data: Data, chosen: Sequence[Policy]) -> tuple[Measured, Final]:
    """Train what was chosen from every seed; measure it and the SFT policy on test problems."""
    policies = [replace(policy, seed=seed) for policy in chosen for seed in run.sizes.seeds]
    trained = [run.trained(policy, data) for policy in policies]
    base, *measured = run.measured([None, *trained], "test")
    final: dict[str, list[Measured]] = {}
    for policy, found in zip(policies, measured, strict=True):
        final.setdefault(policy.loss, []).append(found)
    return base, final


def best(swept: Swept) -> list[Policy]:
    """Return the setting of each loss with the highest avg@k; γ stays the paper's."""
    tried = [policy for policy in swept if policy.gamma == GAMMA]
    return [
        max(
            (policy for policy in tried if policy.loss == loss),
            key=lambda policy: swept[policy].sampled.mean(),
        )
        for loss in METHODS
        if tried
    ]


def told_sweep(run: Commands, swept: Swept, chosen: Sequence[Policy]) -> dict[str, Measured]:
    """Write and print every setting tried; return the SFT policy on the same problems."""
    problems, samples = run.sizes.validation
    (base,) = run.measured([None], "validation")
    rows = measure.sweep_rows(swept, base, chosen)
    measure.write_rows(run.out / "sweep.csv", rows)
    measure.print_rows(rows, f"{problems} validation problems, k = {samples} samples; points")
    return {"validation": base}


def panels(swept: Swept, final: Final, bases: Mapping[str, Measured]) -> list[Panel]:
    """Return the diagrams: the final numbers and, if there was a sweep, what it found.

    ``swept`` is on validation problems, ``final`` on test problems; ``bases`` is the SFT policy on
    each.
    """
    every = {"SFT": [bases["test"]], **{METHODS[loss]: runs for loss, runs in final.items()}}
    shown = [
        Panel(
            title,
            "",
            {"": {name: _estimate(runs, what) for name, runs in every.items()}},
            joined=False,
        )
        for what, title in (("sampled", "avg@k, test"), ("greedy", "greedy, test"))
    ]
    if swept:
        level = ("SFT", 100 * float(bases["validation"].sampled.mean()))
        shown += _settings(swept, level)
    return shown


def _estimate(runs: Sequence[Measured], what: str) -> Estimate:
    return measure.estimate(measure.stacked(runs, what))


def _settings(swept: Swept, level: tuple[str, float]) -> list[Panel]:
    """Return what the learning rate does to every loss, for each β; then γ to Full-Step-DPO."""

    def line(policies: Iterable[Policy], setting: str) -> dict[str, Estimate]:
        found = ((getattr(each, setting), swept[each]) for each in policies)
        return {f"{value:g}": _estimate([run], "sampled") for value, run in found}

    shown = []
    for beta in sorted({policy.beta for policy in swept}):
        at = [policy for policy in swept if (policy.beta, policy.gamma) == (beta, GAMMA)]
        lines = {
            name: line((policy for policy in at if policy.loss == loss), "lr")
            for loss, name in METHODS.items()
        }
        title = f"avg@k at β {beta:g}, validation"
        shown.append(Panel(title, "learning rate", lines, joined=True, level=level))
    (full,) = (policy for policy in best(swept) if policy.loss == "full-step")
    tried = (policy for policy in swept if replace(policy, gamma=GAMMA) == full)
    lines = {METHODS[full.loss]: line(sorted(tried, key=lambda policy: policy.gamma), "gamma")}
    title = f"Full-Step-DPO at {full.lr:g}, β {full.beta:g}, validation"
    return [*shown, Panel(title, "γ", lines, joined=True, level=level)]


if __name__ == "__main__":
    main()
