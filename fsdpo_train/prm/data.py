"""Training data of the PRM: labelled steps are read, tokenised, split by problem and batched."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.sampling import Prompt
from fsdpo_data.dataset.step_labels import (
    LabelKind,
    find_label_kind,
    infer_label_kind,
    read_step_labels,
)
from fsdpo_data.engines.step_tokens import StepTokenizer
from fsdpo_data.exchange.prompt_questions import PromptQuestions
from fsdpo_data.models.prompts import ChatFormat
from fsdpo_data.problems.question_key import question_key
from fsdpo_data.steps.first_error import RIGHT_STEP_LABEL
from fsdpo_train.config import PrmConfig
from fsdpo_train.trainer.batching import SolutionRow, TensorBatch, collate_tokens, pad_rows
from fsdpo_train.trainer.row_formats import PRM_ROWS
from fsdpo_train.trainer.row_source import (
    Row,
    RowSource,
    TrainingData,
    open_data,
    read_question,
)

_CACHED_PROMPTS = 1024  #: Prompts whose question is in memory; the rows of a prompt are neighbours.
#: Label of padding, which the losses ignore.
IGNORE_LABEL = -100.0


@dataclass(frozen=True, slots=True)
class LabelledRow:
    """A solution with one label per step."""

    problem: str  #: Id of the problem.
    question: str  #: The question; empty if only the prompt is known.
    prompt: str  #: The rendered prompt.
    steps: Sequence[str]  #: The steps of the solution.
    labels: Sequence[float]  #: The label of each step, in [0, 1].
    location: str = ""  #: File and row number, for error messages.


@dataclass(frozen=True, slots=True, kw_only=True)
class PrmRow(SolutionRow):
    """A row of one solution, with labels at some of its tokens."""

    label_positions: Sequence[int]  #: Token positions with a label.
    labels: Sequence[float]  #: The label at each position.
    problem: str = ""  #: Id of the problem, one for all problems with the same question.
    question: str = ""  #: Key of the question; see :func:`.question_key.question_key`.
    is_correct: bool = False  #: Whether the label of the last step is at least 0.5.

    def without_loss(self) -> Self:
        """Return the row with labels that the losses ignore."""
        return replace(self, labels=[IGNORE_LABEL] * len(self.labels))


@dataclass(slots=True)
class PrmData:
    """Tokenised solutions with their labels, split into training and held-out problems."""

    train: list[PrmRow]  #: Solutions of training problems; their ``group`` is the prompt.
    held_out: list[PrmRow]  #: Solutions of held-out problems.
    #: Numbers of ``solutions``, ``problems``, ``held_out_problems`` and ``steps``. ``positive`` is
    #: the sum of the labels. Beyond the context length are ``lost_labels``, and the labels of
    #: ``lost_solutions`` that the loss needs. ``unlabelled_solutions`` have no labels of the
    #: selected kind.
    counts: Counter[str]


def open_solutions(data: Sequence[str | Path], *, allow_benchmark: bool = False) -> TrainingData:
    """Open the solutions in ``data``; see :func:`~fsdpo_train.trainer.row_source.open_source`."""
    return open_data(data, PRM_ROWS, allow_benchmark=allow_benchmark)


def read_labelled_rows(
    data: TrainingData, config: PrmConfig, counts: Counter[str]
) -> Iterator[LabelledRow]:
    """Yield the labelled solutions that ``config`` selects, source by source.

    Args:
        data: The opened sources.
        config: The options of the run.
        counts: Receives the number of ``unlabelled_solutions``, which have no labels of the kind
            that ``config`` selects.

    Raises:
        InputError: if a file cannot be read, if labels and steps do not match, if all solutions
            are unlabelled. Also if the options need a fraction of correct continuations for each
            step, but the labels come from a search for the first error, or if they choose labels,
            and all sources are files.
    """
    names = [str(name) for name in config.data]
    kinds = [
        _select_label_kind(name, source, config) if source.is_dataset else None
        for name, source in zip(names, data.sources, strict=True)
    ]
    if config.labels != "auto" and not any(kinds):
        raise InputError(
            "this option chooses from the labels of a sealed dataset, but a file has only one "
            "kind. Leave the option out.",
            field="labels",
            value=config.labels,
        )
    has_labelled_row = False
    for name, source, kind in zip(names, data.sources, kinds, strict=True):
        if kind is None:
            rows = _read_file_rows(name, source, config, data.sources.index(source))
        else:
            rows = _read_dataset_rows(source, kind, config, counts)
        for row in rows:
            has_labelled_row = True
            yield row
    if counts["unlabelled_solutions"] and not has_labelled_row:
        raise _unusable_data_error(
            config.data_text,
            f"none of {counts['unlabelled_solutions']} solutions has labels of the kind "
            f"{' or '.join(dict.fromkeys(filter(None, kinds)))}. Choose other `labels`, or label "
            "the solutions with `fsdpo-data label`.",
        )


def _read_dataset_rows(
    source: RowSource, kind: LabelKind, config: PrmConfig, counts: Counter[str]
) -> Iterator[LabelledRow]:
    """Yield the labelled solutions of a dataset, the first ``samples`` of each problem.

    The ``question`` of a row is empty if the source has no problems.

    Args:
        source: The dataset.
        kind: The kind of labels.
        config: The options of the run.
        counts: The counts of :func:`read_labelled_rows`.
    """
    n_solutions = Counter[str]()
    for location, row in source.rows():
        # A selection keeps the index of the original sample, so the index is not the number.
        n_solutions[row["problem_id"]] += 1
        exceeds_samples = config.samples and n_solutions[row["problem_id"]] > config.samples
        if not row["completions"] or exceeds_samples:
            continue
        labels = read_step_labels(row, kind)
        if labels is None:
            counts["unlabelled_solutions"] += 1
        else:
            question = read_question(row) or ""
            yield _labelled_row(location, {**row, "labels": labels, "question": question})


def _select_label_kind(name: str, source: RowSource, config: PrmConfig) -> LabelKind:
    """Return the kind of labels to read from a dataset.

    Raises:
        InputError: if the options ask for labels that the dataset does not have.
    """
    if source.manifest is not None:
        best_kind = find_label_kind(source.manifest)
        is_searched = source.manifest.labels_are_searched
    else:
        best_kind = infer_label_kind(row for _, row in source.rows())
        is_searched = best_kind == "first-error"
    if is_searched and config.labels == "rollouts":
        raise InputError(
            f"{name} was labelled with `search=first-error`, which continues "
            "only some of the steps, so there is no fraction of correct continuations for each "
            "step. Use `labels=first-error`, or label the steps again without `search`.",
            field="labels",
            value=config.labels,
        )
    if not is_searched and config.labels == "first-error":
        raise InputError(
            f"{name} has no labels of a search. Make them with `fsdpo-data label` and "
            "`search=first-error`, or use other `labels`.",
            field="labels",
            value=config.labels,
        )
    return best_kind if config.labels == "auto" else config.labels


def _read_file_rows(
    name: str, source: RowSource, config: PrmConfig, number: int
) -> Iterator[LabelledRow]:
    """Yield the rows of a stepwise-supervision file.

    Rows with the same ``problem_id`` form a problem, and so do rows with the same question. Files
    count their problems in their own way, so an id is one of the source ``number`` only.
    """
    if config.samples:
        raise _unusable_data_error(
            name,
            "`samples` chooses from a sealed dataset, but this is a file of labelled rows. Leave "
            "it out, and choose the rows yourself.",
        )
    for location, row in source.rows():
        missing = [column for column in PRM_ROWS.columns if row.get(column) is None]
        if missing:
            raise InputError(
                f"{location}: the columns {', '.join(missing)} are missing. The row has "
                f"{', '.join(row)}."
            )
        problem = row["prompt"]
        if row.get("problem_id") is not None:
            problem = f"{row['problem_id']} of source {number}" if number else row["problem_id"]
        question = read_question(row) or ""
        yield _labelled_row(location, {**row, "problem_id": problem, "question": question})


def _unusable_data_error(name: str, reason: str) -> InputError:
    return InputError(reason, field="data", value=name)


def _labelled_row(location: str, row: Row) -> LabelledRow:
    """Check a row, and return its fields.

    Raises:
        InputError: if a field has a wrong type, or labels and steps do not match.
    """
    steps = row["completions"]
    labels = row["labels"]
    if not (isinstance(steps, list) and isinstance(labels, list)):
        raise InputError(f"{location}: completions and labels: expected two lists.")
    if not all(isinstance(text, str) for text in (row["prompt"], *steps)):
        raise InputError(f"{location}: prompt, completions: expected a text and a list of texts.")
    if len(steps) != len(labels):
        raise InputError(
            f"{location}: {len(labels)} labels for {len(steps)} steps. Expected one label per step."
        )
    for label in labels:
        if not isinstance(label, (bool, int, float)) or not 0 <= label <= 1:
            raise InputError(
                f"{location}: label {label!r}. Expected true, false or a number in [0, 1]."
            )
    return LabelledRow(
        problem=str(row["problem_id"]),
        question=row["question"],
        prompt=row["prompt"],
        steps=steps,
        labels=[float(label) for label in labels],
        location=location,
    )


def prepare_rows(
    rows: Iterable[LabelledRow], tokenizer: Any, max_length: int, config: PrmConfig
) -> PrmData:
    """Tokenise rows and split them by problem.

    Args:
        rows: The labelled solutions.
        tokenizer: The tokenizer of the policy.
        max_length: Maximum number of tokens. Steps beyond it lose their labels.
        config: The options of the run.

    Raises:
        InputError: if no label is left, or all training labels that the loss reads are 0, or all
            are 1.
    """
    encoded_rows, counts = _encode_rows(rows, tokenizer, max_length, config)
    if not encoded_rows:
        raise _unusable_data_error(
            config.data_text,
            f"no labelled step is left; {counts['lost_solutions']} solutions exceed {max_length} "
            f"tokens in their {'last' if _needs_last_step(config) else 'first'} step. Check the "
            "labels, or raise max_length.",
        )
    encoded_rows = _join_problems(encoded_rows)
    problems = {row.problem for row in encoded_rows}
    held_out_problems = _draw_heldout_problems(problems, config.held_out, config.seed)
    counts.update(problems=len(problems), held_out_problems=len(held_out_problems))
    train_rows = [row for row in encoded_rows if row.problem not in held_out_problems]
    held_out_rows = [row for row in encoded_rows if row.problem in held_out_problems]
    labels = [label for row in train_rows for label in _labels_of_loss(row, config)]
    if len(set(labels)) < 2 and labels[0] in (0, 1):
        labels_text = "outcomes" if config.prm_loss.reads_last_label else "step labels"
        raise _unusable_data_error(
            config.data_text,
            f"all {len(labels)} {labels_text} are {'right' if labels[0] else 'wrong'} "
            f"({labels[0]:g}), so there is nothing to learn; {len(held_out_problems)} problems are "
            "held out. Sample problems that the model solves only sometimes.",
        )
    return PrmData(train=train_rows, held_out=held_out_rows, counts=counts)


def _needs_last_step(config: PrmConfig) -> bool:
    """Return whether a solution cannot be trained on without its last step."""
    return config.last_step_only or config.prm_loss.reads_last_label


def _encode_rows(
    rows: Iterable[LabelledRow],
    tokenizer: Any,
    max_length: int,
    config: PrmConfig,
) -> tuple[list[PrmRow], Counter[str]]:
    """Return the tokenised rows, and the counts of :class:`PrmData`.

    With ``last_step_only``, a row has the label of its last step, and counts as one step. If the
    training needs the last step, a row whose last step exceeds ``max_length`` is lost.
    """
    encoded_rows: list[PrmRow] = []
    counts: Counter[str] = Counter()
    step_tokenizer = StepTokenizer(tokenizer)
    find_question = _question_finder(tokenizer)
    for row in rows:
        try:
            solution = step_tokenizer.encode(
                Prompt(row.prompt, row.question or None),
                row.steps,
                add_eos=False,
                max_length=max_length,
            )
        except InputError as error:
            raise InputError(f"{row.location}: {error}") from None
        counts["lost_labels"] += solution.truncated_steps
        loses_last_step = _needs_last_step(config) and solution.truncated_steps
        if not solution.score_positions or loses_last_step:
            counts["lost_solutions"] += 1
            continue
        label_positions = solution.score_positions
        labels = list(row.labels[: len(label_positions)])
        if config.last_step_only:
            label_positions, labels = label_positions[-1:], labels[-1:]
        encoded_row = PrmRow(
            solution=solution,
            label_positions=label_positions,
            labels=labels,
            length=len(solution.input_ids),
            problem=row.problem,
            question=question_key(row.question or find_question(row.prompt)),
            group=row.prompt,
            is_correct=row.labels[-1] >= RIGHT_STEP_LABEL,
        )
        encoded_rows.append(encoded_row)
        counts["solutions"] += 1
        counts["steps"] += len(labels)
        counts["positive"] += math.fsum(labels)  # type: ignore[assignment]
    return encoded_rows, counts


def _question_finder(tokenizer: Any) -> Callable[[str], str]:
    """Return a function from prompts to questions, for the templates that are known here."""
    has_chat_format = bool(getattr(tokenizer, "chat_template", None))
    questions = PromptQuestions(chat=ChatFormat(tokenizer) if has_chat_format else None)
    return lru_cache(_CACHED_PROMPTS)(questions.find)


def _join_problems(rows: Sequence[PrmRow]) -> list[PrmRow]:
    """Return the rows with one id for all problems that share a prompt or a question.

    A question with two spellings of its gold answer has two ids, sources name a problem in
    different ways, and their prompts have different templates. All solutions of a question must be
    on one side of the split.
    """
    joined_to: dict[str, str] = {}

    def find_first(problem: str) -> str:
        while problem in joined_to:
            problem = joined_to[problem]
        return problem

    problem_of_text: dict[tuple[str, Hashable], str] = {}
    for row in rows:
        for text in (("prompt", row.group), ("question", row.question)):
            if not text[1]:  # an empty prompt tells no problems apart
                continue
            first_problem = find_first(problem_of_text.setdefault(text, row.problem))
            problem = find_first(row.problem)
            if problem != first_problem:
                joined_to[problem] = first_problem
    return [replace(row, problem=find_first(row.problem)) for row in rows]


def _draw_heldout_problems(problems: set[str], fraction: float, seed: int) -> set[str]:
    """Draw a fraction of the problems by a hash of their ids: at least one, but never all."""
    if not fraction or len(problems) < 2:
        return set()
    count = round(fraction * len(problems))
    count = max(1, min(count, len(problems) - 1))
    hashed_order = sorted(
        problems, key=lambda problem: sha256(f"{seed}/{problem}".encode()).digest()
    )
    return set(hashed_order[:count])


def _labels_of_loss(row: PrmRow, config: PrmConfig) -> Sequence[float]:
    """Return the labels of a row that the loss reads."""
    return row.labels[-1:] if config.prm_loss.reads_last_label else row.labels


def collate_solutions(rows: Sequence[PrmRow], pad_id: int) -> TensorBatch:
    """Collate rows, padded on the right.

    Returns:
        The tensors of :func:`.batching.collate_tokens`, and ``label_positions`` and ``labels``
        of shape [B, K].
    """
    return {
        **collate_tokens([row.solution for row in rows], pad_id),
        "label_positions": pad_rows([row.label_positions for row in rows], 0),
        "labels": pad_rows([row.labels for row in rows], IGNORE_LABEL),
    }
