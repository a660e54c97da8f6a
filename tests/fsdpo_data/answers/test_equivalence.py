r"""Equivalence of answers: examples of every kind, and properties of random values."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsdpo_data.answers import GradingRequest
from fsdpo_data.answers.comparison.equivalence import MAX_OPERATIONS, compare_answers
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.answers.parsing.read import read_answer
from fsdpo_data.core.entities import OUTCOMES

#: For each kind: golds with equivalent answers and with different ones.
TABLE = {
    "decimals to the precision they show": (
        ("\\frac13", ["0.3333333333", "0.\\overline{3}"], ["0.33", "0.3334", "0.34"]),
        ("\\frac14", ["0.25", ".250"], ["0.2", "0.3"]),
        ("\\sqrt2", ["1.41421356", "\\frac{2}{\\sqrt2}"], ["1.41", "1.5"]),
        ("14916", ["14916.0"], ["14917", "14916.01"]),
        ("0.6666666667", ["2/3"], ["0.67"]),
    ),
    "percent and money, never by a factor": (
        ("25\\%", ["25", "25%", "0.25", "\\frac14"], ["2500", "0.25%", "2.5"]),
        ("18", ["18\\%"], ["1800", "0.18"]),
        ("\\$5", ["5", "5 dollars", "500 cents"], ["5 cents", "€5"]),
    ),
    "units": (
        ("5 \\text{ cm}", ["5", "5cm", "0.05 m"], ["5 m", "5 kg", "5 cm^2"]),
        ("12 \\text{ square units}", ["12", "12 units^2"], ["12 cubic units", "12 units"]),
        ("162\\text{ minutes}", ["162", "2 hours 42 minutes"], ["162 hours"]),
        ("\\frac{37}{4} m", ["9.25m", "37/4 meters"], ["\\frac{37}{4}", "\\frac{37}{4} cm"]),
        ("9 (apples)", ["9", "nine apples"], ["8 apples", "9 cm"]),
    ),
    "numbers too small or large for a tolerance": (
        ("\\frac{1}{2004!}", ["\\frac{1}{2004 \\cdot 2003!}"], ["\\frac{1}{2006!}", "0"]),
        ("e^{-50}", ["\\frac{1}{e^{50}}"], ["e^{-51}", "0"]),
        ("2^{2005}", ["2 \\cdot 4^{1002}"], ["2^{2004}"]),
        ("1-10^{-10}", [], ["1"]),
        ("\\binom{400}{40}", ["\\binom{400}{360}", "C_{400}^{40}"], ["\\binom{400}{41}"]),
    ),
    "expressions": (
        ("x^2-1", ["(x-1)(x+1)"], ["x^2+1", "y^2-1", "x^2-1=0"]),
        ("|x-1|", ["|1-x|", "\\sqrt{(x-1)^2}"], ["x-1"]),
        ("\\sqrt{ab}", ["\\sqrt a\\sqrt b"], ["\\sqrt{a}b"]),
        ("\\sin 2x", ["2\\sin x\\cos x"], ["\\cos 2x"]),
        ("I(0) e^{-\\frac{t}{R C}}", ["I(0)e^{-t/RC}"], ["I(1)e^{-t/RC}", "0"]),
        ("E_1", [], ["e_1", "E_2", "E"]),
    ),
    "equations and functions": (
        ("4x-5y=-50", ["5y-4x=50", "y = \\frac45x+10"], ["4x-5y=50", "4x-5y"]),
        ("\\frac{d x}{d t}=k x-a", ["x' = kx-a", "\\dot x + a = kx"], ["x' = kx+a"]),
        ("f(x)=2x+1", ["y=2x+1", "2x+1", "f(t)=2t+1"], ["g(x)=2x+1", "f(x)=2x"]),
        ("5", ["x=5", "k = 2+3 = 5"], ["x=6", "x+1=5"]),
        ("x=5", ["5"], ["y=5"]),
    ),
    "intervals and relations": (
        ("[2,\\infty)", ["x \\ge 2", "\\{x \\mid 2 \\le x\\}"], ["(2,\\infty)", "x>2", ]),
        ("x \\in [-2,7]", ["[-2,7]", "-2 \\le x \\le 7"], ["(-2,7]", "y \\in [-2,7]"]),
        (
            "(-\\infty,4)\\cup(4,\\infty)",
            ["x \\ne 4", "\\mathbb{R}\\setminus\\{4\\}", "x<4 \\text{ or } x>4"],
            ["x \\ne 3", "\\mathbb{R}", "(-\\infty,4)"],
        ),
        ("b > a > c", ["c < a < b"], ["b > c > a", "b \\ge a > c", "I have no idea."]),
        ("x+y<3", ["y<3-x", "3>x+y"], ["x+y>3", "x+y\\le3"]),
    ),
    "lists, sets, tuples": (
        ("1, 2", ["2, 1", "\\{1,2\\}", "x=1 \\text{ or } x=2"], ["1", "1, 2, 3", "12"]),
        ("(1,2)", ["x=1, y=2"], ["(2,1)", "[1,2]", "\\{1,2\\}", "(1,2,0)"]),
        ("1 \\pm \\sqrt{19}", ["1-\\sqrt{19}, 1+\\sqrt{19}"], ["1+\\sqrt{19}"]),
        ("5", ["5, 5"], ["5 or 6", "4, 5", "5, 6"]),
        ("\\{3k \\mid k \\in \\mathbb{Z}\\}", ["x=3n, n \\in ℤ"], ["x=2n, n \\in ℤ"]),
        ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", ["(1,2)"], ["(2,1)"]),
    ),
    "sets and tuples in each other": (
        (
            "\\{\\{1,2\\},\\{3\\}\\}",
            ["\\{\\{3\\},\\{2,1\\}\\}", "\\{1,2\\}, \\{3\\}"],
            ["\\{\\{2,1\\},3\\}", "\\{\\{1,2\\},3\\}", "\\{1,2\\}, 3", "\\{1,2,3\\}"],
        ),
        ("\\{\\{1\\},2\\}", ["\\{2,\\{1\\}\\}"], ["\\{1,2\\}", "\\{\\{\\{1\\}\\},2\\}"]),
        ("\\{\\{1\\}\\}", [], ["1", "\\{1\\}"]),
        ("\\{1\\}", ["1"], ["\\{\\{1\\}\\}"]),
        ("(\\{1,2\\},3)", ["(\\{2,1\\},3)"], ["(\\{1,2\\},\\{3\\})", "((1,2),3)"]),
        ("(1,2)", [], ["(\\{1\\},2)", "(\\{1\\},\\{2\\})", "\\{(1,2)\\}"]),
        ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", [], ["(\\{1\\},2)"]),
        (
            "\\{(\\{1,2\\},\\{3\\}),4\\}",
            ["\\{4,(\\{2,1\\},\\{3\\})\\}"],
            ["\\{(\\{2,1\\},3),4\\}", "\\{(1,2,3),4\\}"],
        ),
        ("\\{(1,2),(3,4)\\}", ["(3,4), (1,2)"], ["\\{(2,1),(4,3)\\}", "\\{(\\{1\\},2),(3,4)\\}"]),
        ("x \\in \\{\\{1\\},2\\}", ["x \\in \\{2,\\{1\\}\\}"], ["x \\in \\{1,2\\}"]),
        ("\\{\\{1\\}\\} \\cup \\{2\\}", ["\\{2\\} \\cup \\{\\{1\\}\\}"], ["\\{1,2\\}"]),
        # The names of counted things still matter after a set inside the list.
        (
            "\\{\\{1,2\\}, 9 red, 5 blue\\}",
            ["\\{5 blue, 9 red, \\{2,1\\}\\}"],
            ["\\{\\{2,1\\}, 5 red, 9 blue\\}"],
        ),
    ),
    "kinds with a notation of their own": (
        ("22:15", ["22 to 15", "\\frac{22}{15}", "44:30"], ["15:22"]),
        ("3:30 p.m.", ["15:30", "3:30 PM"], ["3:30 a.m.", "3:31 p.m."]),
        ("February 3rd", ["3 February"], ["March 3", "February 4"]),
        ("25_6", ["25_{6}", "25 base 6", "25"], ["25_7", "17"]),
        ("90^\\circ", ["90", "90 degrees", "\\frac{\\pi}{2}"], ["100^\\circ", "\\frac{\\pi}{3}"]),
        ("2+3i", ["3i+2"], ["2-3i"]),
        ("12", ["twelve", "a dozen"], ["twenty"]),
        ("6th", ["sixth"], ["16th"]),
    ),
    "choices and words": (
        ("\\text{(D)}", ["D", "(D) 42", "option D"], ["A", "C or D", "A, B, C, D"]),
        ("\\text{A,C,F}", ["F, C, A", "ACF"], ["A, C"]),
        ("Rug B", ["rug B.", "B"], ["Rug A", "A"]),
        ("They are equal", ["equal", "They are **equal**."], ["They are not equal"]),
    ),
}  # fmt: skip
CASES = [
    (kind, gold, answer, right)
    for kind, rows in TABLE.items()
    for gold, good, bad in rows
    for answer, right in [(a, True) for a in good] + [(a, False) for a in bad]
]


@pytest.mark.parametrize(("kind", "gold", "answer", "right"), CASES)
def test_examples_of_every_kind(kind, gold, answer, right):
    verdict = compare_answers(gold, answer)
    assert (verdict.status == "correct") is right, verdict


#: Golds whose verdicts change if the sides are exchanged.
ASYMMETRIC_GOLDS = {"\\frac{37}{4} m", "\\text{(D)}", "25_6", "Rug B", "5", "They are equal"}


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [(gold, answer, right) for _, gold, answer, right in CASES if gold not in ASYMMETRIC_GOLDS],
)
def test_verdicts_are_symmetric(gold, answer, right):
    assert (compare_answers(answer, gold).status == "correct") is right


def test_a_verdict_has_its_rule_and_both_parsed_forms():
    verdict = compare_answers("[2,\\infty)", "x > 2")
    assert (verdict.status, verdict.rule) == ("incorrect", "tuple")
    assert (verdict.gold_form, verdict.answer_form) == ("[2, inf)", "x > 2")


def test_blank_golds_and_answers_have_other_statuses():
    assert compare_answers(" ", "5").status == "gold_unparsed"
    assert compare_answers("5", " ").status == "no_answer"


def test_the_tolerant_rule_rounds_to_the_gold_or_allows_a_relative_error():
    for gold, answer in (
        ("41.8", "41.75"),
        ("0.33", "1/3"),
        ("4.5e33", "4.53e33"),
        ("-7", "-6.95"),
    ):
        assert compare_answers(gold, answer).status == "incorrect"
        assert compare_answers(gold, answer, 0.01).status == "correct", (gold, answer)
    for gold, answer in (("41.8", "42.5"), ("0", "0.01"), ("-7", "7"), ("x", "1.001x")):
        assert compare_answers(gold, answer, 0.01).status == "incorrect", (gold, answer)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("9^{9^{9^{9}}}", "9^{9^{9^{9}}}+1"),
        ("(10^{30})!", "(10^{30})!+1"),
        ("\\sin(10^{300})", "\\sin(10^{300})+1"),
    ],
)
def test_too_large_values_on_both_sides_are_timed_out(left, right):
    assert compare_answers(left, right).status == "timed_out"
    assert compare_answers(left, left).status == "correct"
    assert compare_answers("5", left).status == "incorrect"


def test_the_number_of_operations_of_a_comparison_is_limited():
    terms = "+".join(f"\\sqrt{{x+{k}}}" for k in range(150))
    other = "+".join(f"\\sqrt{{x+{k}}}" for k in reversed(range(150)))
    assert compare_answers(terms, other).status in ("correct", "timed_out")
    assert MAX_OPERATIONS < 10**6


def test_equal_keys_are_equivalent_answers():
    texts = [
        text for rows in TABLE.values() for gold, good, bad in rows for text in (gold, *good, *bad)
    ]
    for left in texts:
        for right in texts:
            if read_answer(left).key == read_answer(right).key:
                assert compare_answers(left, right).status == "correct", (left, right)
    assert read_answer("1,000").key == read_answer("$1000$").key == read_answer("1000.0").key


def test_no_text_has_the_key_of_a_number():
    for number, text in (("10", "a/1"), ("171/13", "ab/d"), ("-10", "-a/1")):
        assert read_answer(number).key != read_answer(text).key
        assert (
            compare_answers(number, text).status
            == compare_answers(text, number).status
            == "incorrect"
        )


fractions = st.fractions(min_value=-1000, max_value=1000, max_denominator=500)


def latex(value):
    sign = "-" if value < 0 else ""
    return f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


@given(fractions, st.integers(1, 50))
def test_a_fraction_equals_its_unsimplified_forms_and_no_other_value(value, factor):
    raw = f"{value.numerator * factor}/{value.denominator * factor}"
    assert compare_answers(latex(value), raw).status == "correct"
    assert compare_answers(latex(value), latex(value + Fraction(1, 10**6))).status == "incorrect"


@given(st.integers(-(10**12), 10**12))
def test_an_integer_equals_itself_in_every_notation_and_not_its_neighbour(number):
    for text in (
        f"{number:,}",
        f"{number}.0",
        f"${number}$",
        f"\\boxed{{{number}}}",
        f"x = {number}",
    ):
        assert compare_answers(str(number), text).status == "correct", text
    assert compare_answers(str(number), str(number + 1)).status == "incorrect"
    assert compare_answers(str(number), str(number * 100 + 7)).status == "incorrect"


EXPRESSIONS = st.recursive(
    st.sampled_from(["x", "y", "2", "3", "\\pi", "a_1"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: f"({p[0]} + {p[1]})"),
        st.tuples(inner, inner).map(lambda p: f"{p[0]} \\cdot {p[1]}"),
        st.tuples(inner, inner).map(lambda p: f"\\frac{{{p[0]}}}{{{p[1]} + 7}}"),
        inner.map(lambda e: f"\\sqrt{{{e}}}"),
        inner.map(lambda e: f"\\sin({e})"),
        inner.map(lambda e: f"({e})^2"),
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=60)
@given(EXPRESSIONS, EXPRESSIONS)
def test_an_expression_equals_its_rearrangements_only(left, right):
    total = f"{left} + {right}"
    for text in (
        f"{right} + {left}",
        f"2({total}) - {left} - {right}",
        f"\\frac{{3({total})}}{{3}}",
    ):
        assert compare_answers(total, text).status == "correct", text
    assert compare_answers(total, f"{total} + 1").status != "correct"
    assert compare_answers(f"z = {total}", f"2z - 2({total}) = 0").status == "correct"


@given(st.integers(-50, 50), st.integers(1, 50), st.sampled_from("(["), st.sampled_from(")]"))
def test_an_interval_is_its_inequality_and_its_brackets_matter(low, width, left, right):
    high = low + width
    interval = f"{left}{low}, {high}{right}"
    signs = ("\\le" if left == "[" else "<", "\\le" if right == "]" else "<")
    relation = f"{low} {signs[0]} x {signs[1]} {high}"
    assert compare_answers(interval, relation).status == "correct"
    assert compare_answers(relation, interval).status == "correct"
    other = f"{'(' if left == '[' else '['}{low}, {high}{right}"
    assert compare_answers(interval, other).status == "incorrect"
    assert compare_answers(other, relation).status == "incorrect"


@given(st.text(max_size=60), st.text(max_size=60))
def test_comparing_never_raises(gold, answer):
    assert compare_answers(gold, answer).status in OUTCOMES


@given(st.text(min_size=1, max_size=60))
def test_every_text_equals_itself(text):
    assert compare_answers(text, text).status in ("correct", "gold_unparsed")


@pytest.mark.parametrize(
    ("gold", "response", "right"),
    [
        ("Brand A", "So Brand A is cheaper than Brand B.", True),
        ("Brand B", "So Brand A is cheaper than Brand B.", False),
        ("Brand A", "Brand B is cheaper.", False),
        ("Sara", "Sara or John has the most.", False),
        ("Sara", "John has more than Sara.", False),
        ("Sara", "Sara has fewer apples than John.", False),
        ("October", "She started in October.", True),
        ("\\text{even}", "The function is not even.", False),
        ("\\text{even}", "The function is even.", True),
        ("February 3rd", "The due date is February 3rd.", True),
        ("February 3rd", "It is due between February 3rd and March 1st.", False),
    ],
)
def test_a_gold_in_words_may_be_stated_by_the_last_sentence(gold, response, right):
    (verdict,) = MathGrader().grade([GradingRequest(gold, response)])
    assert (verdict.status == "correct") is right, verdict


def test_boxes_are_not_searched_for_words():
    response = "Brand A is cheaper. $\\boxed{\\text{Brand B}}$"
    assert MathGrader().grade([GradingRequest("Brand A", response)])[0].status == "incorrect"


@pytest.mark.parametrize(
    ("gold", "answer", "status"),
    [
        (r"\max(3, 2)", "3", "correct"),
        (r"\max(3, 2)", "5", "incorrect"),
        (r"x<\frac{(-8)^{1+i}}{2}", "x<3", "incorrect"),
        ("x<(-8)^{i/3}, y<2", "x<3, y<2", "incorrect"),
    ],
)
def test_odd_calls_and_powers_have_a_verdict(gold: str, answer: str, status: str) -> None:
    assert compare_answers(gold, answer).status == status


def test_a_list_of_points_is_not_a_union_of_intervals() -> None:
    assert compare_answers("(1,3),(2,4)", "(1,4),(2,3)").status == "incorrect"
    assert compare_answers("(3,3),(4,4)", "(5,5),(6,6)").status == "incorrect"


def test_otherwise_covers_the_remaining_values_of_its_own_side() -> None:
    cases = r"f(x) = \begin{{cases}} {} & x > 1 \\ {} & \text{{otherwise}} \end{{cases}}"
    gold = cases.format("x + 1", "2")
    assert compare_answers(gold, cases.format("x + 1", "2")).status == "correct"
    assert compare_answers(gold, cases.format("2", "x + 1")).status == "incorrect"


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("0.022", "0.0219", True),
        ("0.022", "0.0214", False),
        ("4.33", "\\frac{13}{3}", True),
        ("$5.7 \\mathrm{hr}$", "5.68 \\text{ hours}", True),
        ("5", "5.2", False),
        ("145", "145.3", False),
    ],
)
def test_the_tolerant_rule_without_an_error_compares_the_given_digits(gold, answer, right):
    assert compare_answers(gold, answer).status == "incorrect"
    assert (compare_answers(gold, answer, 0.0).status == "correct") == right


@pytest.mark.parametrize(
    ("gold", "answer", "status"),
    [
        ("1/3", r"33.3333\%", "correct"),
        ("1/3", r"33.(3)\%", "correct"),
        ("1/3", r"33.3\%", "incorrect"),
        ("1/3", r"33.34\%", "incorrect"),
        ("1/6", "0.1(6)", "correct"),
        ("1/6", "0.1(5)", "incorrect"),
        ("2", "0.5(4)", "undecided"),  # it may be a product
        ("2", "0.5(4) = 2", "correct"),
    ],
)
def test_recurring_decimals_and_their_percentages(gold, answer, status):
    assert compare_answers(gold, answer).status == status


@pytest.mark.parametrize(
    ("gold", "answer", "status"),
    [
        ("(-1)^n", r"\cos n\pi", "correct"),
        (r"\cos(\pi n)", "(-1)^n", "correct"),
        (r"\frac{(-1)^n}{n}\sin nx", r"\frac{\cos n\pi}{n}\sin nx", "correct"),
        ("(-1)^{n+m}", "(-1)^{n-m}", "correct"),
        ("(-1)^n", r"-\cos n\pi", "incorrect"),
        ("(-1)^n", "(-1)^{n+1}", "incorrect"),
        ("(-1)^n", "(-1)^{2n}", "incorrect"),
        ("(-1)^{n+m}", "(-1)^{nm}", "incorrect"),
        ("(-1)^x", r"\cos \pi x", "incorrect"),
    ],
)
def test_alternating_signs_are_compared_at_integers(gold, answer, status):
    assert compare_answers(gold, answer).status == status


@pytest.mark.parametrize(
    ("gold", "answer", "status"),
    [
        ("2.5", r"2,5\text{ km}", "correct"),
        (r"2.5\text{ km}", r"2,5\text{ km}", "correct"),
        (r"2,5\text{ km}", r"2.5\text{ km}", "correct"),
        (r"2,5\text{ km}", r"2.6\text{ km}", "incorrect"),
        ("25", r"2,5\text{ km}", "incorrect"),
        ("0,75", "0.75", "undecided"),  # the gold may be a list
        ("0,75", "0.76", "incorrect"),
        ("1234", r"1,234\text{ km}", "correct"),
        ("1.234", "1,234", "incorrect"),
        ("(2,5)", "(2,5)", "correct"),
        (r"\{2,5\}", "2,5", "correct"),
        ("2,5", "5,2", "correct"),
    ],
)
def test_a_comma_before_a_unit_is_a_decimal_comma(gold, answer, status):
    assert compare_answers(gold, answer).status == status
