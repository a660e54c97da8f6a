"""Symbolic comparison: pairs that need sympy, the safety of the process, and its time limits."""

from __future__ import annotations

import ast
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fsdpo_data.answers.budget import BudgetExceededError
from fsdpo_data.answers.comparison import symbolic, worker
from fsdpo_data.answers.comparison.equivalence import compare_answers
from fsdpo_data.answers.parsing.read import read

EQUAL = [
    ("\\sum_{k=1}^{\\infty} \\frac{1}{k^2}", "\\frac{\\pi^2}{6}"),
    ("\\sum_{k=0}^{\\infty} \\frac{1}{2^k}", "2"),
    ("\\sum_{n=0}^{\\infty} x^n", "\\frac{1}{1-x}"),
    ("\\sum_{n=1}^{\\infty} n x^n", "\\frac{x}{(1-x)^2}"),
    ("\\int_0^1 x^2 \\, dx", "\\frac13"),
    ("\\int_0^1 \\sin(\\pi x) dx", "\\frac{2}{\\pi}"),
    ("\\int_{-1}^{1} |x| dx", "1"),
    ("\\int_0^{\\infty} e^{-x} dx", "1"),
    ("\\lim_{x \\to 0} \\frac{\\sin x}{x}", "1"),
    ("\\lim_{n \\to \\infty} \\left(1+\\frac1n\\right)^n", "e"),
]
DIFFERENT = [
    # The variable of an operator is real, and not a positive whole number.
    ("\\int_0^1 \\sin(\\pi x) dx", "0"),
    ("\\int_0^1 \\cos(2\\pi x) dx", "1"),
    ("\\int_{-1}^{1} |x| dx", "0"),
    ("\\int_{-2}^{1} \\sqrt{x^2} dx", "-\\frac32"),
    ("\\int_0^3 \\lfloor x\\rfloor dx", "\\frac92"),
    ("\\int_0^x |t| dt", "\\frac{x^2}{2}"),
    # A limit has two sides.
    ("\\lim_{x\\to 0} \\frac{|x|}{x}", "1"),
    ("\\lim_{x\\to 0} \\arctan(1/x)", "\\frac{\\pi}{2}"),
    ("\\lim_{x\\to 0} e^{-1/x}", "0"),
    ("\\infty", "\\lim_{x\\to\\infty} x^2"),
    ("\\sum_{k=1}^{\\infty} \\frac{1}{k^2}", "\\frac{\\pi^2}{6} + \\frac{1}{1000}"),
    ("\\sum_{n=0}^{\\infty} x^n", "\\frac{1}{1+x}"),
    ("\\sum_{n=1}^{\\infty} x^n", "\\frac{1}{1-x}"),
    ("\\int_0^1 x^2 \\, dx", "\\frac12"),
    ("\\int_0^1 x^2 \\, dx", "\\int_0^1 x^3 \\, dx"),
    ("\\lim_{n \\to \\infty} \\left(1+\\frac1n\\right)^n", "\\frac{27}{10}"),
]


@pytest.mark.parametrize(("gold", "answer"), EQUAL)
def test_equal_pairs_that_need_sympy_are_correct(gold: str, answer: str) -> None:
    for pair in ((gold, answer), (answer, gold)):
        assert compare_answers(*pair).status == "correct"


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_other_pairs_are_undecided(gold: str, answer: str) -> None:
    """Sympy proves that sides are equal. It does not prove that they differ."""
    for pair in ((gold, answer), (answer, gold)):
        assert compare_answers(*pair).status == "undecided"


def test_only_trees_reach_sympy() -> None:
    """Encoded trees have only names and integers, and the process refuses unknown names."""
    tree = read("\\int_0^1 \\sin(x) \\cdot x^2 dx")
    assert symbolic.encode_tree(tree)[0] == "int"  # type: ignore[arg-type]
    for question in (["__import__('os')"], ["Sym", "x"], ["getattr", ["Num", 1, 1]]):
        if question[0] == "Sym":
            assert worker.build_expression(question).name == "x"
            continue
        with pytest.raises(KeyError):
            worker.build_expression(question)


def test_the_process_parses_no_text() -> None:
    source = Path(worker.__file__).read_text(encoding="utf-8")
    names = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    called = {
        node.func.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    forbidden = {"sympify", "parse_expr", "S", "lambdify", "eval", "exec", "compile", "parse_latex"}
    assert not forbidden & (names | called)


def test_sympy_reads_only_operators_without_a_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(symbolic, "_ask", lambda question: pytest.fail(f"asked {question}"))
    for gold, answer in (
        ("x^2", "\\lim_{n\\to\\infty} (1+\\frac1n)^n"),  # other symbols
        ("\\frac12", "\\int_0^{10^9} e^{x^2} dx"),  # too large
        ("x+1", "x+2"),
        ("\\sum_{k=1}^{10} k", "56"),
    ):
        compare_answers(gold, answer)


def test_a_slow_question_is_timed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compare_answers(*EQUAL[2]).status == "correct"  # the process has started
    monkeypatch.setattr(symbolic, "QUESTION_TIMEOUT_SECONDS", 0.0)
    started = time.monotonic()
    assert compare_answers("\\int_0^1 x^2 e^{x} dx", "e - 2").status == "timed_out"
    assert time.monotonic() - started < symbolic.START_TIMEOUT_SECONDS
    monkeypatch.undo()
    assert compare_answers("\\int_0^1 x^2 e^{x} dx", "e - 2").status == "correct"


def test_a_question_with_too_much_processor_time_ends_the_process() -> None:
    code = (
        "from fsdpo_data.answers.comparison import worker; worker.MAX_CPU_SECONDS = 0.05;"
        "worker.are_equal = lambda *_: sum(iter(int, 1)); worker.main()"
    )
    child = subprocess.run(
        [sys.executable, "-c", code], input="[[],[]]\n", capture_output=True, text=True, timeout=60
    )
    assert (child.stdout, child.returncode) == ("0", -signal.SIGPROF)


def test_a_dead_process_is_started_again() -> None:
    assert compare_answers(*EQUAL[2]).status == "correct"
    assert symbolic._PROCESS.child is not None
    symbolic._PROCESS.child.kill()
    symbolic._PROCESS.child.wait()
    assert compare_answers(*EQUAL[2]).status == "correct"


def test_the_process_ends_after_its_last_question() -> None:
    line = json.dumps([["Num", 1, 2], ["Num", 2, 4]])
    child = subprocess.run(
        [sys.executable, "-m", "fsdpo_data.answers.comparison.worker"],
        input=f"{line}\nnot json\n", capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert child.stdout == "010"


def test_a_missing_answer_exceeds_the_budget() -> None:
    process = symbolic._SympyProcess()
    x = ["Sym", "x"]
    slow = ["int", x, ["Num", 0, 1], ["Num", 1, 1], ["sin", ["Pow", ["Const", "e"], x]]]
    with pytest.raises(BudgetExceededError):
        timeout_seconds = symbolic.QUESTION_TIMEOUT_SECONDS
        symbolic.QUESTION_TIMEOUT_SECONDS = 0.0
        try:
            process.ask([slow, ["Num", 1, 1]])
        finally:
            symbolic.QUESTION_TIMEOUT_SECONDS = timeout_seconds
            process.stop()
