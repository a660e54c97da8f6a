"""Hostile texts: limits of time and memory, no execution of text, no exceptions."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from hostile import ANSWERS, RESPONSES, fuzz, payloads
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fsdpo_data.answers
from fsdpo_data.answers import GradingRequest
from fsdpo_data.answers.comparison.equivalence import compare_answers
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.core.entities import OUTCOMES

#: Maximum processor time of one grading: twice the budget in benchmarks/perf/grade.py, because a
#: test may share its processor.
MAX_SECONDS = 0.1
GOLDS = ["5", "\\frac{1}{2}", "x^2+1", "[0,1)", "3, 5", "(1,2)", "y=2x+3", "\\text{even}", "B"]
#: Names of functions that can turn text into code.
FORBIDDEN_CALLS = {
    "eval", "exec", "compile", "__import__", "literal_eval", "parse_expr", "sympify", "parse_latex",
    "latex2sympy", "lambdify", "import_module", "getattr", "setattr", "open", "system", "popen",
    "Popen", "loads", "load", "S", "globals", "locals", "vars", "fork",
}  # fmt: skip
FORBIDDEN_MODULES = {
    "ast", "code", "codeop", "ctypes", "importlib", "marshal", "os", "pickle", "runpy", "shelve",
    "shutil", "socket", "subprocess", "sympy", "latex2sympy2", "latex2sympy2_extended",
}  # fmt: skip


def shorten(text: str) -> str:
    return ascii(text[:60])


def grading_seconds(gold: str, response: str) -> float:
    started = time.process_time()
    (verdict,) = MathGrader().grade([GradingRequest(gold, response)])
    elapsed = time.process_time() - started
    assert verdict.status in OUTCOMES
    return elapsed


def best_of_three(gold: str, response: str) -> float:
    return min(grading_seconds(gold, response) for _ in range(3))


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda text: ascii(text[:24]))
def test_hostile_answers_and_golds_are_graded_in_time(answer):
    slow = [
        (gold, elapsed)
        for gold in GOLDS
        for pair in ((gold, f"So it is $\\boxed{{{answer}}}$."), (answer, f"\\boxed{{{gold}}}"))
        if grading_seconds(*pair) > MAX_SECONDS and (elapsed := best_of_three(*pair)) > MAX_SECONDS
    ]
    assert slow == []


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda text: ascii(text[:24]))
def test_hostile_answers_are_compared_with_similar_texts_in_time(answer):
    for other in (answer, answer + "1", "2" + answer):
        assert best_of_three(answer, f"\\boxed{{{other}}}") < MAX_SECONDS


@pytest.mark.parametrize("response", RESPONSES, ids=lambda text: ascii(text[:16]))
def test_responses_of_a_megabyte_are_graded_in_time(response):
    for gold in ("5", "x^2+1", "\\text{even}"):
        assert best_of_three(gold, response) < MAX_SECONDS


def test_hostile_answers_are_never_correct_for_a_plain_gold():
    fooled = [
        (gold, shorten(answer))
        for gold in GOLDS
        for answer in ANSWERS
        if compare_answers(gold, answer).status == "correct"
    ]
    assert fooled == []


def test_a_pair_over_the_budget_does_not_change_other_verdicts():
    pairs = [("5", "\\boxed{5}"), ("7", "The answer is 8."), ("", "5"), ("5", "")]
    plain = [GradingRequest(gold, response) for gold, response in pairs]
    expected = [verdict.status for verdict in MathGrader().grade(plain)]
    assert expected == ["correct", "incorrect", "gold_unparsed", "no_answer"]
    for bomb in ("(x+1)^{1000}(x-1)^{1000}", "9^{9^{9^9}}", "(" * 100_000, "\\pm 1" * 60):
        first_bomb = GradingRequest(bomb, f"\\boxed{{{bomb}+1}}")
        last_bomb = GradingRequest(bomb, "\\boxed{5}")
        batch = [plain[0], first_bomb, *plain[1:], last_bomb]
        statuses = [verdict.status for verdict in MathGrader().grade(batch)]
        assert [statuses[0], *statuses[2:5]] == expected


def test_payloads_are_not_executed_and_not_correct(tmp_path):
    marker = tmp_path / "marker"
    for payload in payloads(str(marker)):
        for gold in (*GOLDS, payload):
            for response in (
                payload,
                f"So the answer is $\\boxed{{{payload}}}$.",
                f"#### {payload}",
            ):
                (verdict,) = MathGrader().grade([GradingRequest(gold, response)])
                assert verdict.status != "correct" or gold == payload
        assert not marker.exists()


def test_source_files_do_not_use_functions_that_run_text():
    (folder,) = fsdpo_data.answers.__path__
    # The first two start a process or run in one, and only pass trees on. The last reads the
    # tables of the grader, and receives no text.
    exempt_files = {"symbolic.py", "worker.py", "tables.py"}
    files = sorted(path for path in Path(folder).rglob("*.py") if path.name not in exempt_files)
    assert len(files) >= 5
    findings = [
        f"{path.name}:{node.lineno} {name}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in forbidden_names(node)
    ]
    assert findings == []


def forbidden_names(node: ast.AST) -> list[str]:
    """Return the forbidden names that a syntax node uses."""
    if isinstance(node, ast.Import):
        return [a.name for a in node.names if a.name.split(".")[0] in FORBIDDEN_MODULES]
    if isinstance(node, ast.ImportFrom):
        module = (node.module or "").split(".")[0]
        return [module] if module in FORBIDDEN_MODULES else []
    if isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Name) and function.id in FORBIDDEN_CALLS:
            return [function.id]
        if isinstance(function, ast.Attribute) and function.attr in FORBIDDEN_CALLS:
            return [] if is_regex_compile(function) else [function.attr]
    if isinstance(node, ast.Attribute) and node.attr.startswith("__") and node.attr != "__name__":
        return [node.attr]
    return []


def is_regex_compile(function: ast.Attribute) -> bool:
    return (
        function.attr == "compile"
        and isinstance(function.value, ast.Name)
        and function.value.id == "re"
    )


WATCHED = """
import json, sys
from hostile import ANSWERS, fuzz, payloads
from fsdpo_data.answers import GradingRequest
from fsdpo_data.answers.grader import MathGrader

marker = sys.argv[1]
texts = [*ANSWERS, *payloads(marker), *fuzz(1, 500)]
golds = ["5", "x^2+1", "[0,1)", "\\\\sqrt{2}+\\\\sin 3", "\\\\text{even}", "3, 5"]
grader = MathGrader()
pairs = [GradingRequest(gold, f"\\\\boxed{{{text}}}") for text in texts for gold in golds]
pairs += [GradingRequest(text, f"\\\\boxed{{{text}+1}}") for text in texts]
grader.grade(pairs[:200])  # whatever is imported on first use is imported now
seen = set()
sys.addaudithook(lambda event, args: seen.add(event))
verdicts = grader.grade(pairs)
print(json.dumps({"seen": sorted(seen), "graded": len(verdicts)}))
"""


def test_grading_compiles_imports_and_opens_nothing(tmp_path):
    marker = tmp_path / "marker"
    tests, root = Path(__file__).parents[2] / "support", Path(__file__).parents[3]
    child = subprocess.run(
        [sys.executable, "-c", WATCHED, str(marker)],
        env={"PYTHONPATH": f"{tests}:{root}", "PATH": ""},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr
    result = json.loads(child.stdout)
    assert result["graded"] > 4_000
    assert set(result["seen"]) <= {"sys._getframe", "object.__getattr__"}
    assert not marker.exists()


@settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.text(st.characters(), max_size=200), st.text(st.characters(), max_size=200))
def test_any_text_gets_a_verdict(gold, response):
    for verdict in MathGrader().grade(
        [GradingRequest(gold, response), GradingRequest(response, gold)]
    ):
        assert verdict.status in OUTCOMES


def test_grammar_fuzz_gets_verdicts_in_time():
    check_fuzz(seed=7, count=4_000)


@pytest.mark.proof
def test_a_hundred_thousand_inputs_do_not_crash_hang_or_leak():
    check_fuzz(seed=11, count=10_000)
    old_bytes = psutil.Process().memory_info().rss
    for seed in range(20, 29):
        check_fuzz(seed, count=10_000)
    grown = psutil.Process().memory_info().rss - old_bytes
    assert grown < 64 * 2**20, f"{grown / 2**20:.0f} MB more after 90,000 inputs"


@pytest.mark.proof
@settings(max_examples=20_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(list(fuzz(5, 3_000))), min_size=1, max_size=4), st.text(max_size=9))
def test_hypothesis_finds_no_combination_that_breaks_the_grader(parts, noise):
    text = noise.join(parts)
    requests = [GradingRequest("5", text), GradingRequest(text, f"\\boxed{{{parts[0]}}}")]
    for verdict in MathGrader().grade(requests):
        assert verdict.status in OUTCOMES


def check_fuzz(seed: int, count: int) -> None:
    """Grade each text against the previous one, as answer and as gold."""
    previous = "5"
    for text in fuzz(seed, count):
        pair = (previous, f"Thus $\\boxed{{{text}}}$")
        if grading_seconds(*pair) > MAX_SECONDS:
            assert best_of_three(*pair) < MAX_SECONDS, pair
        assert compare_answers(text, previous).status in OUTCOMES
        previous = text
