"""Export the responses of a run in the formats of other evaluation libraries.

These formats have no fields for steps and rewards. A decoder is the procedure that produces one
answer per problem, such as ``greedy`` or ``bon@16:min``. The config of a run lists its benchmarks
as ``tasks``.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

from fsdpo_bench.decode.decoders import parse_result_name
from fsdpo_bench.runs.records import read_config, read_records, select_decoder
from fsdpo_data.core.files import write_file
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.toml_tables import fill_placeholders, read_toml

#: A record with three more fields: the ``texts`` of a decoder, their common ``finish_reason``, and
#: whether the decoder's answer ``is_correct`` (1.0 or 0.0).
ExportRecord = Mapping[str, Any]


def export_run(run: Path, format_name: str, out: Path, decoder: str | None = None) -> list[Path]:
    """Write the responses of a decoder, one file per benchmark, and return the files.

    Args:
        run: Directory of the run.
        format_name: One of :data:`EXPORT_FORMATS`.
        out: Directory for the files.
        decoder: A decoder of the run; by default, the first.

    Raises:
        InputError: if there is no run, or the run lacks the decoder.
        StoreError: if a file cannot be written.
    """
    decoder = select_decoder(run, decoder)
    files = []
    for task in read_config(run).tasks:
        name, content = EXPORT_FORMATS[format_name](task, _export_records(run, task, decoder))
        files.append(out / name)
        write_file(out / name, content)
    return files


def _export_records(run: Path, task: str, decoder: str) -> Iterator[ExportRecord]:
    """Yield the records of a benchmark whose gold answer is readable.

    The texts are the decoder's own solution, or the samples that it chose among. The finish reason
    is ``length`` if all texts were truncated. Other libraries ignore it, but
    :mod:`fsdpo_data.recorded.formats` reads it.
    """
    setup = parse_result_name(decoder)
    n_samples = setup.k if setup else None  # all samples for an unknown decoder
    for record in read_records(run, task):
        entry = record.decoded[decoder]
        if entry.correct is None:  # unreadable gold answer
            continue
        solutions = record.samples[:n_samples] if entry.solution is None else (entry.solution,)
        is_truncated = all(solution.finish_reason == "length" for solution in solutions)
        yield {
            **record.to_json(),
            "is_correct": float(entry.correct),
            "finish_reason": "length" if is_truncated else "stop",
            "texts": [solution.text for solution in solutions],
        }


def _lm_eval_file(task: str, records: Iterable[ExportRecord]) -> tuple[str, bytes]:
    """Return name and content of a file as lm-evaluation-harness writes it, a line per problem."""
    lines = []
    for record in records:
        document = {"question": record["question"], "answer": record["gold"]}
        values = {
            **record,
            "document": document,
            "doc_hash": _sha256(json.dumps(document, indent=2, ensure_ascii=False)),
            "prompt_hash": _sha256(record["prompt"]),
            "target_hash": _sha256(record["gold"]),
        }
        row = fill_placeholders(_ROW_TEMPLATES["lm-eval"], values)
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    return f"samples_{task}.jsonl", _to_utf8("".join(lines))


def _sha256(text: str) -> str:
    return sha256(_to_utf8(text)).hexdigest()


def _to_utf8(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _lighteval_file(task: str, records: Iterable[ExportRecord]) -> tuple[str, bytes]:
    """Return name and content of a file like the details of lighteval, a row per problem."""
    rows = [
        fill_placeholders(_ROW_TEMPLATES["lighteval"], {**record, "id": str(record["row"])})
        for record in records
    ]
    buffer = BytesIO()
    pl.DataFrame(rows).write_parquet(buffer)
    return f"details_{task}.parquet", buffer.getvalue()


_ROW_TEMPLATES = read_toml(__file__)
#: Functions from a benchmark and its records to the name and the content of a file, by format.
EXPORT_FORMATS: Mapping[str, Callable[[str, Iterable[ExportRecord]], tuple[str, bytes]]] = {
    "lm-eval": _lm_eval_file,
    "lighteval": _lighteval_file,
}
