"""Measure how many changed problems of GSM-Plus `fsdpo-data decontaminate` finds.

    python benchmarks/contamination/gsm_plus.py --data DIR

GSM-Plus changes 300 problems of GSM8K in eight ways. The command compares the original problems
with each kind of changed problems. Recall is the fraction of changed problems whose original is
found.
"""

import argparse
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from math_perturb import read_lines, run_decontaminate


def main() -> None:
    """Print the recall of each kind of change."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="GSM-Plus")
    data = parser.parse_args().data
    rows_by_kind: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in read_lines(data / "newer/benchmarks/gsm_plus/testmini.jsonl"):
        rows_by_kind[row["perturbation_type"]].append(row)
    with tempfile.TemporaryDirectory() as folder:
        # Each original has a changed problem of every kind.
        some_rows = next(iter(rows_by_kind.values()))
        originals = [(row["seed_question"], row["seed_answer"]) for row in some_rows]
        training = write_problems(Path(folder) / "originals.jsonl", originals)
        files = {
            kind: write_problems(
                Path(folder) / f"{kind}.jsonl", [(row["question"], row["answer"]) for row in rows]
            )
            for kind, rows in rows_by_kind.items()
        }
        pairs = run_decontaminate([training], files)["pairs"]
    for kind, rows in sorted(rows_by_kind.items()):
        found_rows = {
            pair["row"]
            for pair in pairs
            if pair["benchmark"] == kind
            and pair["question"] == rows[pair["row"] - 1]["seed_question"]
        }
        print(f"{kind:<38}{len(found_rows) / len(rows):.1%} ({len(found_rows)} of {len(rows)})")


def write_problems(file: Path, problems: list[tuple[str, Any]]) -> Path:
    """Write questions with their answers as JSON lines."""
    lines = [json.dumps({"question": text, "answer": str(answer)}) for text, answer in problems]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


if __name__ == "__main__":
    main()
