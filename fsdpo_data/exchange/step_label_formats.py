"""Formats of published step labels: each reads a row as solutions with one label per step.

A reader yields the steps of the row. :class:`StepLabelFields` then cuts a solution, and sets the
text between its steps.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.core.row_files import replace_surrogates
from fsdpo_data.exchange.export_formats import MATH_SHEPHERD_TAG
from fsdpo_data.exchange.response_formats import Fields, RecordedResponse
from fsdpo_data.stages.import_labels import ImportSettings
from fsdpo_data.steps.segment import remove_step_marker, split_auto

_FIRST_STEP = re.compile(r"\s*Step 1:")
_VERDICT = re.compile(r"\\boxed\{(Yes|No)\}")
#: The heading of the last part of a complete solution in PRM800K.
_PRM800K_ANSWER = "# Answer"
_PARAGRAPH_SEPARATOR = "\n\n"
_NOTHING = "nothing"  #: Data that a format drops which keeps the complete row.
_LAST_MARKER = re.compile(r"Step\s+\d+:\s*\Z")


class _RatedStep(NamedTuple):
    """A step with its rating in PRM800K."""

    text: str  #: The step, without surrounding white space.
    rating: Any  #: The rating as in the file, before validation; None if the step has none.


def read_trl(fields: Fields) -> Iterator[RecordedResponse]:
    """Read TRL's stepwise supervision; prompt and steps stay unchanged."""
    prompt = fields["prompt"]
    labels = [_parse_label(label) for label in fields["labels"]]
    solution = _labelled_solution(prompt, fields["completions"], labels)
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
    problem, steps = _split_problem(tagged_steps)
    yield _labelled_solution(problem, steps, labels)


def _split_problem(steps: Sequence[str]) -> tuple[str, list[str]]:
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
    if not steps or first_error not in range(-1, len(steps)):
        raise UnusableRowError(f"label {first_error} of {len(steps)} steps")
    labels = [index != first_error for index in range(len(steps))]
    yield _labelled_solution(fields["problem"], steps, labels)


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
    for step in fields["label"]["steps"]:
        alternatives, next_step = _split_completions(step)
        for alternative in alternatives:
            yield _solution_from_ratings(problem, answer, [*chain, alternative])
        if next_step is None or next_step.rating is None:
            if alternatives:
                return  # they contain the rated steps
            break
        chain.append(next_step)
    if chain:
        is_complete = fields["label"].get("finish_reason") == "solution"
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
    return _labelled_solution(problem, steps, labels, answer, ratings=ratings, goes_on=goes_on)


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
    if sides["chosen"].strip() == sides["rejected"].strip():
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
        yield _labelled_solution(fields["prompt"], steps, labels, answer, goes_on=True)


def read_rlhflow(fields: Fields) -> Iterator[RecordedResponse]:
    """Read RLHFlow's dialogues, whose first turn is the question, a space and the first step.

    Without "Step 1:" the boundary between question and first step is unknown. The first turn is
    then the prompt, and its label is dropped.
    """
    steps, signs = _split_turns(fields)
    labels = [_parse_label(sign.strip()) for sign in signs]
    if _FIRST_STEP.search(steps[0]):
        problem, steps = _split_problem(steps)
    else:
        problem = steps[0]
        steps = steps[1:]
        labels = labels[1:]
    yield _labelled_solution(problem, steps, labels)


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
    yield _labelled_solution(problem, paragraphs[:count], labels, goes_on=goes_on)


def _split_turns(fields: Fields) -> tuple[list[str], list[str]]:
    """Return the texts of the user and of the assistant in a dialogue, one pair per turn."""
    turns = fields.get("conversations") or fields["messages"]
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
    search splits a text at any word, so pieces join inside sentences, too, and stay unchanged.
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
        labels = [*parent_labels, _parse_label(node["mc_value"])]
        queue += [(child, steps, labels) for child in node["children"]]
        if not node["children"]:
            joined_steps = _join_pieces(steps)
            yield RecordedResponse(
                gold=answer,
                response="".join(joined_steps),
                correct=None,
                question=question,
                steps=joined_steps,
                step_labels=tuple(labels),
            )


def _join_pieces(pieces: Sequence[str]) -> tuple[str, ...]:
    """Return the pieces of a text as steps.

    A line end separates two pieces without white space between them: published trees lack it.
    """
    first_piece, *later_pieces = pieces
    steps = [first_piece.lstrip()]  # the prompt separates the question
    for piece in later_pieces:
        if not steps[-1][-1:].isspace() and not piece[:1].isspace():
            steps[-1] += "\n"
        steps.append(piece)
    return tuple(steps)


def _build_tree(question: str, prefixes: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Build a tree in which the parent of a prefix is the longest shorter prefix of its text."""
    nodes: dict[str, dict[str, Any]] = {question.strip(): {"children": []}}
    for prefix in sorted(prefixes, key=lambda prefix: len(prefix["solution_prefix"])):
        text = prefix["solution_prefix"].strip()
        if text not in nodes:
            ancestors = [node_text for node_text in nodes if text.startswith(node_text)]
            parent = max(ancestors, key=len, default="")
            nodes[text] = {**prefix, "text": text[len(parent) :], "children": []}
            nodes[parent]["children"].append(nodes[text])
    return nodes[question.strip()]


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
        yield _labelled_solution(fields["question"], steps, labels)
        for replacement in chain.get("augs") or ():
            index = replacement["aug_idx"]
            label = _parse_rating(replacement["aug_type"]) >= 0
            # The labels after a wrong step are unknown, so no replacement is read there.
            if all(labels[:index]):
                yield _labelled_solution(
                    fields["question"],
                    [*steps[:index], replacement["aug_step"]],
                    [*labels[:index], label],
                    goes_on=index + 1 < len(steps),
                )


def _parse_label(value: Any) -> float:
    """Return a label from a boolean, a sign or a number in [0, 1].

    Raises:
        UnusableRowError: For all other values, such as -1 and words.
    """
    if value in ("+", "-"):
        return bool(value == "+")
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
        raise UnusableRowError(f"label {value!r}, expected true, false, +, - or a number in [0, 1]")
    return bool(value) if isinstance(value, int) else value


def _labelled_solution(
    problem: str,
    steps: Sequence[str],
    labels: Sequence[float],
    answer: str = "",
    *,
    ratings: Sequence[int] | None = None,
    goes_on: bool = False,
) -> RecordedResponse:
    """Return a solution with its steps as in the row.

    Args:
        problem: The problem.
        steps: The steps.
        labels: Their labels.
        answer: The gold answer; empty without one.
        ratings: Ratings of PRM800K.
        goes_on: Whether the original solution has steps after these.
    """
    if isinstance(steps, str):
        raise UnusableRowError("the steps are one text, expected a list")
    return RecordedResponse(
        gold=answer,
        response="",  # set when the text between the steps is known
        question=problem,
        steps=steps,
        step_labels=labels,
        step_ratings=ratings,
        goes_on=goes_on,
    )


#: Texts between two steps, by the name that users give them.
STEP_SEPARATORS = {"newline": "\n", "blank-line": _PARAGRAPH_SEPARATOR}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLabelFields:
    """How to read step labels; most formats need only the names of their fields.

    The attributes are the keys of a table ``step_labels`` in ``formats.toml``; its keys
    ``label_meaning`` and ``drops`` are in ``settings``.
    """

    settings: ImportSettings  #: The meaning of the labels, and the data that are not imported.
    #: Yields the solutions of a row; None if the fields below describe the format completely.
    read_row: Callable[[Fields], Iterator[RecordedResponse]] | None = None
    #: Field of the problem; empty if the steps start with the problem. Dots lead into objects, and
    #: into the objects of lists: ``steps.text`` is the text of each step.
    problem: str = ""
    steps: str = ""  #: Field of the steps: a list, or one text.
    label: Sequence[str] = ()  #: Possible fields of the labels; the first one in the row is used.
    right_labels: Sequence[str] = ()  #: Labels that mean right, as texts; empty for the usual ones.
    wrong_labels: Sequence[str] = ()  #: Labels that mean wrong, as texts; all others are invalid.
    wrong_steps: str = ""  #: Field with the numbers of the wrong steps, from 1.
    #: Field with the number of the first wrong step; null, -1 or a word such as "none" without one.
    first_error: str = ""
    first_step: int = 0  #: Number of the first step in ``first_error``.
    answer: str = ""  #: Field of the gold answer; empty if the format has none.
    answer_on_last_line: bool = False  #: Whether the gold is the last line of this field.
    #: Possible step tags after each step of a text; the first one in the text is used.
    step_tags: Sequence[str] = ()
    #: Prefix and suffix around the problem in that text; both are removed.
    problem_affixes: Sequence[str] = ("", "")
    summary: str = ""  #: Origin and labels in a few words, for ``--help``.
    has_step_lines: bool = False  #: Whether the non-empty lines of the text are the steps.
    ends_at_first_error: bool = False  #: Whether the steps after the first wrong step are dropped.
    #: Name of the text between two steps; empty if the steps stay as they are.
    step_separator: str = "newline"
    #: Whether each row is a preference pair, read as the chosen and then the rejected solution.
    has_pairs: bool = False

    @classmethod
    def from_toml(
        cls, name: str, *, label_meaning: str, drops: str, read_row: str = "", **fields: Any
    ) -> Self:
        """Make the fields of a format from its table, which may name a function of this module."""
        settings = ImportSettings(format=name, meaning=label_meaning, drops=drops)
        return cls(settings=settings, read_row=globals()[read_row] if read_row else None, **fields)

    def with_options(self, step_separator: str | None, *, first_error_only: bool) -> Self:
        """Return the format with the options of a user.

        Args:
            step_separator: Name of the text between two steps, which also replaces step markers;
                None keeps the separator of the format.
            first_error_only: Whether to drop the steps after the first wrong step.
        """
        first_error_only = first_error_only and not self.ends_at_first_error
        drops = []
        if first_error_only:
            drops.append("the steps after the first wrong step")
        if step_separator is not None:
            drops.append("step markers")
        if not drops or self.settings.drops != _NOTHING:
            drops.append(self.settings.drops)
        settings = self.settings.model_copy(
            update={
                "drops": ", ".join(drops),
                "step_separator": step_separator,
                "first_error_only": first_error_only,
            }
        )
        return replace(
            self,
            settings=settings,
            ends_at_first_error=self.ends_at_first_error or first_error_only,
            step_separator=step_separator or self.step_separator,
        )

    def as_published(self) -> Self:
        """Return the format with complete solutions, and with the steps as in the row."""
        return replace(self, ends_at_first_error=False, step_separator="")

    def matches(self, fields: Fields) -> bool:
        """Return whether the format reads at least one solution of a row."""
        try:
            return any(self.read(fields))
        except (UnusableRowError, LookupError, TypeError, AttributeError):
            return False

    def read(self, fields: Fields) -> Iterator[RecordedResponse]:
        """Yield the solutions of a row.

        Raises:
            UnusableRowError: If a value of the row is invalid. A row of another format may also
                raise a LookupError, TypeError or AttributeError.
        """
        solutions = self._read_fields(fields) if self.read_row is None else self.read_row(fields)
        return map(self._finish, solutions)

    def _finish(self, solution: RecordedResponse) -> RecordedResponse:
        """Cut a solution, and set the text between its steps.

        Raises:
            UnusableRowError: if there is not one label per step.
        """
        n_steps = len(solution.steps)
        if self.ends_at_first_error:
            solution = _cut_after_first_error(solution)
        n_labels = len(solution.step_labels or ())
        if not solution.steps or len(solution.steps) != n_labels:
            raise UnusableRowError(f"{len(solution.steps)} steps and {n_labels} labels")
        steps = solution.steps
        if self.step_separator:
            goes_on = solution.goes_on or len(steps) < n_steps
            steps = self._separate_steps(steps, goes_on=goes_on)
        solution = replace(solution, steps=tuple(steps))
        _check_texts(solution)
        return replace(solution, response="".join(steps))

    def _separate_steps(self, steps: Sequence[str], *, goes_on: bool) -> list[str]:
        """Return stripped steps with a separator after each step but the last.

        A reward is read at the last token of a step, and this token contains the separator. If the
        last step had none although the solution goes on, a reward model could tell by it where the
        labels end, and so where the first error is.
        """
        if self.settings.step_separator is not None:
            steps = [remove_step_marker(step.strip()) for step in steps]
        separator = STEP_SEPARATORS[self.step_separator]
        *ended_steps, last_step = (step.strip() + separator for step in steps)
        return [*ended_steps, last_step if goes_on else last_step.removesuffix(separator)]

    def _read_fields(self, fields: Fields) -> Iterator[RecordedResponse]:
        """Yield the solution of a row whose fields describe the format completely."""
        steps = _read_field(fields, self.steps)
        if isinstance(steps, str):
            steps = self._split_steps(steps)
        if self.problem:
            problem = _read_field(fields, self.problem)
        else:
            problem, steps = _split_problem(steps)
        prefix, suffix = self.problem_affixes
        problem = problem.strip().removeprefix(prefix).removesuffix(suffix).strip()
        labels = self._read_labels(fields, len(steps))
        yield _labelled_solution(problem, steps, labels, self._read_answer(fields))

    def _read_answer(self, fields: Fields) -> str:
        """Return the gold answer of a row; empty without one."""
        if not self.answer:
            return ""
        value = _read_field(fields, self.answer)
        answer = "" if value is None else str(value).strip()
        return answer.split("\n")[-1].strip() if self.answer_on_last_line else answer

    def _split_steps(self, text: str) -> list[str]:
        """Split a text into steps, at its lines or step tags."""
        if self.has_step_lines:
            return [line for line in text.split("\n") if line.strip()]
        step_tag = next((tag for tag in self.step_tags if tag in text), "")
        if not step_tag:
            raise UnusableRowError("the text has no step tag")
        *steps, text_after = text.split(step_tag)
        if text_after.strip():
            raise UnusableRowError("there is text after the last step tag")
        return steps

    def _read_labels(self, fields: Fields, count: int) -> list[float]:
        """Return the labels of a row with ``count`` steps."""
        if self.first_error:
            index = self._first_error_index(_read_field(fields, self.first_error), count)
            return [number != index for number in range(count)]
        if not self.wrong_steps:
            name = next((name for name in self.label if name in fields), self.label[0])
            labels = _read_field(fields, name)
            if isinstance(labels, str):
                raise UnusableRowError("the labels are one text, expected a list")
            return [self._parse_label(label) for label in labels]
        wrong_steps = fields[self.wrong_steps]
        if set(wrong_steps) - set(range(1, count + 1)):
            raise UnusableRowError(f"{self.wrong_steps} {wrong_steps} of {count} steps")
        return [number not in wrong_steps for number in range(1, count + 1)]

    def _parse_label(self, value: Any) -> float:
        """Return the label of a step, from 0 (wrong) to 1 (right)."""
        if not self.right_labels and not self.wrong_labels:
            return _parse_label(value)
        text = _label_text(value)
        is_right = text in self.right_labels
        if is_right == (text in self.wrong_labels):
            expected = ", ".join((*self.right_labels, *self.wrong_labels))
            raise UnusableRowError(f"label {value!r}, expected one of {expected}")
        return is_right

    def _first_error_index(self, value: Any, count: int) -> int:
        """Return the position of the first wrong step, from 0; -1 without one."""
        text = _label_text(value).lower()
        if text in _NO_ERROR or value == -1:
            return -1
        try:
            index = int(text) - self.first_step
        except ValueError:
            index = -1
        if isinstance(value, bool) or index not in range(count):
            raise UnusableRowError(
                f"{self.first_error} {value!r} of {count} steps, which start at {self.first_step}"
            )
        return index


def _cut_after_first_error(solution: RecordedResponse) -> RecordedResponse:
    """Return a solution without the steps after the first one with a label below 0.5."""
    labels = solution.step_labels or ()
    end = next((number for number, label in enumerate(labels, start=1) if label < 0.5), None)
    ratings = solution.step_ratings
    return replace(
        solution,
        steps=solution.steps[:end],
        step_labels=labels[:end],
        step_ratings=None if ratings is None else ratings[:end],
    )


def _check_texts(solution: RecordedResponse) -> None:
    """Raise an UnusableRowError if a text is blank, or cannot be written to a file."""
    for text in (solution.question, solution.gold, *solution.steps):
        if not isinstance(text, str):
            raise UnusableRowError(f"expected a text, found {text!r}")
        if text != replace_surrogates(text):
            raise UnusableRowError("the text contains half a surrogate pair, which is invalid")
    if not all(text.strip() for text in (solution.question, *solution.steps)):
        raise UnusableRowError("the problem or a step is blank")


#: Words for the absence of a wrong step, in lower case.
_NO_ERROR = ("null", "none", "n/a", "")


def _label_text(value: Any) -> str:
    """Return a label as the text that users write for it: JSON's words, and 1 for 1.0."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) and value == int(value):
        return str(int(value))
    return str(value).strip()


def _read_field(fields: Fields, path: str) -> Any:
    """Return a field of a row; dots lead into objects, and into the objects of lists."""
    if path in fields:
        return fields[path]
    name, _, inner_path = path.partition(".")
    value = fields[name]
    if not inner_path:
        return value
    if isinstance(value, list):
        return [_read_field(item, inner_path) for item in value]
    return _read_field(value, inner_path)
