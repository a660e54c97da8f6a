"""A run's responses in the forms of other harnesses, which read them as their own details.

What they have no field for is lost: steps and rewards.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

from fsdpo_bench.runs.records import read_config, read_records, select_decoder
from fsdpo_data.core.files import write_file
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.toml_tables import fill_placeholders, read_toml

ExportRecord = Mapping[str, Any]  #: A record, with what a decoder has seen of its problem.


def export_run(run: Path, format_name: str, out: Path, decoder: str | None = None) -> list[Path]:
    """Write the responses that a decoder has seen, a file for each benchmark; return the files.

    Raises:
        InputError: if there is no run, or it has no such decoder.
        StoreError: if a file cannot be written.
    """
    wanted, files = select_decoder(run, decoder), []
    for task in read_config(run)["tasks"]:
        name, content = EXPORT_FORMATS[format_name](task, _select_records(run, task, wanted))
        files.append(out / name)
        write_file(out / name, content)
    return files


def _select_records(run: Path, task: str, decoder: str) -> Iterator[ExportRecord]:
    """Yield records with the ``texts`` that a decoder made or chose among.

    Problems without a gold have none. ``ended`` is ``length`` where all were cut off: a field of
    ours, which others pass over.
    """
    for record in read_records(run, task):
        decided = record["decoded"][decoder]
        if decided["correct"] is not None:
            own, k = decided["sample"] is None, decoder.partition("@")[2].partition(":")[0]
            rows = [decided["solution"]] if own else record["samples"][: int(k)]
            cut = all(row["finish_reason"] == "length" for row in rows)
            told = {"right": float(decided["correct"]), "ended": "length" if cut else "stop"}
            yield {**record, **told, "texts": [row["text"] for row in rows]}


def _lm_eval(task: str, seen: Iterable[ExportRecord]) -> tuple[str, bytes]:
    """Write what ``--log_samples`` does: a line for each document."""
    lines = []
    for each in seen:
        document = {"question": each["question"], "answer": each["gold"]}
        hashed = {
            "doc_hash": json.dumps(document, indent=2, ensure_ascii=False),
            "prompt_hash": each["prompt"],
            "target_hash": each["gold"],
        }
        hashes = {name: sha256(_to_utf8(text)).hexdigest() for name, text in hashed.items()}
        row = fill_placeholders(_ROWS["lm-eval"], {**each, **hashes, "document": document})
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    return f"samples_{task}.jsonl", _to_utf8("".join(lines))


def _to_utf8(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _lighteval(task: str, seen: Iterable[ExportRecord]) -> tuple[str, bytes]:
    """Write the columns of its details: document, response, metric."""
    table = [
        fill_placeholders(_ROWS["lighteval"], {**each, "id": str(each["row"])}) for each in seen
    ]
    file = BytesIO()
    pl.DataFrame(table).write_parquet(file)
    return f"details_{task}.parquet", file.getvalue()


_ROWS = read_toml(__file__)
#: From a benchmark to the name and the content of its file.
EXPORT_FORMATS: Mapping[str, Callable[[str, Iterable[ExportRecord]], tuple[str, bytes]]] = {
    "lm-eval": _lm_eval,
    "lighteval": _lighteval,
}
