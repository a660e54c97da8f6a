"""Letters and short words that are answers, and the same words inside a sentence."""

from __future__ import annotations

import pytest

from fsdpo_data.answers import GradingRequest
from fsdpo_data.answers.grader import MathGrader

FORMS = r"""
{}|**{}**|${}$|({})|{}.|**({})**|$({})$|\({}\)|\text{{{}}}|$\mathrm{{{}}}$
Option {}|option {}|**Option {}**|Option ({})|Choice {}|Answer {}
It's {}|It's {}.|It’s {}|It's ({}).|It is {}|It is option {}.|It must be {}|So it's option {}.
The answer is {}|The answer is {}.|The answer is ({})|The answer is **{}**.|The answer is option {}.
The correct answer is {}|The correct option is {}|So the answer is $\textbf{{{}}}$
Answer: {}|answer: {}|Ans: {}|**Answer: {}**|Final answer: {}|#### {}|<answer>{}</answer>
\boxed{{{}}}|$\boxed{{\text{{{}}}}}$
So {}|So {}.|Thus, {}|Therefore {}|Hence, ({})|Hence option {}|Hence option {}.|Hence the option {}
Hence **{}**|So option **{}**.|Thus the correct choice is {}|Therefore, the answer is option ({}).
Choose {}|I choose {}.|We pick option {}|So we go with {}.|Select ({})|We get {}.
The winner is {}.|The winner is {}|Only {} works|"{}"|The letter is {}
So, ({}) is right.|Hence, {} is correct.
{} is correct|{} is the correct answer.|Option {} is correct.|We check all. {} is the right choice.
""".strip().replace("\n", "|").split("|")  # fmt: skip


def statuses(*pairs: tuple[str, str]) -> list[str]:
    """Return the verdicts on pairs of a gold and a response."""
    requests = [GradingRequest(gold, response) for gold, response in pairs]
    return [verdict.status for verdict in MathGrader().grade(requests)]


@pytest.mark.parametrize("form", FORMS)
def test_every_choice_is_read_in_the_same_ways(form: str) -> None:
    pairs = [(gold, letter) for gold in "ABCDE" for letter in "ABCDE"]
    expected = ["correct" if gold == letter else "incorrect" for gold, letter in pairs]
    assert statuses(*((gold, form.format(letter)) for gold, letter in pairs)) == expected


@pytest.mark.parametrize("response", ["So x = {}", "We get $x = {}$", "$x = {}$", "So $y = {}$."])
@pytest.mark.parametrize("letter", ["a", "b", "A", "B"])
def test_a_variable_at_the_end_is_read(response: str, letter: str) -> None:
    assert statuses((letter, response.format(letter))) == ["correct"]
    assert statuses((f"b + {letter}", response.format(f"b + {letter}"))) == ["correct"]


@pytest.mark.parametrize(
    "response",
    [
        "A train drives",
        "A train drives 5 km.",
        "A circle",
        "So it is a",
        "We need a",
        "A train drives 5 km in a",
        r"\boxed{A circle}",
    ],
)
def test_an_article_is_no_choice(response: str) -> None:
    assert statuses(("A", response)) != ["correct"]


@pytest.mark.parametrize("word", ["AND", "OR", "and", "or", "to", "by", "in", "at", "on", "we"])
@pytest.mark.parametrize(
    "form", ["**{}**.", "The answer is {}", "Answer: {}", r"\boxed{{{}}}", "The word is **{}**"]
)
def test_a_stop_word_can_be_the_answer(word: str, form: str) -> None:
    right, wrong = statuses((word, form.format(word)), (word, form.format("nor")))
    assert right == "correct" and wrong != "correct"


@pytest.mark.parametrize("word", ["AND", "OR", "and", "or", "to", "by", "in", "at", "then"])
def test_a_stop_word_alone_is_the_answer(word: str) -> None:
    assert statuses((word, word)) == ["correct"]


@pytest.mark.parametrize(
    "response",
    ["So we get 5 and", "That makes 12, so the", "The rest is 5, and then", "We add 5 to"],
)
def test_a_text_that_stops_at_a_stop_word_has_no_answer(response: str) -> None:
    assert statuses(("5", response)) == ["no_answer"]


def test_a_unit_at_the_end_is_no_stop_word() -> None:
    assert statuses(("5", "The length is 5 in"), ("5", "The current is 5 A")) == ["correct"] * 2
