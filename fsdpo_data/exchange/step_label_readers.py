"""Step-annotated rows of other people: a problem, its steps, and a label for each of them."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fsdpo_data.core.toml_tables import TomlTable
from fsdpo_data.exchange.formats import MATH_SHEPHERD_TAG
from fsdpo_data.steps.segment import split_auto

_FIRST_STEP = re.compile(r"\s*Step 1:")
_VERDICT = re.compile(r"\\boxed\{(Yes|No)\}")
_LAST_MARKER = re.compile(r"Step\s+\d+:\s*\Z")


class InvalidStepRowError(ValueError):
    """A row that cannot be read; the message is the reason it is set aside."""


@dataclass(frozen=True, slots=True)
class LabelledSolution:
    """A solution with one label per step."""

    problem: str  #: The question; the whole prompt where ``rendered``.
    answer: str  #: Its gold answer; empty where the format does not tell.
    steps: tuple[str, ...]  #: The steps, without the space around them; with it where ``rendered``.
    labels: tuple[float, ...]  #: Whether each is right, or how sure that is, from 0 to 1.
    #: -1, 0 or 1 for each, where the format tells more than the labels do.
    ratings: tuple[int, ...] | None = None
    is_rendered: bool = False  #: Whether the texts are ready to be learnt from as they are.


def from_trl(fields: Mapping[str, Any]) -> Iterator[LabelledSolution]:
    """TRL's stepwise supervision: prompt and steps stay as they are."""
    steps = fields["completions"]
    found = _labelled_solution(fields["prompt"], steps, [_label(each) for each in fields["labels"]])
    yield replace(found, steps=tuple(steps), is_rendered=True)


def from_math_shepherd(fields: Mapping[str, Any]) -> Iterator[LabelledSolution]:
    """Math-Shepherd: the sign is read where the mark stands, for signs occur in sums too."""
    *marked, rest = fields["input"].split(MATH_SHEPHERD_TAG)
    signed, place, labels = fields["label"], 0, []
    for part in marked:
        sign = signed[place + len(part) : place + len(part) + 1]
        if signed[place : place + len(part)] != part or sign not in ("+", "-"):
            raise InvalidStepRowError("input and label are not the same text")
        labels.append(sign == "+")
        place += len(part) + 1
    if rest.strip() or signed[place:].strip():
        raise InvalidStepRowError("there is text after the last mark")
    problem, steps = _split_problem(marked)
    yield _labelled_solution(problem, steps, labels)


def _split_problem(steps: Sequence[str]) -> tuple[str, list[str]]:
    """Part the problem from the first step, which begins by its number."""
    found = list(_FIRST_STEP.finditer(steps[0])) if steps else []
    if len(found) != 1:
        raise InvalidStepRowError(f'{len(found) or "no"} "Step 1:" ends the problem, expected one')
    start = found[0].start()
    return steps[0][:start], [steps[0][start:], *steps[1:]]


def from_processbench(fields: Mapping[str, Any]) -> Iterator[LabelledSolution]:
    """ProcessBench: of the steps after the first wrong one nothing is known, so they are cut."""
    first, steps = fields["label"], fields["steps"]
    if not steps or first not in range(-1, len(steps)):
        raise InvalidStepRowError(f"label {first} of {len(steps)} steps")
    labels = [k != first for k in range(len(steps))]
    yield _labelled_solution(fields["problem"], *_cut_after_first_error(steps, labels))


def from_prm800k(fields: Mapping[str, Any]) -> Iterator[LabelledSolution]:
    """PRM800K: the chain that the labeller followed, and every other next step on its own.

    A rating of 0, neutral, counts as right, as in *Let's Verify Step by Step*; the ratings are kept
    beside the labels. A step that a person wrote is right. The steps before an alternative are told
    again with each, so they weigh more than it.
    """
    question = fields["question"]
    problem, answer = question["problem"], str(question.get("ground_truth_answer") or "")
    chain: list[tuple[str, int]] = []
    for step in fields["label"]["steps"]:
        others, following = _next_steps(step)
        for other in others:
            yield _from_ratings(problem, answer, [*chain, other])
        if following is None:
            return
        chain.append(following)
    if chain:
        yield _from_ratings(problem, answer, chain)


def _next_steps(step: Mapping[str, Any]) -> tuple[list[tuple[str, int]], tuple[str, int] | None]:
    """Return the rated alternatives of a step that were not followed, and the one that was."""
    rated = [(each["text"].strip(), each["rating"]) for each in step["completions"] or []]
    chosen, human = step["chosen_completion"], step["human_completion"]
    if chosen is not None:
        following = rated.pop(chosen)
    else:
        following = ("", None) if human is None else (human["text"].strip(), 1)
    others = [each for each in rated if each[1] is not None]
    return others, None if following[1] is None else following


def _from_ratings(problem: str, answer: str, chain: Sequence[tuple[str, int]]) -> LabelledSolution:
    steps, told = zip(*chain, strict=True)
    ratings = tuple(map(_rating, told))
    return LabelledSolution(
        problem, answer, steps, tuple(rating >= 0 for rating in ratings), ratings
    )


def _rating(value: Any) -> int:
    """Read a rating: -1, 0 or 1; others are InvalidStepRowError, words and NaN too."""
    if value not in (-1, 0, 1):
        raise InvalidStepRowError(f"rating {value!r}, expected -1, 0 or 1")
    return int(value)


def from_step_dpo(fields: Mapping[str, Any]) -> Iterator[LabelledSolution]:
    """Math-Step-DPO-10K: the shared steps with the chosen one, and with the rejected one.

    Its authors had the rejected step judged to be the first wrong one, and the chosen one sampled
    in its place. What comes after in the full texts nobody judged, so it is left out.
    """
    shared = split_auto(fields["initial_reason_steps"])
    # As published, the shared text ends with the marker of the step that differs.
    begun = shared.pop() if _LAST_MARKER.search(fields["initial_reason_steps"]) else ""
    for side, right in (("chosen", True), ("rejected", False)):
        if not fields[side].strip():
            raise InvalidStepRowError(f"{side} is empty")
        steps = tuple(step.strip() for step in (*shared, begun + fields[side]))
        labels = (*(True for _ in shared), right)
        yield LabelledSolution(fields["prompt"], str(fields["answer"]), steps, labels)


def from_rlhflow(fields: Mapping[str, Any]) -> Iterator[LabelledSolution]:
    """RLHFlow's dialogues: the first turn is the question and the first step, a space between.

    Without a "Step 1:" nobody can part the two again, so they are the prompt.
    """
    steps, signs = _turns(fields)
    labels = [_label(sign.strip()) for sign in signs]
    if _FIRST_STEP.search(steps[0]):
        problem, steps = _split_problem(steps)
    else:
        problem, steps, labels = steps[0], steps[1:], labels[1:]
    yield _labelled_solution(problem, steps, labels)


def from_genprm(fields: Mapping[str, Any]) -> Iterator[LabelledSolution]:
    """GenPRM's dialogues: a paragraph a turn, and a critique of it that ends on a verdict."""
    steps, critiques = _turns(fields)
    verdicts = [_VERDICT.findall(critique) for critique in critiques]
    known = verdicts.index([]) if [] in verdicts else len(verdicts)
    # Paragraphs hold no blank line, so the last one parts the question from the first of them.
    problem, _, steps[0] = steps[0].removeprefix("Question: ").rpartition("\n\n")
    yield _labelled_solution(
        problem, steps[:known], [found[-1] == "Yes" for found in verdicts[:known]]
    )


def _turns(fields: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return what the user says in a dialogue, and what the assistant answers to each."""
    turns = fields.get("conversations") or fields["messages"]
    user, assistant = (
        [turn["content"] for turn in turns if turn["role"] == role]
        for role in ("user", "assistant")
    )
    if not user or len(user) != len(assistant):
        raise InvalidStepRowError(
            f"{len(user)} turns of the user and {len(assistant)} of the assistant"
        )
    return user, assistant


def from_math_aps(fields: Mapping[str, Any]) -> Iterator[LabelledSolution]:
    """MATH-APS (OmegaPRM), tree or flat: a solution for each end, with the value of each piece."""
    question, answer = fields["question"], str(fields["final_answer"])
    tree = fields["reasoning_steps"]
    root = _tree(question, tree) if isinstance(tree, list) else tree
    open_: list[tuple[Any, list[str], list[float]]] = [(each, [], []) for each in root["children"]]
    while open_:
        node, before, values = open_.pop(0)
        steps, labels = [*before, node["text"]], [*values, _label(node["mc_value"])]
        open_ += [(child, steps, labels) for child in node["children"]]
        if not node["children"]:
            yield _labelled_solution(question, steps, labels, answer)


def _tree(question: str, prefixes: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Hang each beginning of a solution under the longest other one that begins it."""
    nodes: dict[str, dict[str, Any]] = {question.strip(): {"children": []}}
    for each in sorted(prefixes, key=lambda each: len(each["solution_prefix"])):
        text = each["solution_prefix"].strip()
        if text not in nodes:
            above = max((each for each in nodes if text.startswith(each)), key=len, default="")
            nodes[text] = {**each, "text": text[len(above) :], "children": []}
            nodes[above]["children"].append(nodes[text])
    return nodes[question.strip()]


def from_versaprm(fields: Mapping[str, Any]) -> Iterator[LabelledSolution]:
    """VersaPRM's chains, cut after the first wrong step, and other steps in the place of one."""
    chains = [
        chain for chain in fields["chain_of_thoughts"] if None not in (chain["labels"] or [None])
    ]
    if not chains:
        raise InvalidStepRowError("no chain with a label for each step")
    for chain in chains:
        steps, good = chain["steps"], [_rating(each) == 1 for each in chain["labels"]]
        yield _labelled_solution(fields["question"], *_cut_after_first_error(steps, good))
        for other in chain.get("augs") or ():
            place, right = other["aug_idx"], _rating(other["aug_type"]) >= 0
            if all(good[:place]):  # what follows a wrong step nobody has judged
                told = [*steps[:place], other["aug_step"]], [*good[:place], right]
                yield _labelled_solution(fields["question"], *told)


def _cut_after_first_error(
    steps: Sequence[str], labels: Sequence[float]
) -> tuple[Sequence[str], Sequence[float]]:
    """Cut a solution after its first wrong step; a count that is off stays off."""
    end = labels.index(False) + 1 if False in labels else None
    return steps[:end], labels[:end]


def _label(value: Any) -> float:
    """Read a label in whatever sign it is written; others are InvalidStepRowError, -1 and words too."""
    if value in ("+", "-"):
        return bool(value == "+")
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
        raise InvalidStepRowError(
            f"label {value!r}, expected true, false, +, - or a number in [0, 1]"
        )
    return bool(value) if isinstance(value, int) else value


def _labelled_solution(
    problem: str, steps: Sequence[str], labels: Sequence[float], answer: str = ""
) -> LabelledSolution:
    if isinstance(steps, str):
        raise InvalidStepRowError("the steps are one text, expected a list")
    if not steps or len(steps) != len(labels):
        raise InvalidStepRowError(f"{len(steps)} steps and {len(labels)} labels")
    return LabelledSolution(problem, answer, tuple(step.strip() for step in steps), tuple(labels))


@dataclass(frozen=True, slots=True)
class StepLabelReader:
    """One format to import from; a row that needs no code is read by the names of its fields."""

    labels: str  #: What its labels mean, where that is a matter of opinion.
    loses: str  #: What of the row does not arrive.
    #: Takes a row, yields its solutions; None where the fields below say it all.
    code: Callable[[Mapping[str, Any]], Iterator[LabelledSolution]] | None = None
    problem: str = ""  #: Field of the problem; empty where it stands before the steps.
    steps: str = ""
    label: Sequence[str] = ()  #: Fields of the labels; the first that is there counts.
    wrong: str = ""  #: Field of the numbers of the wrong steps, from 1.
    marks: Sequence[str] = ()  #: What may stand after each step, where they are one text.
    frame: Sequence[str] = ("", "")  #: Words before and after the problem in that text.
    lines: bool = False  #: Whether its lines are the steps, but those that are empty.
    first_wrong: bool = False  #: Whether nobody has judged what follows the first wrong step.

    def read(self, fields: Mapping[str, Any]) -> Iterator[LabelledSolution]:
        """Yield the solutions of a row.

        Raises:
            InvalidStepRowError: if it cannot be read; a LookupError or TypeError tells no more.
        """
        if self.code is not None:
            yield from self.code(fields)
            return
        steps = fields[self.steps]
        if isinstance(steps, str):
            steps = self._cut(steps)
        problem, steps = (fields[self.problem], steps) if self.problem else _split_problem(steps)
        problem = problem.strip().removeprefix(self.frame[0]).removesuffix(self.frame[1]).strip()
        labels = self._labels(fields, len(steps))
        yield _labelled_solution(
            problem,
            *(_cut_after_first_error(steps, labels) if self.first_wrong else (steps, labels)),
        )

    def _cut(self, text: str) -> list[str]:
        if self.lines:
            return [line for line in text.split("\n") if line.strip()]
        mark = next((mark for mark in self.marks if mark in text), "")
        if not mark:
            raise InvalidStepRowError("no mark after a step")
        *steps, rest = text.split(mark)
        if rest.strip():
            raise InvalidStepRowError("there is text after the last mark")
        return steps

    def _labels(self, fields: Mapping[str, Any], count: int) -> list[float]:
        if not self.wrong:
            name = next((name for name in self.label if name in fields), self.label[0])
            return [_label(each) for each in fields[name]]
        if set(fields[self.wrong]) - set(range(1, count + 1)):
            raise InvalidStepRowError(f"{self.wrong} {fields[self.wrong]} of {count} steps")
        return [number not in fields[self.wrong] for number in range(1, count + 1)]


_CODE = {
    "trl-stepwise": from_trl,
    "math-shepherd": from_math_shepherd,
    "prm800k": from_prm800k,
    "processbench": from_processbench,
    "step-dpo-10k": from_step_dpo,
    "rlhflow": from_rlhflow,
    "math-aps": from_math_aps,
    "versaprm": from_versaprm,
    "genprm": from_genprm,
}

#: By the name of the format.
STEP_LABEL_READERS = TomlTable(
    __file__, lambda name, **told: StepLabelReader(code=_CODE.get(name), **told)
)
