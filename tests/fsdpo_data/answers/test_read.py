r"""Parsing of answers: parsed forms, and texts that are not mathematics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsdpo_data.answers import GradingRequest, tree
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.answers.parsing.clean import clean
from fsdpo_data.answers.parsing.cursor import MAX_DEPTH
from fsdpo_data.answers.parsing.lex import UnparsableAnswerError, tokenize
from fsdpo_data.answers.parsing.read import MAX_READ, alternatives, read, read_answer
from fsdpo_data.answers.show import format_value
from fsdpo_data.answers.tree import DateOrTime, Num, Quantity, Ratio, ValueList, Words

FORMS = {
    # numbers
    "1,000": "1000",
    "1,\\!000,\\!000": "1000000",
    "10{,}000": "10000",
    "1\\,000": "1000",
    "-3./2": "-3/2",
    ".48": "0.48",
    "4.5e33": "4.5e+33",
    "4.5\\times10^{33}": "4.5e+33",
    "3.83 x 10^35": "3.83e+35",
    "0.\\overline{3}": "1/3",
    "0.1\\overline{6}": "1/6",
    "0.1(6)": "1/6",
    "0,(3)": "1/3",
    "x = 0.3(3)": "x = 1/3",
    "0.5(4) = 2": "0.5*4 = 2",
    "5(3)": "15",
    "0.1666...": "1/6",
    "12\\frac{3}{5}": "63/5",
    "12\\frac35": "63/5",
    "8 1/3": "25/3",
    "\\frac 1{72}": "1/72",
    "twenty-five": "25",
    "one hundred and five": "105",
    "two thirds": "2/3",
    "one and a half": "3/2",
    "2.5 million": "2500000",
    "a dozen": "12",
    "½": "1/2",
    "2½": "5/2",
    "３": "3",
    # expressions
    "2x^2 - 1": "(2*(x)^(2) + -1)",
    "\\sqrt[3]{2}": "root(2, 3)",
    "√12": "root(12, 2)",
    "\\sin 2x": "sin(2*x)",
    "\\sin^2 \\theta": "(sin(theta))^(2)",
    "\\sin^{-1} x": "asin(x)",
    "\\cos (2 t) / 5": "(cos(2*t))/(5)",
    "t/RC": "(t)/(R*C)",
    "np.arcsin(10/13)": "asin(10/13)",
    "C_{400}^{40}": "binom(400, 40)",
    "{10 \\choose 3}": "binom(10, 3)",
    "m_pc^2": "m_p*(c)^(2)",
    "2^nm": "(2)^(n)*m",
    "A^TB": "(A)^(T)*B",
    "2^{nm}": "(2)^(n*m)",
    "2^pi": "(2)^(pi)",
    "e^\\sin x": "(e)^(sin(x))",
    "\\frac{dx}{dt}": "x'",
    "\\dot{x}": "x'",
    "y^{\\prime}": "y'",
    "f(2)": "f(2)",
    "x(x+1)": "x*(x + 1)",
    "|x-1|": "abs((x + -1))",
    # quantities
    "\\$5.50": "5.50 [$]",
    "25\\%": "25 [%]",
    "90^\\circ": "90 [°]",
    "20^\\circ \\text{C}": "20 [celsius]",
    "15\\mbox{ cm}^2": "15 [cm^2]",
    "36 (sq. inches)": "36 [inches^2]",
    "9 (apples)": "9 [apples]",
    "576\\pi\\;m^{2}": "576*pi [m^2]",
    "60 \\text{ km/h}": "60 [km·h^-1]",
    "5 feet 6 inches": "11/2 [feet]",
    "6th": "6 [th]",
    "\\frac{37}{4} m": "37/4*m",
    "25_{6}": "25_6",
    "(25)_{\\text{six}}": "25_6",
    "1:58 am": "01:58:00 am",
    "11:55 p.m. on 24 December 2014.": "2014-12-24 23:55:00 pm",
    "5 to 6": "5:6",
    # several values
    "$48$, $384$": "48, 384",
    "(12,102)": "(12, 102)",
    "(1,000, 2,000)": "(1000, 2000)",
    "\\{1, 2\\}": "{1, 2}",
    "5 \\text{ or } 9": "5, 9",
    "[0, 1)": "[0, 1)",
    "]0, 1[": "(0, 1)",
    "\\{x \\mid x > 2\\}": "{x | x > 2}",
    "x \\in [-2,7]": "x ∈ [-2, 7]",
    "x<2 \\text{ or } x>3": "x < 2 or x > 3",
    "\\mathbb{R}\\setminus\\{a\\}": "RR ∖ {a}",
    "x is greater than 2": "x > 2",
    "p > 1 and x \\in \\{1, 2\\}": "p > 1 and x ∈ {1, 2}",
    "\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}": "[1, 2; 3, 4]",
    "y = 2x + 3": "y = (2*x + 3)",
    "b > a > c": "b > a > c",
    "no solution": "{}",
}


@pytest.mark.parametrize(("text", "form"), FORMS.items(), ids=FORMS)
def test_an_answer_has_its_parsed_form(text, form):
    assert format_value(read(text)) == form


@pytest.mark.parametrize(
    "text",
    [
        "Rug B",
        "They are equal",
        "\\text{odd}",
        "5 + ",
        "(1, 2",
        "1 2",
        "3 + \\text{cm}",
        "x^",
        "\\frac{1}",
        "5; drop table",
        "1, 2,, 3",
        "__import__('os')",
        "\\begin{pmatrix} 1 & 2 \\\\ 3 \\end{pmatrix}",
    ],
)
def test_texts_outside_the_grammar_are_words(text):
    assert isinstance(read(text), Words)


def test_a_number_with_a_meaningless_suffix_is_not_that_number():
    for suffix in ("?!", " = = 3", " \\foo", ")(", " }", " 4.5.6"):
        value = read("5" + suffix)
        assert value != Num(read("5").value), suffix


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("5:45", (Ratio, DateOrTime)),
        ("5:6", (Ratio,)),
        ("70,110", (Num, ValueList)),
        ("2 hours, 30 minutes", (ValueList, Quantity)),
    ],
)
def test_ambiguous_answers_have_several_readings(text, kinds):
    assert tuple(type(value) for value in alternatives(text, read(text))) == kinds


@pytest.mark.parametrize("separator", [" ", "\\ ", "\\; ", "\\ \n"])
def test_digits_after_a_subscript_or_exponent_are_another_number(separator):
    assert [token.text for token in tokenize(f"\\log_2{separator}256")] == ["log", "_", "2", "256"]
    for answer in (f"\\log_2{separator}256", f"\\log_{{2}}{separator}256"):
        [verdict] = MathGrader().grade([GradingRequest("8", f"\\boxed{{{answer}}}")])
        assert verdict.status == "correct"
    for answer in (f"\\log_10{separator}000", f"x^10{separator}000", f"x_1{separator}000 000"):
        requests = [GradingRequest("5", f"\\boxed{{{answer}}}"), GradingRequest(answer, "#### 5")]
        statuses = [verdict.status for verdict in MathGrader().grade(requests)]
        assert "correct" not in statuses


def test_letters_are_units_only_if_they_cannot_be_variables():
    assert format_value(read("5m")) == "5*m"
    assert format_value(read_answer("5m").with_letter_units) == "5 [m]"
    assert format_value(read("5\\,\\mathrm{m}")) == "5 [m]"


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("$5$.", "5"),
        ("\\(5\\)", "5"),
        ("**5**", "5"),
        ("2**3", "2**3"),
        ("$5 and $10", "\\$5 and \\$10"),
        ("$48$, $384$", "48 ,  384"),
        ("−3", "-3"),
        ("x²", "x^{2}"),
        ("‘Yes’", "Yes"),
        ("\u202e5\u200b", "5"),
        ("5\x00", "5"),
    ],
)
def test_cleaning_removes_meaningless_marks(text, cleaned):
    assert clean(text) == cleaned


@pytest.mark.parametrize("brackets", ["()", "{}", "[]"])
def test_too_deeply_nested_answers_are_words(brackets):
    def nest(depth):
        return brackets[0] * depth + "x" + brackets[1] * depth

    assert format_value(read(nest(MAX_DEPTH - 2))) == "x"
    assert isinstance(read(nest(MAX_DEPTH + 1)), Words)


@pytest.mark.parametrize("name", ["pmatrix", "cases"])
@pytest.mark.parametrize("depth", [MAX_DEPTH, 4 * MAX_DEPTH])
def test_too_deeply_nested_environments_are_words(name, depth):
    begin = f"\\begin{{{name}}}"
    assert isinstance(read(begin * depth + "1" + begin.replace("begin", "end") * depth), Words)
    assert isinstance(read(begin * depth), Words)


def test_too_long_answers_are_words():
    assert isinstance(read("1+" * (MAX_READ // 2) + "1"), Words)
    with pytest.raises(UnparsableAnswerError, match="too long"):
        tokenize("x " * MAX_READ)


@given(st.text(max_size=80))
def test_reading_never_raises(text):
    format_value(read(text))


PIECES = st.sampled_from(
    [
        *"0123456789xyzein()[]{}|,;:=<>+-*/^_!%'. $\\",
        *("\\frac", "\\sqrt", "\\sin", "\\text{", "\\{", "\\}", "\\le", "\\cup", "\\in", "\\pm"),
        *(" or ", " and ", "cm", "\\infty", "^\\circ", "\\begin{pmatrix}", "\\end{pmatrix}", "&"),
        *("two", "half", "\\mid", "\\mathbb{R}", "\\pmod", "\\sum", "\\dot", "\\left", "\\,"),
    ]
)


@given(st.lists(PIECES, max_size=25).map("".join))
def test_reading_pieces_of_latex_never_raises(text):
    format_value(read(text))


@pytest.mark.parametrize("bound", ["n", "x_{2}", "2^{n}", "{2^{n}}"])
def test_bounds_of_a_sum_may_end_in_a_brace(bound: str) -> None:
    value = read(rf"\sum_{{k=1}}^{{{bound}}} k^2")
    assert isinstance(value, tree.Call) and value.name == "sum" and len(value.args) == 4


def test_the_bounds_of_an_interval_in_words_are_values():
    assert read("at least 5") == ValueList("[)", (read("5"), tree.Const("inf")))
    assert isinstance(read("< x \\le 1"), Words)
