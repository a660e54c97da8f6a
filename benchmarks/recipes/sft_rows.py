"""Rows for fine-tuning Llama-3-8B: MetaMathQA and a part of MMIQC, as prompts and completions.

    python benchmarks/recipes/sft_rows.py --out rows.jsonl [--mmiqc 100000]

The prompts are those that ``--template alpaca`` makes when the model is asked.
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

from fsdpo_data.core.files import whole
from fsdpo_data.models.prompts import get_template

#: Repository, and the columns that hold question and solution.
METAMATH = ("meta-math/MetaMathQA", "query", "response")
MMIQC = ("Vivacem/MMIQC", "instruction", "output")


def rows(source: Iterable[Mapping[str, Any]], question: str, solution: str) -> Iterator[str]:
    """Yield one line of JSON for each row that has both."""
    template = get_template("alpaca")
    for row in source:
        asked, solved = str(row[question] or "").strip(), str(row[solution] or "").strip()
        if asked and solved:
            yield json.dumps({"prompt": template.render(asked), "completion": solved}) + "\n"


def main() -> None:
    """Fetch both sets and write the file, whole or not at all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--mmiqc", type=int, default=100_000, help="rows of MMIQC")
    options = parser.parse_args()
    from datasets import load_dataset

    metamath = load_dataset(METAMATH[0], split="train")
    mmiqc = load_dataset(MMIQC[0], split="train", streaming=True)
    lines = chain(rows(metamath, *METAMATH[1:]), islice(rows(mmiqc, *MMIQC[1:]), options.mmiqc))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with whole(options.out) as file:
        file.writelines(line.encode() for line in lines)


if __name__ == "__main__":
    main()
