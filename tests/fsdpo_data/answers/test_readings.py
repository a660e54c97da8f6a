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
    assert compare_answers(flat, answer).status != "correct"
    # The same answer with a wrapper on both sides.
    wrapped = rf"\text{{Answer: }}{flat}"
    assert compare_answers(wrapped, answer).status != "correct"


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


@pytest.mark.parametrize(
    ("gold", "answer", "status"),
    [
        # A gold or an answer that was not read.
        ("^{6}", "a^6", "undecided"),
        ("20", r"\foo{20}{1}", "undecided"),
        (r"\text{a necessary condition}", "充分条件", "undecided"),
        # Contentless and malformed answers are wrong, if the gold was read.
        ("12", "??", "incorrect"),
        ("12", "12x+", "incorrect"),
        ("12", r"\text{answer}", "incorrect"),
        ("12", r"\frac{12}{", "incorrect"),
        ("4h+4", "C()=4h+4", "incorrect"),
        # Words that deny, hedge or bound the value.
        ("5", r"\text{not } 5", "incorrect"),
        ("5", r"\text{either } 5 \text{ or } 7", "incorrect"),
        ("5", r"\text{at least } 5", "undecided"),
        ("5", r"5 \text{ with remainder } 2", "undecided"),
        ("6", r"x=6\text{ is the only solution}", "correct"),
        ("6", r"6\text{ is not the only solution}", "incorrect"),
        # Readings of a part.
        ("10 \\$", r"\text{The sombrero costs } \$10.00.", "correct"),
        ("5", r"5 \text{ for all } x \in [-1, 1]", "correct"),
        ("20", "P(5,2) = 5 \\cdot 4 = 20", "correct"),
        ("(1,2),(3,4)", "A(1,2), B(3,4)", "correct"),
        ("(1,2),(3,4)", "A(3,4), B(2,1)", "undecided"),
        (r"\text{page 6}", r"6 \text{ pages}", "undecided"),
        (r"\text{Vendor 2}", r"\text{I have no idea}", "incorrect"),
        ("(2,3)", r"P\left(2,3\right)", "correct"),
        ("5", r"5 \text{ when } x = 2", "correct"),
        ("5", r"5 \text{ when } x=2 \text{ and } 7 \text{ otherwise}", "undecided"),
        # A gold without a unit may have another unit; a whole number has none.
        ("8.7e8", r"8.7\times10^{6}\ \text{m}", "undecided"),
        ("50", r"5\ \text{m}", "incorrect"),
        ("", "5", "gold_unparsed"),
    ],
)
def test_parts_of_answers_decide_only_if_the_rest_allows_it(gold, answer, status):
    verdict = compare_answers(gold, answer)
    assert verdict.status == status
    assert bool(verdict.unread) == (status == "undecided")


def test_only_marked_answers_are_undecided():
    gold = read_answer("20")
    unread = r"\foo{20}{1}"
    assert grade_response(gold, rf"So $\boxed{{{unread}}}$.").status == "undecided"
    assert grade_response(gold, f"So we find ${unread}$.").status == "incorrect"
    assert grade_response(read_answer("^{6}"), "So we find $a^6$.").status == "undecided"


@pytest.mark.parametrize(
    ("gold", "answer", "status"),
    [
        (r"[2,\infty)", r"\text{all integers }x\ge2", "undecided"),
        (r"[2,\infty)", r"x\ge2\text{ integer}", "undecided"),
        (r"[2,\infty)", r"x\ge2\text{ where }x\in\mathbb{Z}", "undecided"),
        (r"[2,\infty)", r"x\ge2\text{ where }x\text{ is an integer}", "undecided"),
        (r"n\ge3", r"\text{all odd }n\ge3", "undecided"),
        (r"n\ge3", r"\text{some }n\ge3", "undecided"),
        (r"n\ge3", r"n\ge3\text{ with }n\text{ odd}", "undecided"),
        (r"n\ge3\text{ odd}", r"n\ge3", "undecided"),
        ("y=2x", r"y=2x\text{ for odd }x", "undecided"),
        (r"n\ge3\text{ odd}", r"n\ge3\text{ odd}", "correct"),
        (r"[2,\infty)", r"\text{all real }x\ge2", "correct"),
        (r"n\ge3", r"\text{all integers }n\ge3", "correct"),
        (r"n\ge3", r"n\ge3\text{ integer}", "correct"),
        ("y=cx", r"y=cx\text{ for some constant }c", "correct"),
        ("7", r"\text{the prime }p=7", "correct"),
    ],
)
def test_words_may_restrict_the_numbers_of_a_statement(gold, answer, status):
    assert compare_answers(gold, answer).status == status


@pytest.mark.parametrize(
    ("gold", "answer", "status"),
    [
        ("6", r"2a=12\Rightarrow a=6", "correct"),
        ("6", "2a=12 ⇒ a=6", "correct"),
        ("6", r"3a=18\implies 2a=12\implies a=6", "correct"),
        ("x>2", r"2x>4\iff x>2", "correct"),
        ("2,3", r"x^2-5x+6=0\Rightarrow x=2,3", "correct"),
        ("5", r"2a=12\Rightarrow a=6", "incorrect"),
        ("12", r"2a=12\Rightarrow a=6", "incorrect"),
        ("x>2", r"2x>4\Rightarrow x>3", "incorrect"),
        (r"p\Rightarrow q", "q", "incorrect"),
        ("q", r"p\Rightarrow q", "undecided"),
        ("0", r"x_n\to0", "undecided"),
        ("1", r"x_n\to0", "incorrect"),
    ],
)
def test_the_last_statement_of_a_chain_is_the_answer(gold, answer, status):
    assert compare_answers(gold, answer).status == status


@pytest.mark.parametrize(
    ("gold", "answer", "status"),
    [
        ("5", r"\text{coprime to }5", "undecided"),
        ("5", r"\text{divisible by }5", "undecided"),
        ("5", r"\text{a power of }5", "undecided"),
        ("5", r"5\text{ to the third}", "undecided"),
        ("1999", r"\text{before }1999", "undecided"),
        ("x^2", r"\text{the derivative of }x^2", "undecided"),
        ("3,5", r"\text{from }3\text{ to }5", "undecided"),
        ("3,5", r"3\text{ plus }5", "undecided"),
        ("3,5", r"3\text{ per }5", "undecided"),
        (r"\infty", r"\text{goes to }\infty", "correct"),
        (r"-\infty", r"\text{diverges to }-\infty", "correct"),
        ("8", r"\text{total of }8", "correct"),
        ("5", r"\text{it reduces to }5", "correct"),
        ("5", r"5\text{ to the nearest integer}", "correct"),
        ("5", r"5\text{ apples after lunch}", "correct"),
        ("1999", r"\text{in the year }1999", "correct"),
        ("2x", r"\text{derivative }2x", "correct"),
        ("3,5", r"3\text{ and }5", "correct"),
    ],
)
def test_words_may_make_another_value_of_a_formula(gold, answer, status):
    assert compare_answers(gold, answer).status == status


@pytest.mark.parametrize(
    ("gold", "answer", "status"),
    [
        ("y=2x+3", "l: y=2x+3", "correct"),
        ("x^2+y^2=4", "C: x^2+y^2=4", "correct"),
        ("l: y=2x+3", "y=2x+3", "correct"),
        ("y=2x+3", "l: y=2x+4", "incorrect"),
        ("l: y=2x+3", "m: y=2x+3", "incorrect"),
        ("b=3", "a:b=3", "incorrect"),
        (r"[2,\infty)", r"f(x)\ge2", "correct"),
        (r"[2,\infty)", r"f(x)\in[2,\infty)", "correct"),
        (r"y\ge2", r"f(x)\ge2", "correct"),
        (r"[2,\infty)", "f(x)>2", "incorrect"),
        (r"[2,\infty)", r"f(2)\ge2", "incorrect"),
        (r"f(x)\ge2", r"x\ge2", "incorrect"),
    ],
)
def test_names_of_curves_and_values_of_functions(gold, answer, status):
    assert compare_answers(gold, answer).status == status


@pytest.mark.parametrize(
    ("gold", "answer", "status"),
    [
        (r"1/2\text{ cup}", r"\text{half a cup}", "correct"),
        ("0.5", r"\text{half a mile}", "correct"),
        ("18", r"\$18\text{ a day}", "correct"),
        ("5", r"5\text{ PM}", "correct"),
        ("5", r"5\text{ o'clock}", "undecided"),
        ("6", r"5\text{ PM}", "incorrect"),
        (r"5\text{ PM}", r"5\text{ AM}", "incorrect"),
        ("A3F_{16}", "A3F", "undecided"),
        ("1011_2", "0b1011", "undecided"),
        ("1011_2", "0b1010", "incorrect"),
        ("(2,-3)", "[2,-3]", "undecided"),
        ("(2,3)", "[2,3]", "incorrect"),
        (r"2\frac34", r"2\text{ and }\frac34", "undecided"),
        (r"\text{March 5, 2021}", "2021-03-05", "correct"),
        (r"\text{March 5, 2021}", "2021-03-06", "incorrect"),
        ("1975", "2000-10-15", "correct"),
        ("DNE", r"\text{The limit doesn't exist}", "correct"),
        ("1/12", r"\text{1 over 12}", "correct"),
        ("-12", r"\text{12 below zero}", "undecided"),
    ],
)
def test_other_notations_of_a_value(gold, answer, status):
    assert compare_answers(gold, answer).status == status


@pytest.mark.parametrize(
    ("gold", "answer", "status"),
    [
        (r"\mathbf a\times\mathbf b", r"\mathbf b\times\mathbf a", "undecided"),
        (r"\nabla\times\mathbf F", r"\nabla\cdot\mathbf F", "undecided"),
        (r"a\times b", r"b\times a", "correct"),
        (r"(1\ 2\ 3)(4\ 5)", r"(1\ 2)(3\ 4\ 5)", "undecided"),
        ("(1 2 3)(4 5)", r"(1\ 2\ 3)(4\ 5)", "correct"),
        ("5! is a multiple of 8", r"\text{5 is a multiple of 8}", "undecided"),
        ("CO", r"\text{Co}", "undecided"),
        ("AB", r"\text{AB}", "correct"),
        (r"\frac12x", "1/2x", "undecided"),
        (r"\frac1{2x}", "1/2x", "undecided"),
        (r"\frac1{3x}", "1/2x", "incorrect"),
        (r"\frac12 x", "(1/2)x", "correct"),
        ("1/2", "1/2 m", "correct"),
        ("1/3", "1/3s", "correct"),
    ],
)
def test_notations_with_two_meanings(gold, answer, status):
    assert compare_answers(gold, answer).status == status
