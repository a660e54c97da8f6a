"""Rows for fine-tuning a small model: ASDiv's formulas, an operation a step; MAWPS in two halves.

    python benchmarks/recipes/equations.py ASDIV MAWPS MODEL [--out DIR]

Writes ``rows.jsonl`` for ``fsdpo-train sft``, and MAWPS's problems as ``test.jsonl`` (drawn at
random) and ``train.jsonl``. Problems that overlap stand on one side only.
"""

import ast
import json
import re
from operator import add, mul, sub, truediv
from pathlib import Path

import typer

from fsdpo_data.core.files import write_text
from fsdpo_data.core.row_files import read_records
from fsdpo_data.models.prompts import get_template
from fsdpo_data.problems.load import draw_positions, load_problems
from fsdpo_data.stages.decontaminate import find_overlaps

SIGNS = {ast.Add: ("+", add), ast.Sub: ("-", sub), ast.Mult: ("*", mul), ast.Div: ("/", truediv)}


def main(asdiv: Path, mawps: Path, model: Path, out: Path = Path("runs"), test: int = 400) -> None:
    """Write the three files."""
    problems = load_problems([str(mawps)], split="test").problems
    places = set(draw_positions([each.id for each in problems], test, 0))
    held = write(out / "test.jsonl", [problems[i].to_row() for i in sorted(places)])
    rest = [each for i, each in enumerate(problems) if i not in places]
    write(
        out / "train.jsonl",
        [each.to_row() for each in find_overlaps(rest, [str(held)]).clean_problems],
    )
    formulas = {
        " ".join(f"{row['body']} {row['question']}".split()): row["formula"]
        for row in (record.fields for record in read_records(asdiv))
    }
    taught = find_overlaps(
        load_problems([str(asdiv)], split="test").problems, [str(mawps)]
    ).clean_problems
    template = get_template("chat-boxed", str(model))
    pairs = ((each.question, solve(formulas[" ".join(each.question.split())])) for each in taught)
    told = [{"prompt": template.render(asked), "completion": text} for asked, text in pairs if text]
    write(out / "rows.jsonl", told)


def solve(formula: str) -> str:
    """Return the operations of ``(10-3)*2=14``, one a line, and the answer; empty if it has none.

    What is no such formula (``LCM[8,20]=40``, remainders, sequences), or is wrong, has none.
    """
    left, _, right = formula.replace(" ", "").partition("=")
    if not re.fullmatch(r"[-+*/().\d]+=\d+(\.\d+)?", f"{left}={right}"):
        return ""
    lines: list[str] = []
    try:
        value = evaluate(ast.parse(left, mode="eval").body, lines)
    except (SyntaxError, ZeroDivisionError, KeyError):  # 007, 5/0, -5
        return ""
    if not lines or format_number(value) != format_number(float(right)):
        return ""
    return "\n".join([*lines, f"The answer is \\boxed{{{format_number(value)}}}."])


def evaluate(node: ast.expr, lines: list[str]) -> float:
    """Return the value of a formula; every operation becomes a line, in the order of need."""
    if isinstance(node, ast.Constant):
        return float(str(node.value))
    sign, function = SIGNS[type(getattr(node, "op", None))]
    a, b = (evaluate(side, lines) for side in (node.left, node.right))
    lines.append(f"{format_number(a)} {sign} {format_number(b)} = {format_number(function(a, b))}")
    return function(a, b)


def format_number(value: float) -> str:
    """Return a number with two decimals at most."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def write(file: Path, rows: list[dict[str, str]]) -> Path:
    """Write rows, say how many, and return the file."""
    write_text(file, "".join(json.dumps(row) + "\n" for row in rows))
    print(f"{file.stem}: {len(rows)}")
    return file


if __name__ == "__main__":
    typer.run(main)
