"""Rows for fine-tuning a small model: ASDiv's formulas, an operation a step; MAWPS in two halves.

    python benchmarks/recipes/equations.py --asdiv FILE --mawps FILE --model DIR --out DIR

Writes ``rows.jsonl`` for ``fsdpo-train sft``, and MAWPS's problems as ``test.jsonl`` (drawn at
random) and ``train.jsonl`` (the rest). What overlaps with a test problem is in neither of the
others, and what overlaps with a problem of MAWPS is in no row: variants of one problem stand
on one side.
"""

import ast
import json
import operator
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fsdpo_data.core.files import write_text
from fsdpo_data.core.nouns import Problem
from fsdpo_data.core.rows import read_records
from fsdpo_data.models.prompts import get_template
from fsdpo_data.problems.load import drawn, load_problems
from fsdpo_data.problems.overlap import Text, overlaps

OPERATIONS = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
}


def main(
    asdiv: Annotated[Path, typer.Option()],
    mawps: Annotated[Path, typer.Option()],
    model: Annotated[Path, typer.Option()],
    out: Annotated[Path, typer.Option()],
    test: int = 400,
) -> None:
    """Write the three files."""
    problems = load_problems([str(mawps)], split="test").problems
    places = drawn([each.id for each in problems], test, 0)
    held = [problems[i] for i in places]
    rest = [problems[i] for i in sorted(set(range(len(problems))).difference(places))]
    met = met_in([each.question for each in rest], held)
    train = [each for i, each in enumerate(rest) if i not in met]
    records = [record.fields for record in read_records(asdiv)]
    questions = [f"{row['body']} {row['question']}" for row in records]
    met = met_in(questions, problems)
    template = get_template("chat-boxed", str(model))
    rows = [
        {"prompt": template.render(questions[i]), "completion": solution}
        for i, row in enumerate(records)
        if i not in met and (solution := worked(row["formula"]))
    ]
    out.mkdir(parents=True, exist_ok=True)
    sides = {
        name: [{"question": each.question, "answer": each.answer} for each in some]
        for name, some in (("train", train), ("test", held))
    }
    for name, told in {"rows": rows, **sides}.items():
        write_text(out / f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in told))
        print(f"{name}: {len(told)}")


def worked(formula: str) -> str:
    """Return the operations of ``(10-3)*2=14``, one a line, and the answer; empty if it has none.

    What is no such formula (``LCM[8,20]=40``, remainders, sequences), or is wrong, has none.
    """
    left, _, right = formula.replace(" ", "").partition("=")
    if not re.fullmatch(r"[-+*/().\d]+=\d+(\.\d+)?", f"{left}={right}"):
        return ""
    lines: list[str] = []
    try:
        value = computed(ast.parse(left, mode="eval").body, lines)
    except (SyntaxError, ZeroDivisionError, KeyError):  # 007, 5/0, -5
        return ""
    if not lines or shown(value) != shown(float(right)):
        return ""
    return "\n".join([*lines, f"The answer is \\boxed{{{shown(value)}}}."])


def computed(node: ast.expr, lines: list[str]) -> float:
    """Return the value of a formula; every operation becomes a line, in the order of need."""
    if isinstance(node, ast.Constant):
        return float(str(node.value))
    sign, function = OPERATIONS[type(getattr(node, "op", None))]
    a, b = (computed(side, lines) for side in (node.left, node.right))
    lines.append(f"{shown(a)} {sign} {shown(b)} = {shown(function(a, b))}")
    return function(a, b)


def shown(value: float) -> str:
    """Return a number with two decimals at most."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def met_in(questions: Sequence[str], problems: Sequence[Problem]) -> set[int]:
    """Return the places of the questions that are, or overlap with, one of the problems."""
    ours = [Text("", row, each, "") for row, each in enumerate(questions)]
    theirs = [Text("", row, each.question, "") for row, each in enumerate(problems)]
    return set(overlaps(ours, theirs)["training"])


if __name__ == "__main__":
    typer.run(main)
