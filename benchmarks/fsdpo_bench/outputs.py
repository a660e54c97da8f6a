"""Responses that others recorded, in the forms they published them in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsdpo_data.errors import InputError
from fsdpo_data.records import read_records

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One response, its gold, and what its publisher says of it.

    Attributes:
        row: Line of the file, from 1.
        series: Which model or sample of the row it is; empty where there is one.
        gold: The gold answer.
        response: The text.
        correct: The publisher's verdict; None if there is none.
    """

    row: int
    series: str
    gold: str
    response: str
    correct: bool | None


@dataclass(frozen=True, slots=True)
class OutputForm:
    """One way to write responses down.

    Attributes:
        says: Whose form it is.
        fields: The fields that tell it from others.
        read: Takes (series, gold, response, verdict) out of a row.
    """

    says: str
    fields: frozenset[str]
    read: Callable[[Fields], Iterator[tuple[str, str, str, bool | None]]]


def _openai(row: Fields) -> Iterator[tuple[str, str, str, bool | None]]:
    # A gold solution may say "at Job A: …" before the "A: 8400" it ends on.
    gold = row["ground_truth"].rpartition("\nA:")[2].strip()
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield name, gold, value["solution"], value["is_correct"]


def _samples(row: Fields) -> Iterator[tuple[str, str, str, bool | None]]:
    """Read ToRA's form, and Qwen's, which has a verdict for each sample as well."""
    verdicts = row.get("score") or [None] * len(row["code"])
    for index, (text, verdict) in enumerate(zip(row["code"], verdicts, strict=True)):
        yield f"sample {index}", row["gt"], text, verdict


def _abel(row: Fields) -> Iterator[tuple[str, str, str, bool | None]]:
    yield "", row["gold"], row["response"], row["result"]


def _nemo(row: Fields) -> Iterator[tuple[str, str, str, bool | None]]:
    yield "", row["expected_answer"], row["generation"], row["symbolic_correct"]


def _lm_eval(row: Fields) -> Iterator[tuple[str, str, str, bool | None]]:
    scores = [row[name] for name in ("exact_match", "acc") if name in row]
    verdict = bool(scores[0]) if scores else None
    for index, text in enumerate(row["resps"][0]):
        yield f"sample {index}", str(row["target"]), text, verdict


def _plain(row: Fields) -> Iterator[tuple[str, str, str, bool | None]]:
    yield "", str(row["answer"]), row["response"], row.get("correct")


#: The first whose fields a row has reads it.
FORMS = (
    OutputForm("OpenAI's GSM8K solutions", frozenset({"question", "ground_truth"}), _openai),
    OutputForm("ToRA and Qwen", frozenset({"gt", "code"}), _samples),
    OutputForm("Abel", frozenset({"gold", "response", "result"}), _abel),
    OutputForm("NeMo-Skills", frozenset({"generation", "expected_answer"}), _nemo),
    OutputForm("lm-evaluation-harness samples", frozenset({"resps", "target"}), _lm_eval),
    OutputForm("plain", frozenset({"answer", "response"}), _plain),
)


def read_outputs(file: Path) -> list[Recorded]:
    """Read recorded responses, whoever published them.

    Raises:
        InputError: if a row cannot be read, or is of no known form.
    """
    found = []
    for record in read_records(file):
        form = next((form for form in FORMS if form.fields <= record.fields.keys()), None)
        if record.broken or form is None:
            known = "; ".join(f"{form.says} ({', '.join(sorted(form.fields))})" for form in FORMS)
            why = record.broken or f"fields {', '.join(sorted(record.fields))}"
            raise InputError(f"{file}, row {record.row}: {why}. Expected one of: {known}.")
        try:
            found += [Recorded(record.row, *each) for each in form.read(record.fields)]
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            raise InputError(
                f"{file}, row {record.row}: not the form of {form.says} ({error!r})."
            ) from None
    if not found:
        raise InputError(f"{file}: no response in it.")
    return found
