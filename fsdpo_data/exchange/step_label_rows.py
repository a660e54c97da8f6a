"""Readers of rows with step labels, for formats that names of fields do not describe.

Each yields the solutions of a row with their steps as in the row.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.exchange.export_formats import MATH_SHEPHERD_TAG
from fsdpo_data.exchange.response_formats import (
    NO_COMPLETION,
    Fields,
    RecordedResponse,
    read_verdict,
    unknown_verdict,
)
from fsdpo_data.pairs.statistics import is_same_step
from fsdpo_data.steps.first_error import NO_ERROR
from fsdpo_data.steps.segment import split_auto

_FIRST_STEP = re.compile(r"\s*Step 1:")
#: Text of a complete solution: a box, or the words before an answer.
_STATED_ANSWER = re.compile(r"\\boxed|\banswer\b", re.I)
_VERDICT = re.compile(r"\\boxed\{(Yes|No)\}")
#: The heading of the last part of a complete solution in PRM800K.
_PRM800K_ANSWER = "# Answer"
_PARAGRAPH_SEPARATOR = "\n\n"
_LAST_MARKER = re.compile(r"Step\s+\d+:\s*\Z")


class _RatedStep(NamedTuple):
    """A step with its rating in PRM800K."""

    text: str  #: The step, without surrounding white space.
    rating: Any  #: The rating as in the file, before validation; None if the step has none.


def read_trl(fields: Fields) -> Iterator[RecordedResponse]:
    """Read TRL's stepwise supervision; prompt and steps stay unchanged."""
    prompt = fields["prompt"]
    labels = [parse_label(label) for label in fields["labels"]]
    solution = labelled_solution(prompt, fields["completions"], labels)
    yield replace(solution, prompt=prompt)


def read_math_shepherd(fields: Fields) -> Iterator[RecordedResponse]:
    """Read Math-Shepherd.

    The sign of a step is the character of ``label`` at the position of the step tag in ``input``.
    Other signs in ``label`` belong to formulas.
    """
    *tagged_steps, text_after = fields["input"].split(MATH_SHEPHERD_TAG)
    signed_text = fields["label"]
    position = 0
    labels = []
    for step in tagged_steps:
        end = position + len(step)
        sign = signed_text[end : end + 1]
        if signed_text[position:end] != step or sign not in ("+", "-"):
            raise UnusableRowError("`input` and `label` have different texts")
        labels.append(sign == "+")
        position = end + 1
    if text_after.strip() or signed_text[position:].strip():
        raise UnusableRowError("there is text after the last step tag")
    problem, steps = split_problem(tagged_steps)
    yield labelled_solution(problem, steps, labels)


def split_problem(steps: Sequence[str]) -> tuple[str, list[str]]:
    """Split the problem from the first step at "Step 1:"; return the problem and all steps."""
    matches = list(_FIRST_STEP.finditer(steps[0])) if steps else []
    if len(matches) != 1:
        raise UnusableRowError(
            f'expected one "Step 1:" after the problem, found {len(matches) or "none"}'
        )
    start = matches[0].start()
    return steps[0][:start], [steps[0][start:], *steps[1:]]


def read_processbench(fields: Fields) -> Iterator[RecordedResponse]:
    """Read ProcessBench; the labels after the first wrong step are unknown."""
    first_error = fields["label"]
    steps = fields["steps"]
    if not isinstance(steps, list | str) or not steps:
        raise UnusableRowError("the row has no list of steps")
    if type(first_error) is not int or first_error not in range(-1, len(steps)):
        raise UnusableRowError(
            f"label {first_error!r} of {len(steps)} steps, expected a whole number from -1 to "
            f"{len(steps) - 1}"
        )
    verdict = fields.get("final_answer_correct")
    if unknown := unknown_verdict(verdict):
        raise UnusableRowError(f"final_answer_correct {unknown!r}, expected true or false")
    is_correct = read_verdict(verdict)
    if first_error == NO_ERROR and is_correct is False:
        # A wrong answer needs a wrong step, so one of the two values is wrong.
        raise UnusableRowError("the label has no wrong step, but the final answer is wrong")
    labels = [index != first_error for index in range(len(steps))]
    yield labelled_solution(fields["problem"], steps, labels, is_correct=is_correct)


def read_prm800k(fields: Fields) -> Iterator[RecordedResponse]:
    """Read PRM800K: one solution for the chain of chosen steps, and one per alternative step.

    A rating of 0 (neutral) counts as right, as in *Let's Verify Step by Step*; the output also
    keeps the ratings. A step by a human is right. The shared steps before an alternative appear
    once per alternative, so they have more weight in training. A chosen step without a rating ends
    the chain before it, and so does a step without a choice.
    """
    question = fields["question"]
    problem = question["problem"]
    answer = str(question.get("ground_truth_answer") or "")
    chain: list[_RatedStep] = []
    is_complete = fields["label"].get("finish_reason") == "solution"
    for step in fields["label"]["steps"]:
        alternatives, next_step = _split_completions(step)
        for alternative in alternatives:
            yield _solution_from_ratings(problem, answer, [*chain, alternative])
        if next_step is None or next_step.rating is None:
            if alternatives:
                return  # they contain the rated steps
            is_complete = False
            break
        chain.append(next_step)
    if chain:
        yield _solution_from_ratings(problem, answer, chain, is_complete=is_complete)


def _split_completions(step: Mapping[str, Any]) -> tuple[list[_RatedStep], _RatedStep | None]:
    """Return the rated alternatives of a step, and the chosen step; None without a choice."""
    completions = [
        _RatedStep(completion["text"].strip(), completion["rating"])
        for completion in step["completions"] or []
    ]
    chosen_index = step["chosen_completion"]
    human_step = step["human_completion"]
    next_step: _RatedStep | None = None
    if chosen_index is not None:
        next_step = completions.pop(chosen_index)
    elif human_step is not None:
        next_step = _RatedStep(human_step["text"].strip(), rating=1)
    alternatives = [completion for completion in completions if completion.rating is not None]
    return alternatives, next_step


def _solution_from_ratings(
    problem: str, answer: str, chain: Sequence[_RatedStep], *, is_complete: bool = False
) -> RecordedResponse:
    """Return the solution of a chain of rated steps, which is complete if it has an answer."""
    ratings = tuple(_parse_rating(step.rating) for step in chain)
    steps = [step.text for step in chain]
    labels = [rating >= 0 for rating in ratings]
    goes_on = not is_complete and _PRM800K_ANSWER not in steps[-1]
    return labelled_solution(problem, steps, labels, answer, ratings=ratings, goes_on=goes_on)


def _parse_rating(value: Any) -> int:
    """Return a rating of -1, 0 or 1; raise UnusableRowError for all other values."""
    if value not in (-1, 0, 1):
        raise UnusableRowError(f"rating {value!r}, expected -1, 0 or 1")
    return int(value)


def read_step_dpo(fields: Fields) -> Iterator[RecordedResponse]:
    """Read Math-Step-DPO-10K: the shared steps with the chosen step, then with the rejected step.

    The authors' judge found the rejected step to be the first wrong one, and the chosen step was
    sampled as its replacement. The later steps of the full texts have no label and are dropped. The
    texts stay unchanged, so that the tokens are those of Step-DPO's code.
    """
    shared_text = fields["initial_reason_steps"]
    sides = {"chosen": fields["chosen"], "rejected": fields["rejected"]}
    for name, step in sides.items():
        if not step.strip():
            raise UnusableRowError(f"{name} is empty")
    if is_same_step(sides["chosen"], sides["rejected"]):
        raise UnusableRowError("chosen and rejected are the same step")
    shared_steps = split_auto(shared_text)
    # In the published file, the shared text ends with the marker of the step that differs.
    if _LAST_MARKER.search(shared_text):
        shared_steps.pop()
    step_start = shared_text[sum(map(len, shared_steps)) :]
    for name, step in sides.items():
        steps = (*shared_steps, step_start + step)
        labels = [*(True for _ in shared_steps), name == "chosen"]
        answer = str(fields["answer"])
        yield labelled_solution(fields["prompt"], steps, labels, answer, goes_on=True)


def read_rlhflow(fields: Fields) -> Iterator[RecordedResponse]:
    """Read RLHFlow's dialogues, whose first turn is the question, a space and the first step.

    Without "Step 1:" the boundary between question and first step is unknown. The first turn is
    then the prompt, and its label is dropped.
    """
    steps, signs = _split_turns(fields)
    labels = [parse_label(sign.strip()) for sign in signs]
    if _FIRST_STEP.search(steps[0]):
        problem, steps = split_problem(steps)
    else:
        problem = steps[0]
        steps = steps[1:]
        labels = labels[1:]
    yield labelled_solution(problem, steps, labels)


def read_genprm(fields: Fields) -> Iterator[RecordedResponse]:
    """Read GenPRM's dialogues: each user turn is a paragraph, each reply a critique of it.

    The last verdict of a critique is the label. The first paragraph whose critique has no verdict
    ends the solution.
    """
    paragraphs, critiques = _split_turns(fields)
    verdicts = [_VERDICT.findall(critique) for critique in critiques]
    count = verdicts.index([]) if [] in verdicts else len(verdicts)
    # Paragraphs have no blank lines, so the last blank line ends the question.
    question_and_first = paragraphs[0].removeprefix("Question: ")
    problem, _, paragraphs[0] = question_and_first.rpartition(_PARAGRAPH_SEPARATOR)
    labels = [answers[-1] == "Yes" for answers in verdicts[:count]]
    goes_on = count < len(paragraphs)
    yield labelled_solution(problem, paragraphs[:count], labels, goes_on=goes_on)


def _split_turns(fields: Fields) -> tuple[list[str], list[str]]:
    """Return the texts of the user and of the assistant in a dialogue, one pair per turn."""
    turns = fields.get("conversations") or fields["messages"]
    for turn in turns:
        if turn["role"] not in ("user", "assistant"):
            raise UnusableRowError(f"a turn of {turn['role']!r}, expected user and assistant")
    user = [turn["content"] for turn in turns if turn["role"] == "user"]
    assistant = [turn["content"] for turn in turns if turn["role"] == "assistant"]
    if not user or len(user) != len(assistant):
        raise UnusableRowError(
            f"{len(user)} turns of the user and {len(assistant)} of the assistant"
        )
    return user, assistant


def read_math_aps(fields: Fields) -> Iterator[RecordedResponse]:
    """Read MATH-APS (OmegaPRM), as a tree or as a flat list of prefixes.

    Each leaf of the tree gives one solution, with the Monte-Carlo value of each piece as label. The
    search splits a text at any word, so pieces join inside sentences, too, and stay unchanged. A
    leaf may be the start of a solution: a leaf without an answer goes on.
    """
    question = fields["question"]
    answer = str(fields["final_answer"])
    tree = fields["reasoning_steps"]
    root = _build_tree(question, tree) if isinstance(tree, list) else tree
    queue: list[tuple[Any, list[str], list[float]]] = [
        (child, [], []) for child in root["children"]
    ]
    while queue:
        node, parent_steps, parent_labels = queue.pop(0)
        steps = [*parent_steps, node["text"]]
        labels = [*parent_labels, parse_label(node["mc_value"])]
        queue += [(child, steps, labels) for child in node["children"]]
        if not node["children"]:
            pieces = _join_pieces(steps)
            goes_on = not _STATED_ANSWER.search("".join(pieces))
            yield labelled_solution(question, pieces, labels, answer, goes_on=goes_on)


def _join_pieces(pieces: Sequence[str]) -> list[str]:
    """Return the pieces of a text as steps.

    A line end separates two pieces without white space between them: published trees lack it.
    """
    first_piece, *later_pieces = pieces
    steps = [first_piece.lstrip()]  # the prompt separates the question
    for piece in later_pieces:
        if not steps[-1][-1:].isspace() and not piece[:1].isspace():
            steps[-1] += "\n"
        steps.append(piece)
    return steps


def _build_tree(question: str, prefixes: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Build a tree in which the parent of a prefix is the longest shorter prefix of its text.

    A parent ends with a word or a number of the text, and not inside one, as 1 does in 12.
    """
    root = question.strip()
    nodes: dict[str, dict[str, Any]] = {root: {"children": []}}
    for prefix in sorted(prefixes, key=lambda prefix: len(prefix["solution_prefix"])):
        text = prefix["solution_prefix"].strip()
        if text not in nodes:
            ancestors = [
                node_text
                for node_text in nodes
                if text.startswith(node_text)
                and (node_text == root or not _is_inside_word(text, len(node_text)))
            ]
            parent = max(ancestors, key=len, default="")
            nodes[text] = {**prefix, "text": text[len(parent) :], "children": []}
            nodes[parent]["children"].append(nodes[text])
    return nodes[root]


def _is_inside_word(text: str, position: int) -> bool:
    """Return whether a position of a text is inside a word or a number, such as 12 or 1.5.

    Letters without case, such as Chinese ones, are words of their own.
    """
    last_char = text[position - 1 : position]
    next_char = text[position : position + 1]
    if last_char.lower() != last_char.upper() and next_char.lower() != next_char.upper():
        return True
    if re.match(r"\w\w|\d[.,]\d", text[position - 1 : position + 2], re.ASCII):
        return True
    return re.match(r"\d[.,]\d", text[max(0, position - 2) : position + 1], re.ASCII) is not None


def read_versaprm(fields: Fields) -> Iterator[RecordedResponse]:
    """Read VersaPRM's chains and their replacement steps.

    Each replacement step gives a further solution, which ends with that step.
    """
    chains = [
        chain for chain in fields["chain_of_thoughts"] if None not in (chain["labels"] or [None])
    ]
    if not chains:
        raise UnusableRowError("no chain with a label for each step")
    for chain in chains:
        steps = chain["steps"]
        labels = [_parse_rating(rating) == 1 for rating in chain["labels"]]
        yield labelled_solution(fields["question"], steps, labels)
        for replacement in chain.get("augs") or ():
            index = replacement["aug_idx"]
            label = _parse_rating(replacement["aug_type"]) >= 0
            # The labels after a wrong step are unknown, so no replacement is read there.
            if all(labels[:index]):
                yield labelled_solution(
                    fields["question"],
                    [*steps[:index], replacement["aug_step"]],
                    [*labels[:index], label],
                    goes_on=index + 1 < len(steps),
                )


def parse_label(value: Any) -> float:
    """Return a label from a boolean, a sign or a number in [0, 1].

    Raises:
        UnusableRowError: For all other values, such as -1 and words.
    """
    if value in ("+", "-"):
        return bool(value == "+")
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
        raise UnusableRowError(f"label {value!r}, expected true, false, +, - or a number in [0, 1]")
    return bool(value) if isinstance(value, int) else value


def labelled_solution(
    problem: str,
    steps: Sequence[str],
    labels: Sequence[float],
    answer: str = "",
    *,
    ratings: tuple[int, ...] | None = None,
    is_correct: bool | None = None,
    goes_on: bool = False,
) -> RecordedResponse:
    """Return a solution with its steps as in the row, before they are joined to its text.

    Args:
        problem: The problem.
        steps: The steps.
        labels: Their labels.
        answer: The gold answer; empty without one.
        ratings: Ratings of PRM800K.
        is_correct: The publisher's verdict; None without one.
        goes_on: Whether the original solution has steps after these.
    """
    if isinstance(steps, str):
        raise UnusableRowError("the steps are one text, expected a list")
    completion = replace(
        NO_COMPLETION,
        imported_labels=tuple(labels),
        imported_ratings=ratings,
        imported_correct=is_correct,
    )
    return RecordedResponse(answer, completion, question=problem, steps=steps, goes_on=goes_on)
