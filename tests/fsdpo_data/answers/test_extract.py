"""Extraction of answers from responses, and the rules that extract them."""

import random
import time

import pytest

from fsdpo_data.answers import GradingRequest
from fsdpo_data.answers.extraction.boxes import SEARCH_WINDOW_CHARS, last_box_content
from fsdpo_data.answers.extraction.extract import extract_answer, is_marked_rule
from fsdpo_data.answers.grader import MathGrader, grade_response
from fsdpo_data.answers.parsing import read
from fsdpo_data.answers.parsing.read import ParsedAnswer

BOXES = [
    (r"so \boxed{5}", "5"),
    (r"\boxed{1} and later \boxed{2}", "2"),
    (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
    (r"\fbox{958} values", "958"),
    (r"\boxed 2", "2"),
    (r"$\boxed 2$ is it", "2"),
    (r"\boxed\frac12$", r"\frac12"),
    (r"\boxed\frac{1}{2} is it", r"\frac{1}{2}"),
    (r"\boxed 2 is the answer", "2"),
    ("\\boxed\n{5}", "5"),
    (r"\boxed{\{1,2\}}", r"\{1,2\}"),
    (r"\boxed{\left\{ 1 \right.}", r"\left\{ 1 \right."),
    (r"\boxed{\boxed{5}}", "5"),
    (r"\boxed{\fbox{\frac12}}", r"\frac12"),
    (r"\\boxed{5}", "5"),
    (r"first line\\\boxed{5}", "5"),
    ("\boxed{5}", "5"),
    (r"\boxed{a}} and }} \boxed{b}", "b"),
    (r"{{ \boxed{b}", "b"),
    (r"\boxed{}", ""),
    (r"first \boxed{4}, then \boxed{5", "4"),
    (r"only \boxed{5", None),
    (r"\boxedness{5}", None),
    ("no box", None),
    ("", None),
]


@pytest.mark.parametrize(("text", "expected"), BOXES)
def test_last_boxed_takes_the_last_well_formed_box(text: str, expected: str | None) -> None:
    assert last_box_content(text) == expected


OTHER_BOXES = [
    r"\Boxed{%s}",
    r"\Aboxed{%s}",
    r"\framebox{%s}",
    r"\framebox[2cm]{%s}",
    r"\framebox[2cm][c]{%s}",
    r"\colorbox{yellow}{%s}",
    r"\colorbox[rgb]{1,0.5,0}{%s}",
    r"\fcolorbox{red}{white}{%s}",
    r"\fcolorbox[HTML]{FF0000}{FFFFFF}{%s}",
    r"\bbox{%s}",
    r"\bbox[5px, border: 2px solid red]{%s}",
    r"\ovalbox{%s}",
    r"\boxed{\colorbox{yellow}{%s}}",
    r"\bbox[yellow]{\boxed{%s}}",
]


@pytest.mark.parametrize("box", OTHER_BOXES)
def test_the_boxes_of_other_commands_hold_answers(box: str) -> None:
    boxed = box % r"\frac52"
    texts = (boxed, f"We start with 7. So ${boxed}$, and not 9.", f"\\[{boxed}\\]\nCheck 7 + 8.")
    far = f"{boxed} " + "word in a box " * SEARCH_WINDOW_CHARS
    for text in (*texts, far):
        assert extract_answer(text)[:4] == (r"\frac52", "boxed", "", None)
    assert last_box_content(boxed.replace("box", "boxes").replace("oxed", "oxes")) is None


MARKED = [
    ("The answer is: 5", "5", "answer-is"),
    ("The answer is 5 because 2 + 3 = 5.", "5", "answer-is"),
    ("The answer is $\\frac12$, which is half.", "$\\frac12$", "answer-is"),
    ("The answer to the second question is 7.", "7", "answer-is"),
    ("The final answer is $\\frac12$. I hope it is correct.", "$\\frac12$", "final-answer"),
    ("The final answer is 3.5. I hope it is correct.", "3.5", "final-answer"),
    ("### Final Answer\n\n$x^2$", "$x^2$", "final-answer"),
    ("**Final Answer**\n12", "12", "final-answer"),
    ("**Final Answer:** 12", "12", "final-answer"),
    ("## Answer\n\n**18**", "18", "final-answer"),
    ("#### 1,000", "1,000", "hash"),
    ("####18\n\nHope this helps!", "18", "hash"),
    ("#### Step 1: add\n2 + 3 = 5\nThe answer is 5.", "5", "answer-is"),
    ("The answer is 5.\n#### Check of the result\nAll is well here.", "5", "answer-is"),
    ("A: 18", "18", "label"),
    ("A: He is paid.\nA: 18", "18", "label"),
    ("**Answer:** 5 apples because x", "5 apples", "label"),
    ("**Answer**: 12", "12", "label"),
    ("Answer：12", "12", "label"),
    ("答案是 12", "12", "label"),
    ('{"answer": "12"}', '"12"', "label"),
    ("<answer>12</answer>", "12", "label"),
    ('{"answer": 12}', "12", "label"),
    ("\\textbf{Answer: } 12", "12", "label"),
    ("The answer is _12_.", "_12_", "answer-is"),
    ("The answer is `12`.", "`12`", "answer-is"),
    ("The correct option is (B).", "(B)", "choice"),
    ("Hence, option (B) is correct.", "(B)", "choice"),
    ("So choice **C** is the right one.", "C", "choice"),
    ("The answer is Mrs. Hilt.", "Mrs. Hilt", "answer-is"),
    ("The answer is 3:30 p.m.", "3:30 p.m", "answer-is"),
    ("The answer is: $11:55 p.m. on Monday.$", "$11:55 p.m. on Monday$", "answer-is"),
    ("The answer is 11,\\! 111.", "11,\\! 111", "answer-is"),
    ("The answer is: $90\\text{ square\nunits}$", "$90\\text{ square\nunits}$", "answer-is"),
    ("the answer is\n\\[ x+1 \\]\nas shown", "x+1", "answer-is"),
    ("the answer is\n$$\n.5\n$$", ".5", "answer-is"),
    ("The answer is probably 5.", "5", "answer-is"),
    ("The answer is 1/9, or about 0.111.", "1/9", "answer-is"),
    ("The answer is 5, but I am not sure.", "5", "answer-is"),
    ("The answer is 4. Wait, no. The answer is 5.", "5", "answer-is"),
    ("The answer is 5. To check: 2 + 3 = 5.", "5", "answer-is"),
    ("Answer: 260\n\nExplanation: 26 sheep times 10 is 260.", "260", "label"),
]


@pytest.mark.parametrize(("text", "answer", "rule"), MARKED)
def test_an_announced_answer_is_extracted_without_its_explanation(
    text: str, answer: str, rule: str
) -> None:
    extracted = extract_answer(text)
    assert (extracted.answer, extracted.rule, extracted.marked_answer) == (answer, rule, answer)


UNMARKED = [
    ("∞", "∞", "whole"),
    ("3/5", "3/5", "whole"),
    ("Yes", "Yes", "whole"),
    ("9 apples", "9 apples", "whole"),
    ("They are equal", "They are equal", "last-sentence"),
    ("So $-2 \\le x \\le 7$.", "-2 \\le x \\le 7", "last-maths"),
    ("She has 9 apples.", "9", "last-number"),
    ("Work.\nSo the probability is $\\frac{3}{4}$.", "\\frac{3}{4}", "last-maths"),
    ("Then\nthe roots are $3$ and $-5$.", "3 , -5", "last-maths"),
    ("Work.\nTherefore\n\\[\n\\frac{3}{4}\n\\]", "\\frac{3}{4}", "last-maths"),
    ("First 3 and 4.\nIn the end 9 are left.", "9", "last-number"),
    ("Costs \\$76.80.\nSo she pays \\$1,076.80.", "\\$1,076.80", "last-number"),
    ("So 9 are left.\nI hope this helps!", "9", "last-number"),
    ("Total: 9\nStep 4: This is all she has.", "9", "last-number"),
    ("Answer:\nStep 1: We have 5 eggs and buy 4.\nSo there are 9 eggs.", "9", "last-number"),
    ("So the degree of \\((ax^6+b)(x^5+c)\\) is 15.\nNice.", "15", "last-number"),
    ("Now.\nThe 20th digit of \\(\\frac{2}{9}\\) is **6**.", "6", "last-number"),
    ("Now.\nThat is \\(2 + 1 = 3\\) values of \\(n\\).", "2 + 1 = 3", "last-maths"),
    ("So it is \\([0,1]\\). This covers all steps.", "[0,1]", "last-maths"),
    ("Now.\nThe area is 20 $cm^{2}$.", "20 cm^{2}", "last-maths"),
    ("Now.\nThe difference between 12 and 5 is 7.", "7", "last-number"),
    ("So it is \\(1/3\\).\nThis holds for fixed \\(A\\) and \\(B\\).", "1/3", "last-maths"),
    ("All 3 are shown.\nHence the right one is $B$.", "B", "last-maths"),
    ("Now.\nWe solve for $x$.", "We solve for $x$.", "last-sentence"),
    ("Nobody knows.\nIt is a mystery.", "It is a mystery.", "last-sentence"),
]


@pytest.mark.parametrize(("text", "answer", "rule"), UNMARKED)
def test_without_a_mark_the_last_value_is_a_lenient_answer(
    text: str, answer: str, rule: str
) -> None:
    extracted = extract_answer(text)
    assert (extracted.answer, extracted.rule, extracted.marked_answer) == (answer, rule, None)


@pytest.mark.parametrize(
    "text", ["", " \n ", "...", "####", "Answer:", "The answer is", "$\\boxed{}$", "\\boxed"]
)
def test_responses_without_an_answer(text: str) -> None:
    assert (extract_answer(text).answer, extract_answer(text).rule) == (None, "none")


SEVERAL_BOXES = [
    ("\\boxed{3}. Wait, no: it is \\boxed{4}", "4", "boxed"),
    ("Step 1: \\boxed{5} eggs.\nStep 2: \\boxed{7} eggs in total.", "7", "boxed"),
    ("\\boxed{4}\n\nSo once more: \\boxed{4}", "4", "boxed"),
    ("\\boxed{} then \\boxed{4}", "4", "boxed"),
    ("\\boxed{4} then \\boxed{}", "4", "boxed"),
    ("\\boxed{3} and $\\boxed{4}$", "3 , 4", "boxed-list"),
    ("$x=\\boxed{3}$ or $x=\\boxed{4}$", "3 , 4", "boxed-list"),
    ("\\boxed{1}, \\boxed{2}, and \\boxed{3}", "1 , 2 , 3", "boxed-list"),
    ("- $\\boxed{1}$\n- $\\boxed{2}$", "1 , 2", "boxed-list"),
    ("1. \\boxed{3}\n2. $\\boxed{4}$", "3 , 4", "boxed-list"),
    ("Option 1: \\boxed{3}. Option 2: \\boxed{4}.", "3 , 4", "boxed-list"),
    ("It is \\boxed{8} or maybe it could be \\boxed{9}", "8 , 9", "boxed-list"),
]


@pytest.mark.parametrize(("text", "answer", "rule"), SEVERAL_BOXES)
def test_several_boxes_are_a_list_or_the_last_box_counts(text: str, answer: str, rule: str) -> None:
    extracted = extract_answer(text)
    assert (extracted.answer, extracted.rule) == (answer, rule)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("We get \\boxed{12", "12"),
        ("We get $\\boxed{\\frac{1}{", "\\frac{1}{"),
        ("The final answer is \\boxed{10", "10"),
        ("We get $\\boxed{12$, which was to be shown.", "12"),
    ],
)
def test_an_unclosed_box_is_a_lenient_answer(text: str, answer: str) -> None:
    extracted = extract_answer(text)
    assert (extracted.answer, extracted.rule, extracted.marked_answer) == (
        answer,
        "boxed-truncated",
        None,
    )


INVENTED_PROBLEMS = [
    ("The answer is 18.</s><s>[INST] And 5+5? [/INST] The answer is 10.</s>", "18"),
    ("The answer is 5.\n\nQuestion: and then?\nThe answer is 9.", "5"),
    ("So \\boxed{0}.\n\nQuestion:\nCompute 2.\n\nMy solution: \\boxed{-1}", "0"),
    ("#### 5\n\n### Instruction:\nAnother\n### Response: #### 9", "5"),
    ("The answer is 5.\n\nProblem 2: another\nThe answer is 9.", "5"),
    ("The answer is 5.\n<|im_start|>user\nmore\nThe answer is 9.", "5"),
    ("The answer is 5.\n\nExample 2:\nWhat is 3+3? The answer is 6.", "5"),
    ("The answer is 5.\nHuman: more\nThe answer is 9.", "5"),
]


@pytest.mark.parametrize(("text", "answer"), INVENTED_PROBLEMS)
def test_text_after_an_invented_problem_is_ignored(text: str, answer: str) -> None:
    assert extract_answer(text).answer == answer


def test_parts_of_the_same_problem_are_not_ignored() -> None:
    parts = "Question 1: How many?\nAnswer: 5\nQuestion 2: And in all?\nAnswer: 8\n"
    assert extract_answer(parts).answer == "8"
    restated = "Hm.\nQuestion: restated\nThe answer is 5."
    assert extract_answer(restated).answer == "5"
    assert extract_answer(restated + "\nQuestion: made up\nThe answer is 9.").answer == "5"


@pytest.mark.parametrize(
    "ending", ["<|im_end|>", "</s>", "<|endoftext|>\n", "<|eot_id|>", "\r\n", "\u200b", "\u202c"]
)
def test_end_tokens_and_invisible_characters_are_not_part_of_an_answer(ending: str) -> None:
    assert extract_answer("The answer is: 5" + ending).answer == "5"


def test_unusual_line_separators_do_not_hide_an_answer() -> None:
    assert extract_answer("Step\r\nThe answer is: 5\r\nHope this helps!").answer == "5"
    assert extract_answer("a\u2028The answer is 5.\u2028").answer == "5"
    assert extract_answer("The answer is\xa05").answer == "5"


STATEMENTS_WITH_VALUE = [
    ("The answer is 5 apples left over.", "5"),
    ("The answer is 12 - 5 = 7 apples.", "7"),
    ("That is 300 minutes, or 5 hours.", "5"),
    ("She has 12 more than Bob.", "12"),
    ("Hence the result equals $\\frac{3}{4}$.", "\\frac{3}{4}"),
    ("So it is 1,200,000 people.", "1,200,000"),
    ("Thus -3/5 of it.", "-3/5"),
    ("The probability is 1/9, or approximately 11.1%.", "1/9"),
    ("The answer is yes, he can.", "yes"),
    ("**Yes**, he has enough money.", "Yes"),
    ("The ratio of boys to girls is 5:3.", "5:3"),
    ("She arrives at 3:30 p.m.", "3:30 p.m."),
    ("So the fastest of them is Evelyn.", "Evelyn"),
    ("So the brand that costs less is **Brand B**.", "Brand B"),
    ("She doesn't need it, so 18 are left.", "18"),
]


@pytest.mark.parametrize(("text", "value"), STATEMENTS_WITH_VALUE)
def test_statements_have_a_value(text: str, value: str) -> None:
    extracted = extract_answer(text)
    assert value in (extracted.statement_value, extracted.answer)


STATEMENTS_WITHOUT_VALUE = [
    "The answer is 3, 4 or 5.",
    "The answer is either 4 or 5.",
    "The answer is 4 apples or 5 apples.",
    "The answer is 3 and 5.",
    "The answer is 5, or maybe 6.",
    "The answer is 5. Or it could be 6.",
    "The answer is 18 (or possibly 26).",
    "The answer is less than 5.",
    "The answer is at least 5.",
    "It could be 5, it could be 6, it could be 7.",
    "The answer is between 3 and 5.",
    "The answer is one of 10, 11, 12.",
    "It is $3$ or 4, who knows.",
    "It might be 3. It might be 5.",
    "We can rule out 5.",
    "The answer isn't 18.",
    "The answer cannot be 18.",
    "The answer lies in the range 10 to 18.",
]


@pytest.mark.parametrize("text", STATEMENTS_WITHOUT_VALUE)
def test_candidates_and_bounds_have_no_value(text: str) -> None:
    extracted = extract_answer(text)
    assert extracted.statement_value is None
    assert extracted.answer not in {"3", "4", "5", "6", "7", "12", "18", "26"}


def test_a_negated_answer_is_not_announced() -> None:
    assert extract_answer("The answer is not 12.").marked_answer is None
    assert extract_answer("The answer is 5. Surely the answer is not 12.").answer == "5"


def test_the_last_sentence_is_extracted_for_golds_in_words() -> None:
    assert extract_answer("We see it.\nSo Brand B is cheaper. I hope this helps!").sentence == (
        "So Brand B is cheaper."
    )


@pytest.mark.parametrize(
    "unit",
    [
        *("{", "}", "\\boxed{", "\\boxed ", "\\boxed{1} or ", "\\boxed{5}\nQuestion: ", "\\\\"),
        *("a", "\n", " ", "\r", "$", "\\(", "1,", "3 and ", "-", "* ", "!", ". A", "(((", "x= "),
        *("answer is ", "final answer ", "Answer:\n", "#### ", "<answer>", "答案:", "\nQ: "),
        *("\nQuestion 2: ", "$1$ and ", "or 5 ", "at least ", "step 1: ", "\n# ", "\u2028"),
        *("\x00", "\ud800", "\u200b", "\\text{and}", "box\\", "</s>", "\n**answer"),
    ],
)
@pytest.mark.parametrize("size", [SEARCH_WINDOW_CHARS - 1, 1_000_000])
def test_extraction_from_a_megabyte_is_fast(unit: str, size: int) -> None:
    text = unit * (size // len(unit))
    seconds = []  # processor time, because other jobs may share the cores
    for _ in range(3):
        started = time.process_time()
        extract_answer(text)
        seconds.append(time.process_time() - started)
    assert min(seconds) < 0.05


def test_a_box_far_from_the_end_is_found() -> None:
    assert extract_answer("\\boxed{5}" + " and so on" * 100_000).answer == "5"


def test_too_long_numbers_are_not_answers() -> None:
    assert extract_answer("9" * 1_000_000).answer is None
    assert extract_answer("The answer is " + "9" * 1_000_000).answer is None


def seconds_per_nested_box(count: int) -> float:
    """Return the processor time per box of nested boxes, the least of several runs."""
    text = "\\boxed{" * count + "1" + "}" * count
    seconds = []
    for _ in range(7):
        started = time.process_time()
        extract_answer(text)
        seconds.append(time.process_time() - started)
    return min(seconds) / count


def test_thousands_of_nested_boxes_are_read_in_linear_time() -> None:
    # A box over the maximum length of an answer costs about twice the time. In quadratic time, the
    # factor would be at least 16.
    assert seconds_per_nested_box(2_500) < 6 * seconds_per_nested_box(150)


def test_random_pieces_never_raise() -> None:
    pieces = ["\\boxed", "{", "}", "\\", "$", "\n", "answer", " is ", "5", ":", "####", "A:", "or"]
    pieces += ["\\[", "\\]", "$$", "\x00", "\ud83d", "\u2028", "Question", "<answer>", "**", "."]
    source = random.Random(0)
    for _ in range(5_000):
        text = "".join(source.choices(pieces, k=source.randrange(40)))
        extracted = extract_answer(text)
        assert extracted.marked_answer == (
            extracted.answer if is_marked_rule(extracted.rule) else None
        )
        assert (extracted.answer is None) == (extracted.rule == "none")


@pytest.mark.parametrize(
    "response",
    [
        "__import__('os').system('touch /tmp/pytest-of-root/pytest-5/marker')",
        "touch /tmp/5/x",
        "It is file_5.",
        "See https://example.org/5.",
        "This is version v1.5",
        "The log of run-5",
    ],
)
def test_numbers_in_paths_and_identifiers_are_not_answers(response):
    assert MathGrader().grade([GradingRequest("5", response)])[0].status != "correct"


def test_a_gold_is_parsed_once_for_many_responses(monkeypatch):
    seen: list[str] = []
    real = read.read_cleaned
    monkeypatch.setattr(read, "read_cleaned", lambda *text: seen.append(text[0]) or real(*text))
    gold = ParsedAnswer("\\frac{x}{x+1}")
    responses = [f"So it is $\\boxed{{{x}}}$." for x in ("\\frac x{1+x}", "1-\\frac1{x+1}", "x-1")]
    statuses = [grade_response(gold, response).status for response in responses]
    assert statuses == ["correct", "correct", "incorrect"]
    assert seen.count(gold.cleaned) == 1


@pytest.mark.parametrize(
    ("response", "status", "rule"),
    [
        ("So there are 5 left.\nNow we add 7", "no_answer", "cut-off"),
        ("So the sum is $7$.", "no_answer", "cut-off"),
        ("Thus $\\boxed{7", "no_answer", "cut-off"),
        ("<think>\nPerhaps \\boxed{7}. But let me check", "no_answer", "cut-off"),
        ("It is $\\boxed{7}$.\n\nQuestion: What is 3 + 4? 3 + 4", "correct", "boxed/number"),
        ("#### 7\n\nQuestion: What is 3 + 4? 3 + 4", "correct", "hash/number"),
    ],
)
def test_truncated_responses_have_only_marked_answers(
    response: str, status: str, rule: str
) -> None:
    [cut_off] = MathGrader().grade([GradingRequest("7", response, "length")])
    assert (cut_off.status, cut_off.rule) == (status, rule)
    [finished] = MathGrader().grade([GradingRequest("7", response, "stop")])
    assert finished == MathGrader().grade([GradingRequest("7", response)])[0]


def test_finished_responses_may_have_an_unmarked_answer() -> None:
    [verdict] = MathGrader().grade([GradingRequest("7", "So the sum is $7$.", "stop")])
    assert verdict.status == "correct"


CHANGED_NUMBERS = [
    ("12", "The answer is over 12", "undecided"),
    ("12", "The answer is one over 12.", "undecided"),
    ("12", "The answer is 12 below zero.", "undecided"),
    ("12", "Answer: 12 less than Ann", "undecided"),
    ("12", "#### over 12 (about)", "undecided"),
    ("12", "The answer is the opposite of 12.", "undecided"),
    ("12", "The answer is 12 above zero.", "correct"),
    ("12", "The answer is that 12 apples remain.", "correct"),
    ("30", "Answer: 30 minutes (half an hour)", "correct"),
    ("42", "#### 42 (forty-two)", "correct"),
    ("3, 5", "The answers are 3 and 5, respectively.", "correct"),
]


@pytest.mark.parametrize(("gold", "response", "status"), CHANGED_NUMBERS)
def test_words_that_change_a_marked_number_leave_it_undecided(
    gold: str, response: str, status: str
) -> None:
    assert grade_response(ParsedAnswer(gold), response).status == status


@pytest.mark.parametrize(
    ("gold", "text_after", "status"),
    [
        ("180", "On second thought, the answer is 180.", "correct"),
        ("204", "On second thought, the answer is 180.", "incorrect"),
        ("204", "At first I thought the answer is 180.", "correct"),
    ],
)
def test_a_second_thought_is_no_first_guess(gold: str, text_after: str, status: str) -> None:
    response = f"\\boxed{{204}}\n\n{text_after}"
    assert grade_response(ParsedAnswer(gold), response).status == status


@pytest.mark.parametrize("check", ["Let's check", "Let me verify", "Let's double-check"])
def test_a_check_at_the_end_does_not_open_the_reasoning(check: str) -> None:
    response = f"Tom has **12** marbles left.\n\n{check}: 20 - 8 = 12. ✓"
    assert grade_response(ParsedAnswer("12"), response).status == "correct"
    assert grade_response(ParsedAnswer("8"), response).status == "incorrect"
    opened = "Tom has **12** marbles left.\n\nLet's consider 12."
    assert grade_response(ParsedAnswer("12"), opened).status == "no_answer"


#: Sentences after an answer of 12 that say something else about it, or about another problem.
NOT_THE_ANSWER = """\
My confidence in the answer is 90%.
For n=5, the answer is 20.
In general, the answer is 3n.
Without the restriction, the answer would be 24.
A common wrong answer is 24.
Twice the answer is 24.
The sum of the digits of the answer is 3.
The answer is divisible by 3.
The answer is less than 20.
The answer is in units of 10 km."""


@pytest.mark.parametrize("answer", ["\\boxed{12}.", "The answer is 12."])
@pytest.mark.parametrize("sentence", NOT_THE_ANSWER.splitlines())
def test_a_sentence_about_an_answer_does_not_replace_it(answer: str, sentence: str) -> None:
    for joint in (" ", "\n\n"):
        response = f"{answer}{joint}{sentence}"
        assert grade_response(ParsedAnswer("12"), response).status == "correct"


#: Sentences after an answer of 15 that replace it.
REPLACEMENTS = """\
So the answer is 12.
Thus, the final answer is 12.
Actually, the answer is 12.
The correct answer is $12$.
After correcting the sign, the answer is 12.
Since we need m+n, the answer is 12.
Hence, after adding 3, the answer is 12.
x=15, so the answer is 12.
We conclude that our answer is 12 apples.
**Final answer: 12**"""


@pytest.mark.parametrize("answer", ["\\boxed{15}.", "The answer is 15."])
@pytest.mark.parametrize("sentence", REPLACEMENTS.splitlines())
def test_a_new_answer_replaces_the_one_before_it(answer: str, sentence: str) -> None:
    response = f"{answer}\n\n{sentence}"
    assert grade_response(ParsedAnswer("12"), response).status == "correct"
    assert grade_response(ParsedAnswer("15"), response).status == "incorrect"


def test_a_sentence_about_the_answer_is_read_if_it_is_the_only_one() -> None:
    for response in ("For n = 3, the answer is 12.", "If x > 0, then the answer is 12."):
        assert grade_response(ParsedAnswer("12"), response).status == "correct"


TOUCHED_BOXES = [
    ("12", r"The answer is not \boxed{12}.", "undecided"),
    ("12", r"It isn't $\boxed{12}$", "undecided"),
    ("12", r"$n\ne\boxed{12}$", "undecided"),
    ("12", r"答案不是\boxed{12}", "undecided"),
    ("12", r"So he has to sell at least $\boxed{12}$ books.", "correct"),
    ("12", r"$\boxed{12}\pi$", "undecided"),
    ("12", r"\boxed{12}^2", "undecided"),
    ("12", r"$\boxed{12}^{n+1}$", "undecided"),
    ("12", r"$\boxed{12}\sqrt{3}$", "undecided"),
    ("12", r"$\boxed{12}/5$", "undecided"),
    ("12", r"$\frac{\boxed{12}}5$", "undecided"),
    ("12", r"$\sqrt{\boxed{12}}$", "undecided"),
    (r"12\pi", r"$\boxed{12}\pi$", "correct"),
    ("144", r"$\boxed{12}^2$", "correct"),
    ("(x+1)^2", r"$\boxed{x+1}^2$", "correct"),
    ("36", r"$\boxed{36}x^2$", "correct"),
    ("12", r"$\boxed{12}^\circ$", "correct"),
    ("12", r"$\boxed{12}^{th}$", "correct"),
    ("12", r"$\boxed{12}\text{ cm}^2$", "correct"),
    ("6", r"\boxed{2}\cdot\boxed{3}=\boxed{6}", "correct"),
    ("12", r"Not 5, but \boxed{12}.", "correct"),
    ("12", r"The least value that is not less than 11 is \boxed{12}.", "correct"),
]


@pytest.mark.parametrize(("gold", "response", "status"), TOUCHED_BOXES)
def test_what_touches_a_box_may_change_its_value(gold: str, response: str, status: str) -> None:
    assert grade_response(ParsedAnswer(gold), response).status == status


#: Texts after a box with 12.
TEXTS_AFTER_BOX = [
    # A doubt that comes to another value.
    (". Wait, this contradicts n odd. So n = 13.", "undecided"),
    ("\n\nHold on, the break was counted twice; the total is 180.", "undecided"),
    (" would be wrong. So it is 13.", "undecided"),
    # A doubt that is settled, or comes to no value.
    (". Wait, let me check: 5+7=12. Yes, the total is 12.", "correct"),
    (". Wait, let me check: 12/4 is 3. So the sum is 3. That is consistent.", "correct"),
    (". Hmm, but what about n=0? That is not allowed, so fine.", "correct"),
    (r". Actually, this equals $3\cdot4$.", "correct"),
    (" would be wrong if n were odd.", "correct"),
    # Another value that is wrong.
    (r". If symmetry were ignored we'd have \boxed{24}, which is wrong.", "correct"),
    (". Counting both ends would give 13, which is incorrect.", "correct"),
    (". The probability that my answer is wrong is 5%.", "correct"),
    (". Plugging in x = 5 gives 13 ≠ 12, so that is wrong.", "undecided"),
    # The value itself is wrong.
    (", which is wrong.", "no_answer"),
    (". Hmm, my answer is wrong.", "no_answer"),
    (". Wait, that gives 13, which is wrong.", "no_answer"),
]


@pytest.mark.parametrize(("text_after", "status"), TEXTS_AFTER_BOX)
def test_the_text_after_a_box_may_doubt_or_reject_it(text_after: str, status: str) -> None:
    assert grade_response(ParsedAnswer("12"), rf"\boxed{{12}}{text_after}").status == status


@pytest.mark.parametrize(
    ("gold", "response", "status"),
    [
        ("12", "12 is wrong.", "no_answer"),
        ("12", "12 is not the answer.", "no_answer"),
        ("12", "12? No.", "no_answer"),
        ("B", "B fails.", "no_answer"),
        ("12", "We tried it. So 12 is incorrect.", "incorrect"),
        ("7", "The textbook says the answer is 7, but the right value is 8.", "incorrect"),
        ("8", "The textbook says the answer is 7, but the right value is 8.", "correct"),
        ("12", "12 is correct.", "correct"),
        ("12", "13 is wrong, so it is 12.", "correct"),
        ("12", "Some say 24, which is wrong. It is 12.", "correct"),
        ("16", "\\boxed{16}\n\nThe true value is close to 16.02 with friction.", "correct"),
    ],
)
def test_an_unmarked_value_may_be_denied(gold: str, response: str, status: str) -> None:
    assert grade_response(ParsedAnswer(gold), response).status == status


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        ("12", "Answer - 12"),
        ("-12", "Answer: -12"),
        ("12", "\u2022 12"),
        ("-12", "\u2022 -12"),
        ("42", "## 42"),
        ("C", "This matches option C."),
        ("C", "This corresponds to choice (C)."),
    ],
)
def test_short_marks_before_an_answer_are_no_part_of_it(gold: str, response: str) -> None:
    assert grade_response(ParsedAnswer(gold), response).status == "correct"
