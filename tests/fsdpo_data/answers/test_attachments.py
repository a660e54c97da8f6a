"""A part of a value is not an answer: 2√3 is neither 3 nor 2, in any sentence."""

from __future__ import annotations

import pytest

from fsdpo_data.answers import GradingRequest
from fsdpo_data.answers.grader import MathGrader

FORMS = [
    "{}",
    "We need {} cups.",
    "So the value is {}.",
    "So we get {}",
    "Hence x = {}",
    "The answer is {}.",
    "The answer is {} cm.",
    "**{}**",
    "So it is **{}**.",
    "Answer: {}",
    "#### {}",
    r"\boxed{{{}}}",
    "<answer>{}</answer>",
    "There are {} of them.",
    "He has a total of {}.",
    "Thus we have {}, as desired.",
    "The total is {} (in cm).",
    "It is {} or so",
]
#: A value as a response writes it, the same value as a gold, and its parts.
VALUES: dict[str, tuple[str, list[str]]] = {
    "11 5/6": ("71/6", ["5/6", "11", "5"]),
    "5 and a half": ("5.5", ["5", "1/2"]),
    "5 and two thirds": ("17/3", ["5", "2/3"]),
    "5½": ("5.5", ["5"]),
    "5 ½": ("5.5", ["5"]),
    "2√3": (r"2\sqrt{3}", ["3", "2", r"\sqrt3"]),
    "√3": (r"\sqrt3", ["3"]),
    "2√(3)": (r"2\sqrt3", ["3", "2"]),
    "3√5/2": (r"\frac{3\sqrt5}{2}", ["3", "2", "5"]),
    "sqrt(2)": (r"\sqrt2", ["2"]),
    "2sqrt(3)": (r"2\sqrt3", ["3", "2"]),
    "1 + √2": (r"1+\sqrt2", ["1", "2", r"\sqrt2"]),
    "(1 + √5)/2": (r"\frac{1+\sqrt5}{2}", ["2", "1", "5"]),
    "(5)/2": ("5/2", ["5", "2"]),
    "1/√2": (r"\frac{1}{\sqrt2}", ["1", "2"]),
    "3²": ("9", ["3", "2"]),
    "10⁻³": ("0.001", ["10", "3"]),
    "2^n": ("2^n", ["2"]),
    "2^(1/3)": (r"\sqrt[3]2", ["2", "1/3", "3"]),
    "2π": (r"2\pi", ["2"]),
    "2π/3": (r"\frac{2\pi}{3}", ["3", "2", r"2\pi"]),
    "2 pi": (r"2\pi", ["2"]),
    "2 * pi": (r"2\pi", ["2"]),
    "ln 2": (r"\ln 2", ["2"]),
    "ln(2)": (r"\ln 2", ["2"]),
    "2 ln 3": (r"2\ln 3", ["3", "2", r"\ln 3"]),
    "log_2 5": (r"\log_2 5", ["5", "2"]),
    "sin 5": (r"\sin 5", ["5"]),
    "3 + 2i": ("3+2i", ["2", "3", "2i"]),
    "3 - 2i": ("3-2i", ["-2", "3", "2"]),
    "2 + i": ("2+i", ["2"]),
    "-2i": ("-2i", ["-2", "2"]),
    "1.2e5": ("120000", ["1.2", "5"]),
    "1.2E-5": ("0.000012", ["1.2", "-5", "5"]),
    "1.2 x 10^5": ("120000", ["1.2", "10^5"]),
    "1.2 × 10⁵": ("120000", ["1.2", "10"]),
    "1 234": ("1234", ["234", "1"]),
    "1 234 567": ("1234567", ["567", "234567", "1"]),
    "±5": (r"\pm5", ["5", "-5"]),
    "x + 5": ("x+5", ["5"]),
    "2n + 1": ("2n+1", ["1", "2"]),
    "x^2 + 1": ("x^2+1", ["1", "2"]),
    "5 - x": ("5-x", ["5"]),
    "5/x": (r"\frac5x", ["5"]),
    "3 * 4": ("12", ["4", "3"]),
    "12 - 5": ("7", ["-5", "5", "12"]),
    "101_2": ("101_2", ["101", "2"]),
    "101₂": ("101_2", ["101"]),
    "5C2": ("10", ["5", "2"]),
    "f(3)": ("f(3)", ["3"]),
    "gcd(12, 18)": ("6", ["18", "12"]),
    "1.234.567": ("1234567", ["1.234", "567", "1"]),
    "0.(3)": ("1/3", ["3", "0"]),
    "1.(142857)": ("8/7", ["142857", "1"]),
    "⌊7/2⌋": ("3", ["7/2", "2"]),
    "⌈7/2⌉": ("4", ["7/2", "2"]),
    "|x - 2|": ("|x-2|", ["x-2", "2", "-2"]),
    "π/6": (r"\frac{\pi}{6}", ["6", "1/6"]),
    "e^2": ("e^2", ["2", "e"]),
    "x²": ("x^2", ["2", "x"]),
    "x/3": (r"\frac{x}{3}", ["3", "x"]),
    "5 choose 2": ("10", ["5", "2"]),
    "10 mod 3": ("1", ["10", "3"]),
    r"11\frac{5}{6}": ("71/6", ["5/6", "11"]),
    r"$11\frac{5}{6}$": ("71/6", ["5/6", "11"]),
    r"11 $\frac56$": ("71/6", ["5/6", "11"]),
    r"2\sqrt{3}": (r"2\sqrt{3}", ["3", "2"]),
    r"2$\sqrt{3}$": (r"2\sqrt3", ["3", "2", r"\sqrt3"]),
    r"\frac{1}{2}": ("1/2", ["2", "1"]),
    "3^{2}": ("9", ["3", "2"]),
    r"2\pi": (r"2\pi", ["2"]),
    r"\ln 2": (r"\ln2", ["2"]),
    "$3+2i$": ("3+2i", ["3", "2"]),
    "$5!$": ("120", ["5"]),
    r"1.2\times10^5": ("120000", ["1.2", "5"]),
    r"1\,234": ("1234", ["234", "1"]),
    "1{,}234": ("1234", ["234", "1"]),
}
#: Values in words, and their parts.
WORDS = {
    "three squared": ["3"],
    "two root three": ["3", "2"],
    "eleven and five sixths": ["5/6", "11"],
    "five factorial": ["5"],
    "3 plus 2i": ["3", "2"],
    "two pi": ["2"],
    "2 times the square root of 3": ["3", "2"],
    "the square root of 3": ["3"],
    "1.2 times 10 to the power 5": ["1.2", "5"],
    "1.2 times ten to the fifth": ["1.2", "5"],
    "one thousand two hundred thirty-four": ["234"],
    "the natural log of 2": ["2"],
    "2 to the 5th power": ["2", "5"],
    "half of 5": ["5"],
}


def status(gold: str, response: str) -> str:
    return MathGrader().grade([GradingRequest(gold, response)])[0].status


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_read_completely(value: str) -> None:
    gold, parts = VALUES[value]
    for form in FORMS:
        response = form.format(value)
        assert status(gold, response) == "correct", response
        for part in parts:
            assert status(part, response) != "correct", (part, response)


@pytest.mark.parametrize("value", WORDS)
def test_a_part_of_a_value_in_words_is_no_answer(value: str) -> None:
    for form in FORMS:
        for part in WORDS[value]:
            assert status(part, form.format(value)) != "correct", (part, form)


@pytest.mark.parametrize(
    "form", ["There are {} of them.", "So it is {}.", r"$n = {}$", "We have {}, as desired."]
)
def test_a_factorial_in_a_sentence_is_read(form: str) -> None:
    assert status("120", form.format("5!")) == "correct"
    assert status("5", form.format("5!")) != "correct"


@pytest.mark.parametrize(
    "response",
    [
        "The answer is {}",
        "The answer is {} Great!",
        "So there are {}",
        "Final Answer: {}",
        "Answer: **{}**",
        "#### {}",
        "답: {}",
        "It is x = {}",
        "There are 5! orders, 5! / 24 of them are even. So the answer is {}",
    ],
)
def test_a_sign_at_the_end_of_a_sentence_may_be_a_factorial(response: str) -> None:
    for value in ("5!", "-5!", "1/5!", "5!!"):
        for gold in (value[: value.index("!")], value):
            assert status(gold, response.format(value)) == "undecided"
        assert status("7", response.format(value)) == "incorrect"
    assert status("120", response.format("5!")) == "undecided"


@pytest.mark.parametrize(
    "response",
    [
        "5!",
        "**5!**",
        "$5!$",
        r"The answer is \(5!\)!",
        "<answer>5!</answer>",
        "The answer is 5!.",
    ],
)
def test_a_factorial_that_is_no_exclamation(response: str) -> None:
    assert status("120", response) == "correct"
    assert status("5", response) == "incorrect"


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        ("5", "The answer is **5**!"),
        ("5", "The answer is $5$!"),
        ("5", r"The answer is \(5\)!"),
        ("5", r"\boxed{5}!"),
        ("2.5", "The answer is 2.5!"),
        ("5", "The answer is $5!"),
        ("1234", "The answer is 1,234!"),
        ("5", "The answer is 5 apples!"),
        ("5", "There are 5! = 120 orders of 5 books. So we need 5 of them."),
        ("(3, 5)", "The answer is (3, 5)!"),
        ("{1, 2}", r"The answer is \{1, 2\}!"),
        ("Tom", "<answer>Tom!</answer>"),
        ("C", "The answer is C!"),
    ],
)
def test_an_exclamation_that_is_no_factorial(gold: str, response: str) -> None:
    assert status(gold, response) == "correct"


@pytest.mark.parametrize("value", ["n!", "(n-1)!", r"\frac{n!}{2}"])
def test_the_factorial_of_a_formula_is_read(value: str) -> None:
    for response in ("The answer is {}", "<answer>{}</answer>", "So there are ${}$"):
        assert status(value, response.format(value)) == "correct"


@pytest.mark.parametrize("response", ["**2*3**", "So it is **2*3**.", "The answer is **2*3**"])
def test_a_product_in_bold_is_a_product(response: str) -> None:
    assert status("6", response) == "correct"
    assert status("3", response) != "correct" and status("2", response) != "correct"


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        ("200", "On day 3 200 tickets were sold."),
        ("5", "So he gave 5 to the third boy."),
        ("7", "So 3 + 4 = 7."),
        ("7", "So 3 + 4 is 7 apples."),
        ("5", "Step 2 gives 5."),
        ("12", "Since 4 * 3 = 12, he has 12 apples."),
        ("18", "So he makes 9 * 2 = $18 a day."),
        ("8", "Tom has 8 - all of them red."),
        ("30", "There are 30 n-grams."),
        ("5", "**Total** 5"),
        ("12", "The sides are in the ratio 1:2, so x is 12 cm."),
        ("3", r"The value $\frac{6}{2}$ is 3."),
    ],
)
def test_what_stands_next_to_a_number_is_no_part_of_it(gold: str, response: str) -> None:
    assert status(gold, response) == "correct"


@pytest.mark.parametrize(
    "response", [r"So it is \frac{1}{2", r"So it is \frac{12}{5} \cdot", r"We get \( \frac{1}{2"]
)
def test_a_formula_that_is_cut_off_has_no_value(response: str) -> None:
    for part in ("1", "2", "1/2", "12/5", "12", "5"):
        assert status(part, response) != "correct"


def test_a_conclusion_that_is_not_read_hides_no_earlier_value() -> None:
    text = r"The least one is \frac{r}{10}. Therefore, the largest one is \text{B}."
    assert status("B", text) == "correct"
    assert status(r"\frac{r}{10}", text) != "correct"
    assert status(r"\cot x", "\\frac{1}{\\tan x}\n\nThis is:\n\n\\cot x\n") == "correct"


def test_an_unread_sentence_with_the_gold_is_undecided() -> None:
    assert status("a", "Hence y = a.") == "undecided"
    assert status("b", "We have y = b as the result.") == "undecided"
    assert status("c", "We have y = b as the result.") == "incorrect"


@pytest.mark.parametrize(
    "text", ["4 m²", "It has an area of 4 m²", "The answer is <|begin|>4<|end|>"]
)
def test_units_and_markers_are_no_formulas(text: str) -> None:
    assert status("4", text) == "correct"
