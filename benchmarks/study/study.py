"""The credit study: how step rewards change preference training on long embedded problems.

    python benchmarks/study/study.py --out runs/study              # the command of `make study`
    python benchmarks/study/study.py --out runs/small --sizes demo  # a small version
    python benchmarks/study/study.py --out runs/study --sizes control-100 --seeds 5 6 7

All arms share one policy, one set of samples and pairs, and the number of optimizer steps. Each arm
is trained with the same learning rates and βs, and the validation problems select the best setting.
That setting is then trained from several seeds; each seed has its own test problems. The arms,
commands, sizes and questions are in `plan.toml`. Finished parts in `--out` are not computed again,
so a stopped study continues. The tables contain the arms that are complete.

Each size has a folder in `--out` with figures and tables, which `--publish DIR` copies:

- `sweep.csv`: every setting;
- `final.csv`: every metric;
- `contrasts.csv`: the comparisons of arms, with p-values corrected over all sizes;
- `sources.csv`: the accuracy of each source of rewards;
- `data.csv`: the number of pairs.

`report.py` draws the figures from the tables.
"""

import argparse
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean

import polars as pl
from data import StudyDirectory, arm_pairs, count_pairs, make_data, reward_auc
from measure import Rows, contrast_rows, final_rows, sweep_rows
from plan import ARMS, QUESTIONS, SFT, SIZES, Arm, Policy, StudyQuestion
from policies import Measurements, measure_policy
from report import write_report


class Study:
    """The finished arms of one size, with their measurements."""

    def __init__(self, directory: StudyDirectory, jobs: int) -> None:
        self.directory = directory
        self.swept: dict[Policy, Measurements] = {}
        self.chosen: dict[str, Policy] = {}
        self.results: dict[str, list[Measurements]] = {}
        self._pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
        self._measure_arm(
            [Policy(SFT, lr=0, beta=0, training_seed=directory.size.training_seeds[0])]
        )

    def add(self, arm: Arm) -> None:
        """Choose the learning rate and β of an arm, then train and measure it with every seed."""
        size = self.directory.size
        for directory in data_directories(self.directory):
            arm_pairs(directory, arm)  # Create the file before parallel runs need it.
        first_seed = size.training_seeds[0]
        self._measure_arm(
            [Policy(arm, **setting, training_seed=first_seed) for setting in size.settings]
        )

    def write_tables(self) -> list[Path]:
        """Write the tables of the finished arms; return their files."""
        tables = {
            "final": final_rows(self.results, self.chosen),
            "contrasts": contrast_rows(self.results, self._questions()),
            "sources": self._source_rows(),
            "data": [
                row
                for directory in data_directories(self.directory)
                for row in count_pairs(directory)
            ],
        }
        if self.swept:
            tables["sweep"] = sweep_rows(self.swept, self.chosen)
        files = []
        for name, rows in tables.items():
            files.append(self.directory.out / f"{name}.csv")
            pl.DataFrame(rows).write_csv(files[-1])
        return files

    def _questions(self) -> list[StudyQuestion]:
        return [q for q in QUESTIONS if q.name in self.directory.size.questions]

    def _source_rows(self) -> Rows:
        """Return the AUC of the step rewards of each source against the true step labels."""
        arms = {
            policy.arm.rewards: policy.arm for policy in self.chosen.values() if policy.arm.gamma
        }
        directories = data_directories(self.directory)
        aucs = {
            source: fmean(reward_auc(directory, arm) for directory in directories)
            for source, arm in arms.items()
        }
        return [{"rewards": source, "AUC": f"{auc:.3f}"} for source, auc in aucs.items()]

    def _measure_arm(self, policies: list[Policy]) -> None:
        """Measure the best of some settings of one arm with every seed."""
        if self.directory.size.validation:
            measure = partial(measure_policy, self.directory, "validation")
            self.swept |= zip(policies, self._pool.map(measure, policies), strict=True)
            policies.sort(key=lambda policy: -sum(self.swept[policy]["solve"]["sampled"]))
        best = policies[0]
        runs = [replace(best, training_seed=seed) for seed in self.directory.size.training_seeds]
        self.chosen[best.arm.name] = best
        directories = [seed_directory(self.directory, run.training_seed) for run in runs]
        results = self._pool.map(measure_policy, directories, ["test"] * len(runs), runs)
        self.results[best.arm.name] = list(results)


def main() -> None:
    """Run the study; finished parts are not computed again."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    full_sizes = [size for size in SIZES if size != "demo"]
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=full_sizes)
    parser.add_argument("--seeds", nargs="+", type=int, help="training seeds of these sizes")
    parser.add_argument("--publish", type=Path, help="folder that receives tables and figures")
    parser.add_argument("--jobs", type=int, default=2, help="number of parallel policies")
    options = parser.parse_args()
    # Each command and policy uses one thread; `--jobs` determines the number of busy cores.
    os.environ["OMP_NUM_THREADS"] = "1"
    for size in options.sizes:
        seeds = options.seeds or SIZES[size].training_seeds
        directory = StudyDirectory(options.out / size, replace(SIZES[size], training_seeds=seeds))
        run_size(directory, options.jobs)
    write_report(options.out)
    if options.publish:
        publish(options.out, options.publish, full_sizes[0])


def seed_directory(directory: StudyDirectory, training_seed: int) -> StudyDirectory:
    """Return the directory of the data of a training seed; seeds share it unless they are draws."""
    if not directory.size.draws:
        return directory
    return replace(directory, out=directory.out / f"draw-{training_seed}", draw=training_seed)


def data_directories(directory: StudyDirectory) -> list[StudyDirectory]:
    """Return the directories of the data of a size: one per draw, or one for all seeds."""
    if not directory.size.draws:
        return [directory]
    return [seed_directory(directory, seed) for seed in directory.size.training_seeds]


def publish(out: Path, folder: Path, first_size: str) -> None:
    """Copy all tables, and the figures of the first size."""
    for pattern in ("*/*.csv", f"{first_size}/*.svg"):
        for file in out.glob(pattern):
            target = folder / file.relative_to(out)
            target.parent.mkdir(exist_ok=True)
            shutil.copy(file, target)


def run_size(directory: StudyDirectory, jobs: int) -> None:
    """Run the study at one size, and write the results each time an arm is complete."""
    for data_directory in data_directories(directory):
        make_data(data_directory)
    study = Study(directory, jobs)
    for arm in ARMS:
        if not directory.size.arms or arm.name in directory.size.arms:
            study.add(arm)
            files = study.write_tables()
            print(f"{arm.name}: {study.chosen[arm.name].name}", flush=True)
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=160, tbl_hide_column_data_types=True):
        print(pl.read_csv(directory.out / "final.csv").filter(problems="solve").drop("problems"))
    print(f"written: {', '.join(map(str, files))}")


if __name__ == "__main__":
    main()
