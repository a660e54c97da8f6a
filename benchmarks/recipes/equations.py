"""Prepare a small experiment: SFT rows from the formulas of ASDiv, and a split of MAWPS.

    python benchmarks/recipes/equations.py ASDIV MAWPS MODEL [--out DIR]

The script writes ``rows.jsonl`` for ``fsdpo-train sft``; each operation of a formula is one step.
It splits MAWPS into ``test.jsonl`` (a random sample) and ``train.jsonl``. Problems that overlap
with a test problem are removed from the training problems, and SFT rows that overlap with MAWPS are
too.
"""

import ast
import json
import re
from collections.abc import Sequence
from operator import add, mul, sub, truediv
from pathlib import Path

import typer
from common_ngrams import find_common_ngrams

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.files import write_text
from fsdpo_data.core.row_files import read_records
from fsdpo_data.models.prompts import get_template
from fsdpo_data.problems.benchmark_questions import read_benchmark
from fsdpo_data.problems.load import draw_positions, load_problems

#: The sign and the function of each operator.
OPERATORS = {
    ast.Add: ("+", add),
    ast.Sub: ("-", sub),
    ast.Mult: ("*", mul),
    ast.Div: ("/", truediv),
}


def main(asdiv: Path, mawps: Path, model: Path, out: Path = Path("runs"), test: int = 400) -> None:
    """Write ``test.jsonl``, ``train.jsonl`` and ``rows.jsonl``."""
    problems = load_problems([str(mawps)], split="test")  # the split is only a label.problems
    test_positions = set(draw_positions([problem.id for problem in problems], test, 0))
    test_rows = [problems[position].to_row() for position in sorted(test_positions)]
    test_file = write_rows(out / "test.jsonl", test_rows)
    other_problems = [
        problem for position, problem in enumerate(problems) if position not in test_positions
    ]
    train_problems = clean_problems(other_problems, test_file)
    write_rows(out / "train.jsonl", [problem.to_row() for problem in train_problems])
    formulas = {
        " ".join(f"{row['body']} {row['question']}".split()): row["formula"]
        for row in (record.fields for record in read_records(asdiv))
    }
    asdiv_problems = load_problems([str(asdiv)], split="test").problems
    sft_problems = clean_problems(asdiv_problems, mawps)
    template = get_template("chat-boxed", str(model))
    sft_rows = []
    for problem in sft_problems:
        solution = solve(formulas[" ".join(problem.question.split())])
        if solution:
            prompt = template.render(problem.question)
            sft_rows.append({"prompt": prompt, "completion": solution})
    write_rows(out / "rows.jsonl", sft_rows)


def clean_problems(problems: Sequence[Problem], benchmark: Path) -> list[Problem]:
    """Return the problems without common n-grams with a benchmark."""
    questions = [question.question for question in read_benchmark(str(benchmark)).questions]
    pairs = find_common_ngrams([problem.question for problem in problems], questions)
    overlapping = {index for index, _ in pairs}
    return [problem for index, problem in enumerate(problems) if index not in overlapping]


def solve(formula: str) -> str:
    """Return the operations of a formula such as ``(10-3)*2=14``, one per line, and the answer.

    The result is empty for wrong formulas and for other notation: ``LCM[8,20]=40``, remainders,
    sequences.
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
    """Return the value of a formula, and append its operations to ``lines`` in order."""
    if isinstance(node, ast.Constant):
        return float(str(node.value))
    sign, function = OPERATORS[type(getattr(node, "op", None))]
    left = evaluate(node.left, lines)
    right = evaluate(node.right, lines)
    value = function(left, right)
    lines.append(f"{format_number(left)} {sign} {format_number(right)} = {format_number(value)}")
    return value


def format_number(value: float) -> str:
    """Return a number with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def write_rows(file: Path, rows: list[dict[str, str]]) -> Path:
    """Write rows as JSON lines, print their number, and return the file."""
    write_text(file, "".join(json.dumps(row) + "\n" for row in rows))
    print(f"{file.stem}: {len(rows)}")
    return file


if __name__ == "__main__":
    typer.run(main)
