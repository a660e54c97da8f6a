"""How answers are read: with all braces of their formulas, and as what their form says."""

import pytest

from fsdpo_data.answers.comparison.equivalence import compare_answers
from fsdpo_data.answers.grader import grade_response
from fsdpo_data.answers.parsing.prose import unwrap_text
from fsdpo_data.answers.parsing.read import read_answer


@pytest.mark.parametrize(
    ("braced", "flat", "answer"),
    [
        ("2^{n-1}", "2^n-1", r"\text{Answer: }2^{n-1}"),
        ("2^{n-1}", "2^n-1", "There are $2^{n-1}$ subsets."),
        (r"\sqrt{n+1}", r"\sqrt{n}+1", r"The value is $\sqrt{n+1}$"),
        ("(2^{n-1}, 3)", "(2^n-1, 3)", "P(2^{n-1}, 3)"),
        ("y=2^{n-1}", "y=2^n-1", "y=2^{n-1}"),
        ("a_{n+1}=2a_n", "a_n+1=2a_n", "a_{n+1} = 2a_n"),
        ("x_{2^{n-1}}", "x_{2^n-1}", "x_{2^{n-1}}"),
        (r"\frac{1}{2x}", r"\frac{1}{2}x", r"\textbf{Answer: }\frac{1}{2x}"),
    ],
)
def test_braces_stay_where_text_around_a_formula_is_dropped(braced, flat, answer):
    assert compare_answers(braced, answer).status == "correct"
    assert compare_answers(flat, answer).status == "incorrect"
    # The same answer with a wrapper on both sides.
    wrapped = rf"\text{{Answer: }}{flat}"
    assert compare_answers(wrapped, answer).status == "incorrect"


def test_unwrapping_drops_only_the_braces_of_wrappers():
    text = r"\text{Answer: }\left\{2^{n-1}, \mathrm{e}^{\text{(x)}}\right\}~{5}"
    assert unwrap_text(text) == r"Answer: \{2^{n-1}, e ^{ (x) } \} {5}"


def test_cells_of_a_table_keep_their_brackets():
    table = "The solutions:\n\n| pair |\n|---|\n| $(1, 2)$ |\n| \\((3, 4)\\) |\n"
    gold = read_answer("(1, 2), (3, 4)")
    assert grade_response(gold, table).status == "correct"
    assert grade_response(read_answer("1, 2, 3, 4"), table).status == "incorrect"
    functions = "| $f(x)$ |\n|---|\n| $2f(1)$ |"
    assert grade_response(read_answer("2f(1)"), functions).answer == "2f(1)"
