"""Rows of the benchmarks as their authors and users wrote them, read to one problem each.

A benchmark exists in several forms: the original file, a list re-written as lines, the forms that
evaluation scripts of others read. Each form of one benchmark gives the same problems.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.rows import Record, read_records
from fsdpo_data.problems.forms import Form, NotAProblem, answer_text, boxed_gold

#: Decimal places of numeric golds: AddSub's original has binary noise (0.6666666666666666), the
#: form of the MAWPS collection has it rounded.
GOLD_PLACES = 10

_PART = re.compile(r"Subproblem \d+: ?")


def same(question: str) -> str:
    """Return the question as it is, without the space around it."""
    return question.strip()


def single_spaced(question: str) -> str:
    """Return the question with runs of white space as one space; forms of ASDiv differ there."""
    return " ".join(question.split())


def without_lone_label(question: str) -> str:
    """Drop OCW's "Subproblem 0:" where there is only one; part of its forms have dropped it."""
    labels = _PART.findall(question)
    return (_PART.sub("", question) if len(labels) == 1 else question).strip()


def after_hashes(value: Any) -> str:
    """Take GSM8K's gold: what follows the last ``####``, or all of it where there is none."""
    if isinstance(value, str):
        value = value.rpartition("####")[2].strip()
    return answer_text(value)


def maybe_missing(value: Any) -> str:
    """Take a gold that may be missing: such a problem is kept, and is nobody's failure."""
    return answer_text(value).strip() if value else ""


def rounded(value: Any) -> str:
    """Take a gold that is a float, or one as text, rounded so that all forms say the same."""
    text = answer_text(value)
    try:
        return answer_text(round(float(text), GOLD_PLACES))
    except ValueError:
        raise NotAProblem(f"the answer {text!r} is no number") from None


GSM8K_FORMS = (
    Form(("question",), "answer", after_hashes, "question + answer"),
    Form(("instruction",), "answer", answer_text, "instruction + answer"),
)
MATH_FORMS = (
    Form(("problem",), "answer", answer_text, "problem + answer"),
    Form(("problem",), "solution", boxed_gold, "problem + solution with a \\boxed answer"),
    Form(("question",), "answer", answer_text, "question + answer"),
)
GK2023_FORMS = (Form(("question",), "answer", maybe_missing, "question + answer"),)
SVAMP_FORMS = (Form(("Body", "Question"), "Answer", rounded, "Body + Question + Answer"),)
ADDSUB_FORMS = (
    Form(("sQuestion",), "lSolutions", rounded, "sQuestion + lSolutions"),
    Form(("input",), "target", rounded, "input + target"),
)
ASDIV_FORMS = (Form(("body", "question"), "answer", answer_text, "body + question + answer"),)
GSM_IC_FORMS = (Form(("problem",), "gold_answer", answer_text, "problem + gold_answer"),)


def every_row(fields: Mapping[str, Any]) -> bool:
    """Whether the row belongs to the benchmark: all do."""
    return True


def one_answer(fields: Mapping[str, Any]) -> bool:
    """Whether an ASDiv row has one answer; the 90 with several are not part of the benchmark."""
    return ";" not in str(fields.get("answer", ""))


def read_rows(file: Path) -> Iterator[Record]:
    """Yield the rows of a file: JSON lines, JSON, parquet, CSV, or ASDiv's XML."""
    return _asdiv_xml(file) if file.suffix.lower() == ".xml" else read_records(file)


def _asdiv_xml(file: Path) -> Iterator[Record]:
    from xml.etree import ElementTree

    try:
        root = ElementTree.fromstring(file.read_bytes())
    except (OSError, ElementTree.ParseError) as error:
        raise InputError(f"{file}: not ASDiv's XML ({error}). Fetch it again.") from None
    for number, problem in enumerate(root.iter("Problem"), start=1):
        yield Record(number, _lower_case(problem))


def _lower_case(problem: Iterable[Any]) -> dict[str, str]:
    return {part.tag.lower().replace("-", "_"): (part.text or "").strip() for part in problem}
