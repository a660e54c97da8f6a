"""MR-MATH: step labels by people, and the recorded scores of two reward models.

    python benchmarks/evidence/reasoneval.py    # measure, and print the table; --publish keeps it

`--data` has the labels and the folder `scores`, of GAIR-NLP/ReasonEval at commit 6c91c7a. In the
results, `authors` is the output of `codes/mr-math_eval.py` of that commit for these files, with
scikit-learn 1.9.1. An import reads step labels or step scores. So the script joins them by id,
imports the labels, adds the scores to a copy of the dataset as step rewards, and seals the copy.
"""

import argparse
import csv
import io
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from fsdpo_bench.prm.measure_prm import PrmOptions, measure_prm

import fsdpo_data as fd
from fsdpo_data.cli.app import app
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.progress import NO_PROGRESS
from fsdpo_data.core.row_files import read_records

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared/data/stepwise/reasoneval"
RESULTS = ROOT / "benchmarks/measured/reasoneval.csv"
MODELS = {"math-shepherd_mistral-7b": "Math-Shepherd", "reasoneval_llemma-7b": "ReasonEval"}
#: The text that is one step of a joined file, by the kind of errors.
UNITS = {"invalid": ("step", "solution", "start of a solution"), "redundant": ("step", "solution")}
#: Smallest score of a right step, if it is not 0.5. The authors' largest redundancy is 0.15.
THRESHOLDS = {("redundant", "reasoneval_llemma-7b"): 0.85}
#: A value with its 95 % interval, if there is one.
Number = tuple[float, Sequence[float] | None]


def measure(data: Path, out: Path) -> dict[tuple[str, ...], Number]:
    """Return all numbers by kind of errors, unit, measure and model."""
    numbers: dict[tuple[str, ...], Number] = {}
    for errors, unit, model in ((e, u, m) for e in UNITS for u in UNITS[e] for m in MODELS):
        rows = list(join_rows(data, errors, unit, model))
        dataset = import_with_scores(rows, out / f"{errors}-{unit}-{model}")
        by_measure = measure_dataset(dataset, THRESHOLDS.get((errors, model), 0.5))
        numbers |= {(errors, unit, name, model): number for name, number in by_measure.items()}
    return numbers


def join_rows(data: Path, errors: str, unit: str, model: str) -> Iterator[dict[str, Any]]:
    """Yield a row per solution, with its steps, their labels and their scores."""
    name = f"mr-math_{errors}_errors"
    file_of_scores = data / "scores" / f"{name}__{model}.jsonl"
    scores = {row.fields["id"]: row.fields["scores"] for row in read_records(file_of_scores)}
    for record in read_records(data / f"{name}.jsonl"):
        row = record.fields
        steps = row["model_output_step_format"]  # lists of sub-steps; each sub-step has a score
        values = iter([read_score(score, errors) for score in scores[row["id"]]])
        step_scores = [min(next(values) for _ in step) for step in steps]
        texts = ["\n".join(step) for step in steps]
        labels = row.get("rating")
        if labels is None:  # the number of the first wrong step counts from 1
            number = row["model_output_solution_first_error_step"]
            labels = [1] * len(steps) if number == "N/A" else [1] * (number - 1) + [0]
        if unit != "solution":  # the steps after the first error have no label
            texts = texts[: len(labels)]
            step_scores = step_scores[: len(labels)]
        if unit != "step":
            texts = ["\n".join(texts)]
            labels = [min(labels)]
            step_scores = [min(step_scores)]
        solution = {"steps": texts, "labels": labels, "scores": step_scores}
        yield {"question": row["question"], **solution}


def read_score(score: Any, errors: str) -> float:
    """Return a score that is higher for better steps; ReasonEval has three classes per step."""
    if not isinstance(score, list):
        return float(score)
    _, neutral, positive = score
    return float(neutral + positive if errors == "invalid" else 1 - neutral)


def import_with_scores(rows: Sequence[Mapping[str, Any]], out: Path) -> Path:
    """Import labels, add the scores as step rewards, and return the sealed dataset."""
    file, labelled, edited, scored = (out / name for name in ("a.jsonl", "labels", "edit", "data"))
    out.mkdir()
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    fields = ["--question-field", "question", "--steps-field", "steps", "--label-field", "labels"]
    with redirect_stdout(io.StringIO()):  # its summary
        arguments = ["import", str(file), "--from", "fields", *fields, "--out", str(labelled)]
        app(arguments, standalone_mode=False)
    shutil.copytree(labelled, edited)
    # A problem has its solutions in the order of the file.
    index = pl.int_range(pl.len(), dtype=pl.Int32).over("question").alias("sample_index")
    scores = pl.DataFrame(rows).select("question", index, step_rewards="scores")
    problems = fd.open_dataset(labelled).problems().select("problem_id", "question").collect()
    [solutions] = edited.glob("solutions/*.parquet")
    table = pl.read_parquet(solutions).drop("step_rewards").join(problems, on="problem_id")
    table = table.join(scores, on=["question", "sample_index"], maintain_order="left")
    table.drop("question").write_parquet(solutions)
    fd.seal(edited, out=scored, parent=labelled)
    return scored


def measure_dataset(data: Path, threshold: float) -> dict[str, Number]:
    """Return the numbers of a dataset with labels and rewards, by measure."""
    total = fd.agree(f"{data}:imported", f"{data}:rewards", threshold=threshold).total
    right = total.steps.reference_right + total.steps.labeller_right
    differ = 1 - total.steps.agreement
    steps = measure_prm(PrmOptions(data=data), NO_PROGRESS).dataset["steps"]
    return {
        "macro-F1": (1 - (differ / right + differ / (2 - right)) / 2, None),
        "AUC": (steps["auc"], steps["auc_ci95"]),
        "F1 of the first error": (total.first_errors.f1, None),
    }


def format_table(results: Sequence[Mapping[str, str]]) -> str:
    """Return the results of the models as a Markdown table."""
    titles = [f"{title}: {source}" for title in MODELS.values() for source in ("authors", "ours")]
    cells: dict[str, list[str]] = {}
    for row in results:
        if row["model"]:
            interval = f" [{row['low']}, {row['high']}]" if row["low"] else ""
            name = f"{row['errors']} | {row['unit']} | {row['measure']}"
            cells.setdefault(name, []).extend([row["authors"] or "–", row["ours"] + interval])
    lines = [["errors", "unit", "measure", *titles], ["---"] * 3 + ["--:"] * len(titles)]
    lines += [[name, *values] for name, values in cells.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def update_results(numbers: Mapping[tuple[str, ...], Number]) -> list[dict[str, str]]:
    """Return the recorded results with other numbers of ours."""
    results = list(csv.DictReader(RESULTS.read_text(encoding="utf-8").splitlines()))
    for row in results:
        value, interval = numbers[row["errors"], row["unit"], row["measure"], row["model"]]
        row["ours"] = f"{value:.3f}".removesuffix(".000")
        row["low"], row["high"] = map("{:.3f}".format, interval) if interval else ("", "")
    return results


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--publish", action="store_true", help="write into the checkout")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = update_results(measure(arguments.data, Path(folder)))
    print(format_table(results), end="")
    if arguments.publish:
        lines = [results[0].keys(), *(row.values() for row in results)]
        RESULTS.write_text("".join(",".join(line) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
