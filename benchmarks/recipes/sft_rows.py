"""Rows for fine-tuning Llama-3-8B: MetaMathQA and a part of MMIQC, as prompts and completions.

    python benchmarks/recipes/sft_rows.py --out rows.jsonl [--mmiqc 100000]

The prompts are those that ``--template alpaca`` makes when the model is asked.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

import typer

from fsdpo_data.core.files import open_atomic
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


def main(out: Annotated[Path, typer.Option()], mmiqc: int = 100_000) -> None:
    """Fetch both sets, so many rows of MMIQC, and write the file, whole or not at all."""
    from datasets import load_dataset

    metamath = load_dataset(METAMATH[0], split="train")
    others = load_dataset(MMIQC[0], split="train", streaming=True)
    lines = chain(rows(metamath, *METAMATH[1:]), islice(rows(others, *MMIQC[1:]), mmiqc))
    out.parent.mkdir(parents=True, exist_ok=True)
    with open_atomic(out) as file:
        file.writelines(line.encode() for line in lines)


if __name__ == "__main__":
    typer.run(main)
