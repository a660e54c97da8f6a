"""The questions of benchmark files, to compare them with training problems."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.core.row_files import SPLITS, data_files, read_records
from fsdpo_data.problems.load import files_revision
from fsdpo_data.problems.overlap import LocatedQuestion
from fsdpo_data.problems.row_formats import PROBLEM_FORMATS, ProblemFormat

#: Formats of rows: of the original files of some benchmarks, and of problems.
_FORMATS = (
    ProblemFormat(("Body", "Question"), "Answer", "SVAMP"),
    ProblemFormat(("sQuestion",), "lSolutions", "AddSub"),
    ProblemFormat(("problem",), "gold_answer", "GSM-IC"),
    ProblemFormat(("problem",), "ground_truth_answer", "PRM800K"),
    *PROBLEM_FORMATS,
    ProblemFormat(("question",), "ground_truth_answer", "ReasonEval"),
    ProblemFormat(("question",), "gold_answer", "question + gold_answer"),
    ProblemFormat(("question",), "target", "question + target"),
)


@dataclass(frozen=True, slots=True)
class BenchmarkQuestions:
    """The questions of one benchmark."""

    name: str  #: Name of the benchmark.
    revision: str  #: ``sha256:…`` of its files.
    questions: Sequence[LocatedQuestion]  #: All questions, with their gold answers.


def read_benchmark(text: str) -> BenchmarkQuestions:
    """Read the questions of ``FILE`` or ``NAME=FILE``; rows without a question are ignored.

    The default name of ``math500.jsonl`` is ``math500``. A file named after a split, such as
    ``gsm8k/test.jsonl``, takes the name of its folder.

    Raises:
        InputError: if no row has a question.
    """
    name, equals, path = text.partition("=")
    is_unnamed = not equals or "/" in name  # a path may contain "=" too
    if is_unnamed:
        path = text
    files = data_files(path, "test")
    if is_unnamed:
        absolute_path = Path(text).expanduser().resolve()
        # The name of the home folder is the name of the user, which manifests must not contain.
        is_split = absolute_path.stem in SPLITS and absolute_path.parent != Path.home()
        name = absolute_path.parent.name if is_split else absolute_path.stem
    questions = [question for file in files for question in _read_questions(file, name)]
    if not questions:
        raise InputError(f"{path}: no row has a question. Expected fields such as `question`.")
    return BenchmarkQuestions(name, files_revision(files), questions)


def _read_questions(file: Path, name: str) -> Iterator[LocatedQuestion]:
    """Yield the questions of a file of the benchmark ``name``."""
    for record in read_records(file):
        fields = record.fields
        if isinstance(fields.get("question"), dict):  # PRM800K
            fields = fields["question"]
        question = _question(fields)
        if question:
            yield LocatedQuestion(
                source=name,
                row=record.row_number,
                question=question,
                answer=_gold_answer(fields),
                file=file.name,
            )


def _question(fields: Mapping[str, Any]) -> str:
    """Return the question of a row, which may have no gold answer; or an empty string."""
    for row_format in _FORMATS:
        values = [fields.get(field_name) for field_name in row_format.question]
        texts = [value for value in values if isinstance(value, str)]
        if len(texts) == len(values):
            return row_format.separator.join(texts)
    return ""


def _gold_answer(fields: Mapping[str, Any]) -> str:
    """Return the first gold answer of a row that can be read, or an empty string."""
    for row_format in _FORMATS:
        if row_format.matches(fields):
            with contextlib.suppress(UnusableRowError):
                return row_format.gold_answer(fields, row_format.answer)
    return ""
