"""Recorded completions in the repository: sampled parts go in, and files for replays come out.

A part is a shard of `fsdpo-data build`. `samples-K.jsonl.gz` is its `completions.jsonl`, and
`samples-K.json` its `config.json`.
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import write_file, write_text
from fsdpo_data.core.row_files import read_records
from fsdpo_data.dataset.run_directory import COMPLETIONS_FILE, CONFIG_FILE, SHARD_FILE
from fsdpo_data.models.prompts import Template
from fsdpo_data.problems.load import load_problems

PARTS = "samples-*"  #: Names of the parts, without the endings of their files.
PROBLEMS_FILE = "problems.jsonl"


def record_parts(runs: Path, recorded: Path) -> list[Path]:
    """Compress the completions of complete parts that are not recorded; return the new files.

    Args:
        runs: Folder with the directories of the parts.
        recorded: Folder of the recordings.
    """
    new_files = []
    for part in sorted(runs.glob(PARTS)):
        file = recorded / f"{part.name}.jsonl.gz"
        if not (part / SHARD_FILE).exists() or file.exists():
            continue
        write_file(recorded / f"{part.name}.json", (part / CONFIG_FILE).read_bytes())
        write_gzip(file, (part / COMPLETIONS_FILE).read_bytes())
        new_files.append(file)
    return new_files


def write_gzip(file: Path, content: bytes) -> None:
    """Write a compressed file; the same content gives the same bytes, because it has no time."""
    write_file(file, gzip.compress(content, mtime=0))


def join_parts(
    recordings: Sequence[Path],
    problems_file: Path,
    out: Path,
    *,
    template: Template,
    other_recordings: Sequence[Path],
) -> int:
    """Write the completions of recorded parts for a replay, and the problems that have some.

    The problems are in the order of their file. Their metadata state the `position`, from 1.

    Args:
        recordings: Files of the parts.
        problems_file: File of the problems.
        out: Folder for the completions and the problems.
        template: Template of the prompts.
        other_recordings: Recordings whose problems are left out.

    Returns:
        The number of problems that are left out.

    Raises:
        InputError: if the recordings have no completions of the problems.
    """
    lines = [line for file in recordings for line in _read(file)]
    prompts = {line["prompt"] for line in lines}
    other_prompts = {line["prompt"] for file in other_recordings for line in _read(file)}
    n_excluded = 0
    problem_rows: list[dict[str, str]] = []
    for problem in load_problems([str(problems_file)]).problems:
        prompt = template.render(problem.question)
        if prompt not in prompts:
            continue
        if prompt in other_prompts:
            n_excluded += 1
            continue
        metadata = {**problem.metadata, "position": len(problem_rows) + 1}
        problem_rows.append({**problem.to_row(), "metadata": json.dumps(metadata)})
    if not problem_rows:
        raise InputError(f"the recorded parts have no completions of problems of {problems_file}.")
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / COMPLETIONS_FILE, _join_lines(lines))
    write_text(out / PROBLEMS_FILE, _join_lines(problem_rows))
    return n_excluded


def unpack_recording(recording: Path, out: Path) -> None:
    """Write the completions of a recording as a file that a replay reads."""
    write_text(out, _join_lines(_read(recording)))


def _read(recording: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a recording.

    Raises:
        InputError: if a line is damaged.
    """
    for row in read_records(recording):
        if row.error:
            raise InputError(f"{recording}, line {row.row_number}: {row.error}")
        yield dict(row.fields)


def _join_lines(lines: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
