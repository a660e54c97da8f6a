"""What step rewards buy over voting, on real samples with the step scores of published models.

    python benchmarks/evidence/evidence.py --pools DIR --golds DIR   # `make evidence`

The samples and the scores are from the repository staged-benchmark-2026/StrictPRMBench, commit
5117616 (CC-BY-4.0). `--pools` has a folder for each benchmark of `plan.toml`, with
`candidates.jsonl.gz` and `scores/MODEL.jsonl.gz`. `--golds` has `math500/test.jsonl`. The script
imports the scores of each model with `fsdpo-data import`, and measures them with `fsdpo-bench
report`. Finished parts in `--out` are not computed again. It prints the tables, and `--publish`
writes them and the figures into the checkout.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from figures import write_models, write_sizes
from fsdpo_bench.run_folder import FORMAT_VERSION, read_version
from tables import BenchmarkResult, Measurement, render_tables

from fsdpo_data.core.row_files import read_records

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "data"
#: Text at the start of the first step, if the models scored the chat prompt with it.
CHAT_PROMPT_START = "system\n"


@dataclass(frozen=True)
class EvidencePool:
    """A pool of `plan.toml`, and the folders of its files."""

    title: str  #: Title in tables.
    pool: Path  #: Folder of the samples and scores.
    out: Path  #: Folder of the results.
    models: list[str]  #: Names of the files of scores.
    golds: Path | None  #: File with gold answers; None for the golds of the pool.

    def import_scores(self, model: str) -> Path:
        """Import the samples with the scores of a model, and return the dataset."""
        data = self.out / model
        if (data / "manifest.json").exists():
            return data
        samples = self.pool / "candidates.jsonl.gz"
        options = {
            "--from": "outputs",
            "--scores": self.pool / "scores" / f"{model}.jsonl.gz",
            "--prm-name": model,
            "--temperature": "0.8",
            "--out": data,
        }
        if self.golds:
            options |= {"--problems": self.golds, "--split": "test"}
        flags = [str(word) for option in options.items() for word in option]
        run_command(["fsdpo-data", "import", str(samples), *flags, "--resume"])
        return data

    def report(self, name: str, *options: str) -> Measurement:
        """Measure all models, and return the result of the command.

        A result of another version is measured again.
        """
        file = self.out / f"{name}.json"
        if not file.exists() or read_version(file) != FORMAT_VERSION:
            datasets = [str(self.import_scores(model)) for model in self.models]
            gammas = ["--gamma", "0.5", "--gamma", "2", "--gamma", "8"]
            printed = run_command(["fsdpo-bench", "report", *datasets, *gammas, *options, "--json"])
            file.write_text(printed, encoding="utf-8")
        return Measurement(json.loads(file.read_text(encoding="utf-8")))

    def measure(self) -> BenchmarkResult:
        """Measure all problems, and the problems without a chat prompt in any first step."""
        self.out.mkdir(parents=True, exist_ok=True)
        rows_with_prompt = 0
        has_prompt: dict[str, bool] = defaultdict(bool)
        golds: dict[str, str] = {}
        n_rows = 0
        for record in read_records(self.pool / "candidates.jsonl.gz"):
            row = record.fields
            is_prompted = row["steps"][0].startswith(CHAT_PROMPT_START)
            n_rows += 1
            rows_with_prompt += is_prompted
            has_prompt[row["question"]] |= is_prompted
            golds[row["question"]] = row["gold"]
        problems = self.out / "problems-without-prompt.jsonl"
        lines = [
            json.dumps({"question": question, "answer": golds[question]}) + "\n"
            for question, is_prompted in has_prompt.items()
            if not is_prompted
        ]
        problems.write_text("".join(lines), encoding="utf-8")
        return BenchmarkResult(
            title=self.title,
            prompt_share=rows_with_prompt / n_rows,
            result=self.report("results"),
            without_prompt=self.report("results-without-prompt", "--problems", str(problems)),
        )


def run_command(words: list[str]) -> str:
    """Print and run a command of the toolkit, and return its output."""
    print(f"$ {shlex.join(words)}", file=sys.stderr, flush=True)
    module = words[0].replace("-", "_")
    command = [sys.executable, "-m", module, *words[1:]]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def load_benchmarks(pools: Path, golds: Path, out: Path) -> list[EvidencePool]:
    """Return the benchmarks of `plan.toml`; exit if their files are missing."""
    plan = tomllib.loads(Path(__file__).with_name("plan.toml").read_text(encoding="utf-8"))
    benchmarks = [
        EvidencePool(
            title=entry["title"],
            pool=pools / entry["folder"],
            out=out / name,
            models=entry["models"],
            golds=golds / entry["golds"] if "golds" in entry else None,
        )
        for name, entry in plan.items()
    ]
    files = [
        file
        for benchmark in benchmarks
        for file in (benchmark.pool / "candidates.jsonl.gz", benchmark.golds)
        if file is not None
    ]
    if missing := [str(file) for file in files if not file.is_file()]:
        sys.exit(
            f"missing: {', '.join(missing)}. Expected the samples and scores of "
            "github.com/staged-benchmark-2026/StrictPRMBench at commit 5117616 in --pools, and "
            "math500/test.jsonl of MATH-500 in --golds. The first lines of this script describe "
            "the folders."
        )
    return benchmarks


def main() -> None:
    """Measure the pools, print the tables, and write the published files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pools", type=Path, default=SHARED / "pools")
    parser.add_argument("--golds", type=Path, default=SHARED / "benchmarks")
    parser.add_argument("--out", type=Path, default=Path("runs/evidence"))
    parser.add_argument("--publish", action="store_true", help="write into the checkout")
    arguments = parser.parse_args()
    benchmarks = load_benchmarks(arguments.pools, arguments.golds, arguments.out)
    results = [benchmark.measure() for benchmark in benchmarks]
    text = render_tables(results)
    print(text, end="")
    folder = ROOT / "docs" if arguments.publish else arguments.out
    write_sizes(folder / "step-rewards-n.svg", results)
    write_models(folder / "step-rewards-models.svg", results)
    if arguments.publish:
        file = ROOT / "benchmarks" / "measured" / "evidence.txt"
        file.write_text(f"$ make evidence\n{text}", encoding="utf-8")


if __name__ == "__main__":
    main()
