"""Compare the kappa of `fsdpo-data agree` with scikit-learn's on pairs of labellers.

    pip install scikit-learn
    python benchmarks/labels/compare_kappa.py A,B [C,D ...]

Each pair has two labellers, as `fsdpo-data agree` takes them. `processbench=FILE` takes the
labels of people and the outcomes from a JSON file of ProcessBench.
"""

import json
import sys
from pathlib import Path

from sklearn.metrics import cohen_kappa_score

from fsdpo_data.agreement.kappa import cohen_kappa
from fsdpo_data.agreement.labels import read_labeller

StepLabels = tuple[list[bool], list[bool]]


def read_pair(text: str) -> StepLabels:
    """Return the labels of both labellers on their common steps."""
    name, _, file = text.partition("=")
    first: list[bool] = []
    second: list[bool] = []
    if name == "processbench":
        for row in json.loads(Path(file).read_text(encoding="utf-8")):
            n_steps = len(row["steps"])
            first_error = n_steps if row["label"] == -1 else row["label"]
            first += [step < first_error for step in range(n_steps)]
            second += [row["final_answer_correct"]] * n_steps
        return first, second
    labellers = [read_labeller(part, None, "labeller") for part in text.split(",")]
    for key in labellers[0].solutions.keys() & labellers[1].solutions.keys():
        for labels, labeller in zip((first, second), labellers, strict=True):
            scores = labeller.solutions[key].scores
            labels += [score >= labeller.threshold for score in scores]
    return first, second


def main() -> None:
    """Print both values of each pair."""
    for text in sys.argv[1:]:
        first, second = read_pair(text)
        ours = cohen_kappa(first, second)
        assert ours is not None
        difference = abs(ours - cohen_kappa_score(first, second))
        name = text.rpartition("/processbench/")[2]
        print(f"{name:<36}{len(first):>7,} steps  kappa {ours:.6f}  difference {difference:.1e}")


if __name__ == "__main__":
    main()
