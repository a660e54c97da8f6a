"""Measure how well `fsdpo-data decontaminate` finds perturbed problems.

    python benchmarks/contamination/math_perturb.py --data DIR

MATH-Perturb has two versions of 279 problems of MATH: other numbers (simple), and a small change
that needs another solution (hard). The command compares all problems of MATH with both.

- Recall: the perturbed problems whose original problem is found, of all perturbed problems.
- Precision: the reported pairs that are the same problem with changes, of all reported pairs.

`seeds.csv` names the original problem of each problem of MATH-Perturb. MATH has further versions of
some problems; `decisions.csv` has our decisions about other reported pairs. A pair without a
decision counts as wrong. Problems with an odd id chose the threshold, so only even ids count here.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
KINDS = ("simple", "hard")


def main() -> None:
    """Print precision and recall of both kinds of changes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="MATH and MATH-Perturb")
    data = parser.parse_args().data
    math_files = [
        *sorted((data / "train/math").glob("*.jsonl")),
        data / "benchmarks/math/test.jsonl",
    ]
    perturbed_files = {
        kind: data / f"newer/benchmarks/math_perturb/math_perturb_{kind}.jsonl" for kind in KINDS
    }
    # Lines count from 1, as in the report of the command and in the CSV files.
    questions = {
        (file.name, str(line)): row["problem"]
        for file in math_files
        for line, row in enumerate(read_lines(file), start=1)
    }
    right_pairs = read_right_pairs(questions)
    seeds = {row["problem_id"]: questions[row["file"], row["row"]] for row in read_csv("seeds.csv")}
    report = run_decontaminate(math_files, perturbed_files)
    print(f"{'problems':<22}{'precision':<22}{'recall'}")
    for kind, file in perturbed_files.items():
        ids = [str(row["problem_id"]) for row in read_lines(file)]
        pairs = [
            (ids[pair["row"] - 1], pair["question"])
            for pair in report["pairs"]
            if pair["benchmark"] == kind
        ]
        pairs = [pair for pair in pairs if is_even(pair[0])]
        n_right = sum(
            question == seeds[problem_id] or (kind, problem_id, question) in right_pairs
            for problem_id, question in pairs
        )
        n_found = len({id for id, question in pairs if question == seeds[id]})
        n_problems = sum(map(is_even, ids))
        precision = f"{n_right / len(pairs):.1%} ({n_right} of {len(pairs)})"
        recall = f"{n_found / n_problems:.1%} ({n_found} of {n_problems})"
        print(f"{kind + ', even ids':<22}{precision:<22}{recall}")


def run_decontaminate(math_files: list[Path], perturbed_files: dict[str, Path]) -> dict[str, Any]:
    """Return the report of the command."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        benchmarks = [f"--against={kind}={file}" for kind, file in perturbed_files.items()]
        program = Path(sys.executable).with_name("fsdpo-data")
        arguments = [*map(str, math_files), *benchmarks, "--report", str(report)]
        subprocess.run([program, "decontaminate", *arguments], check=True)
        return json.loads(report.read_text(encoding="utf-8"))


def read_right_pairs(questions: dict[tuple[str, str], str]) -> set[tuple[str, str, str]]:
    """Return the kind, id and original question of the pairs that are decided to be the same."""
    return {
        (row["kind"], row["problem_id"], questions[row["file"], row["row"]])
        for row in read_csv("decisions.csv")
        if row["same"] == "yes"
    }


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def read_csv(name: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file next to this script."""
    with (FOLDER / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def is_even(problem_id: str) -> bool:
    """Return whether the id of a problem is even."""
    return int(problem_id) % 2 == 0


if __name__ == "__main__":
    main()
