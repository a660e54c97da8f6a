"""The credit study: what step rewards buy, arm by arm, on long problems of the embedded world.

    python benchmarks/study/study.py --out runs/study              # what `make study` runs
    python benchmarks/study/study.py --out runs/small --sizes demo  # it in small

One policy, one set of samples and pairs, as many optimizer steps, the same learning rates and βs
for every arm, of which the best on validation problems are taken; then training runs from several
seeds, each measured on test problems of its own. Arms, commands, sizes and questions are data:
`plan.toml`. What is in `--out` is not made again, so a stopped study goes on; what is told is of
the arms that are whole.

Written to `--out`, a folder a size: `sweep.csv` (every setting tried), `final.csv` (every measure),
`contrasts.csv` (the questions), `sources.csv` (how right rewards are) and figures, which
`--publish DIR` copies; and `sizes.svg`, what separates arms at every size.
"""

import argparse
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain
from multiprocessing import get_context
from pathlib import Path

import polars as pl
from data import StudyDirectory, agreement, make_data, pairs_of
from figure import write_contrasts, write_rates, write_sizes
from measure import contrast_rows, final_rows, sweep_rows
from plan import ARMS, QUESTIONS, SFT, SIZES, Arm, Policy
from policies import Measurements, measure_policy


class Study:
    """The arms that are whole, and what they found."""

    def __init__(self, place: StudyDirectory, jobs: int) -> None:
        self.place = place
        self.swept: dict[Policy, Measurements] = {}
        self.chosen: dict[str, Policy] = {}
        self.results: dict[str, list[Measurements]] = {}
        self._pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
        self._choose([Policy(SFT, 0, 0, place.size.seeds[0])])

    def add(self, arm: Arm) -> None:
        """Choose the learning rate and β of an arm; train it from every seed, and measure that."""
        size = self.place.size
        pairs_of(self.place, arm)  # made once, before runs ask for them at the same time
        self._choose([Policy(arm, **setting, seed=size.seeds[0]) for setting in size.settings])

    def write_results(self) -> list[Path]:
        """Write the tables and the figures of what is there; return their files."""
        out, arms = self.place.out, list(self.results)
        final = final_rows(self.results, self.chosen)
        contrasts = contrast_rows(self.results, QUESTIONS)
        sources = {each.arm.rewards: each.arm for each in self.chosen.values() if each.arm.gamma}
        right = {name: agreement(self.place, arm) for name, arm in sources.items()}
        tables = {"final": final, "contrasts": contrasts}
        tables["sources"] = [{"rewards": name, "AUC": f"{auc:.3f}"} for name, auc in right.items()]
        if self.swept:
            tables["sweep"] = sweep_rows(self.swept, self.chosen)
            write_rates(out / "rates.svg", arms[1:], tables["sweep"])
        for name, rows in tables.items():
            pl.DataFrame(rows).write_csv(out / f"{name}.csv")
        for question in QUESTIONS:
            shown = [arm for arm in question.arms if arm in arms]
            asked = [row for row in contrasts if row["question"] == question.name]
            if asked:
                write_contrasts(out / f"{question.name}.svg", question.asks, shown, final, asked)
        return sorted([*out.glob("*.csv"), *out.glob("*.svg")])

    def _choose(self, tried: list[Policy]) -> None:
        if self.place.size.validation:
            found = self._pool.map(partial(measure_policy, self.place, "validation"), tried)
            self.swept |= zip(tried, found, strict=True)
            tried.sort(key=lambda policy: -sum(self.swept[policy]["solve"]["sampled"]))
        best, seeds = tried[0], self.place.size.seeds
        runs = [replace(best, seed=seed) for seed in seeds]
        self.chosen[best.arm.name] = best
        self.results[best.arm.name] = [
            *self._pool.map(partial(measure_policy, self.place, "test"), runs)
        ]


def main() -> None:
    """Run the study, or the part of it that is owed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    few = [size for size in SIZES if size != "demo"]
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=few)
    parser.add_argument("--publish", type=Path, help="folder to copy tables and figures to")
    parser.add_argument("--jobs", type=int, default=2, help="policies at a time")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # of every command and policy; `--jobs` is what uses cores
    for size in options.sizes:
        run(StudyDirectory(options.out / size, SIZES[size]), options.jobs)
    files = {size: options.out / size / "contrasts.csv" for size in SIZES}  # of earlier runs, too
    rows = {size: pl.read_csv(file).to_dicts() for size, file in files.items() if file.exists()}
    write_sizes(options.out / "sizes.svg", rows)
    told = [options.out.glob(names) for names in ("*.svg", "*/*.csv", f"{few[0]}/*.svg")]
    for file in chain(*told) if options.publish else ():
        goal = options.publish / file.relative_to(options.out)
        goal.parent.mkdir(exist_ok=True)
        shutil.copy(file, goal)


def run(place: StudyDirectory, jobs: int) -> None:
    """Run a size, and tell of every arm when it is whole."""
    make_data(place)
    study = Study(place, jobs)
    for arm in ARMS:
        if not place.size.arms or arm.name in place.size.arms:
            study.add(arm)
            written = study.write_results()
            print(f"{arm.name}: {study.chosen[arm.name].name}", flush=True)
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=160, tbl_hide_column_data_types=True):
        print(pl.read_csv(place.out / "final.csv").filter(problems="solve").drop("problems"))
    print(f"written: {', '.join(map(str, written))}")


if __name__ == "__main__":
    main()
