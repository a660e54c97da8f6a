"""Write SFT rows for Llama-3-8B from MetaMathQA and a part of MMIQC.

    python benchmarks/recipes/sft_rows.py --out rows.jsonl [--mmiqc 100000]

The prompts use the template ``alpaca``, as ``--template alpaca`` does at inference.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from fsdpo_data.core.files import open_atomic
from fsdpo_data.models.prompts import get_template


class SftSource(NamedTuple):
    """A data set on the Hub with questions and solutions."""

    repository: str  #: Name of the repository.
    question_column: str  #: Column of the questions.
    solution_column: str  #: Column of the solutions.


METAMATH = SftSource("meta-math/MetaMathQA", "query", "response")
MMIQC = SftSource("Vivacem/MMIQC", "instruction", "output")


def format_rows(rows: Iterable[Mapping[str, Any]], source: SftSource) -> Iterator[str]:
    """Yield a line of JSON for each row with a question and a solution."""
    template = get_template("alpaca")
    for row in rows:
        question = str(row[source.question_column] or "").strip()
        solution = str(row[source.solution_column] or "").strip()
        if question and solution:
            yield json.dumps({"prompt": template.render(question), "completion": solution}) + "\n"


def main(out: Annotated[Path, typer.Option()], mmiqc: int = 100_000) -> None:
    """Download MetaMathQA and ``mmiqc`` rows of MMIQC, and write the file atomically."""
    from datasets import load_dataset

    metamath_rows = load_dataset(METAMATH.repository, split="train")
    mmiqc_rows = load_dataset(MMIQC.repository, split="train", streaming=True)
    mmiqc_lines = islice(format_rows(mmiqc_rows, MMIQC), mmiqc)
    lines = chain(format_rows(metamath_rows, METAMATH), mmiqc_lines)
    out.parent.mkdir(parents=True, exist_ok=True)
    with open_atomic(out) as file:
        file.writelines(line.encode() for line in lines)


if __name__ == "__main__":
    typer.run(main)
