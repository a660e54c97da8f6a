"""Small datasets whose every number is known by hand, made by the commands of the project.

Responses come from a file of recorded outputs (``fsdpo-data import``), and benchmarks from
recorded completions (``fsdpo-bench run --engine replay``). So all rows, outcomes and manifests are
those that users have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from in_process import run_in_process
from made_runs import written

from fsdpo_data.models.prompts import get_template

#: A response that has no answer.
SILENT = "I do not know."


def command(*words: object) -> str:
    """Run a command that must succeed; return what it prints."""
    result = run_in_process([str(word) for word in words])
    assert result.code == 0, result.output
    return result.output


def table_rows(output: str) -> list[tuple[str, ...]]:
    """Return the cells of each printed line, without intervals; two spaces separate cells."""
    lines = (re.sub(r" +\[[^]]*\]", "", line) for line in output.splitlines())
    return [tuple(re.split(r" {2,}", line.strip())) for line in lines]


def printed_notes(output: str) -> list[str]:
    """Return the notes below printed tables."""
    return [line[len("note: ") :] for line in output.splitlines() if line.startswith("note: ")]


# Imported responses


def response(
    problem: int, answer: object, rewards: Sequence[float] | None = None, **fields: Any
) -> dict[str, Any]:
    """Return a recorded response to problem N, whose gold answer is 10 + N.

    Args:
        problem: N.
        answer: The answer of the response; None for a response without one.
        rewards: One reward per step; None without rewards. An empty list makes an empty response.
        fields: Other fields of the row.
    """
    row: dict[str, Any] = {"question": f"What is 10 + {problem}?", "gold": str(10 + problem)}
    row |= {"problem_id": str(problem), "candidate_index": 0}
    last_step = SILENT if answer is None else f"The answer is {answer}."
    steps = [f"Step {number}: we add.\n" for number in range(1, len(rewards or [0.0]))]
    steps = [] if rewards == [] else [*steps, last_step]
    row |= {"response": "".join(steps), "steps": steps, "finish_reason": "stop"}
    if rewards is not None:
        row["step_scores"] = list(rewards)
    return row | fields


def import_responses(folder: Path, rows: Sequence[Mapping[str, Any]], *options: object) -> Path:
    """Import recorded responses; return the dataset, whose benchmark is named ``responses``."""
    rows_folder = folder.with_name(f"{folder.name}-rows")
    rows_folder.mkdir(parents=True)
    file = written(rows_folder / "responses.jsonl", rows)
    command(
        *("fsdpo_data", "import", file, "--from", "outputs", "--workers", 1, "--out", folder),
        *options,
    )
    return folder


def import_answers(folder: Path, answers: Mapping[int, Sequence[object]], *options: object) -> Path:
    """Import the answers to each problem; problem N has the gold answer 10 + N."""
    rows = [
        response(problem, answer, candidate_index=index)
        for problem, problem_answers in answers.items()
        for index, answer in enumerate(problem_answers)
    ]
    return import_responses(folder, rows, *options)


# Runs of benchmarks


@dataclass(frozen=True)
class KnownBenchmark:
    """A benchmark of a user with the recorded answers to its problems."""

    name: str  #: Its name.
    rows: Sequence[Mapping[str, Any]]  #: Its rows, with ``question`` and ``answer``.
    #: The recorded answers by question; None for a response without one.
    answers: Mapping[str, Sequence[object]]
    toml: Mapping[str, Any] = field(default_factory=dict)  #: Further keys of its TOML file.


def completion(answer: object, n_tokens: int | None = 10) -> dict[str, Any]:
    """Return a recorded completion with an answer; a text is the completion itself."""
    text = SILENT if answer is None else f"The answer is {answer}."
    return {"text": text, "finish_reason": "stop", "n_tokens": n_tokens}


def record(file: Path, benchmarks: Sequence[KnownBenchmark], *, is_in_rounds: bool = False) -> Path:
    """Write the recorded completions of benchmarks; return the file.

    Args:
        file: The file.
        benchmarks: The benchmarks.
        is_in_rounds: Whether each line has one completion, and all prompts come before the second
            completion of the first one.
    """
    template = get_template("problem")
    prompts = {
        template.render(question): [completion(answer) for answer in answers]
        for benchmark in benchmarks
        for question, answers in benchmark.answers.items()
    }
    if not is_in_rounds:
        rows = [{"prompt": prompt, "completions": values} for prompt, values in prompts.items()]
        return written(file, rows)
    n_rounds = max(map(len, prompts.values()))
    return written(
        file,
        [
            {"prompt": prompt, "completions": values[number : number + 1]}
            for number in range(n_rounds)
            for prompt, values in prompts.items()
            if number < len(values)
        ],
    )


def replay_command(
    folder: Path, benchmarks: Sequence[KnownBenchmark], *, is_in_rounds: bool = False
) -> list[object]:
    """Write benchmarks and their recorded completions; return the command that runs them.

    Args:
        folder: New folder of the files.
        benchmarks: The benchmarks.
        is_in_rounds: Whether the recording is in rounds; see :func:`record`.
    """
    folder.mkdir(parents=True)
    recording = record(folder / "completions.jsonl", benchmarks, is_in_rounds=is_in_rounds)
    words: list[object] = ["fsdpo_bench", "run", "--engine", "replay", "--replay", recording]
    for benchmark in benchmarks:
        data = written(folder / f"{benchmark.name}.jsonl", benchmark.rows)
        keys = {"data": data.name, **benchmark.toml}
        toml = folder / f"{benchmark.name}.toml"
        toml.write_text("".join(f"{key} = {_toml(value)}\n" for key, value in keys.items()))
        words += ["--task", toml]
    return [*words, "--template", "problem", "--workers", 1]


def replay(
    folder: Path,
    benchmarks: Sequence[KnownBenchmark],
    *options: object,
    is_in_rounds: bool = False,
) -> Path:
    """Run benchmarks with recorded completions in a new folder; return the run."""
    words = replay_command(folder, benchmarks, is_in_rounds=is_in_rounds)
    command(*words, "--out", folder / "run", *options)
    return folder / "run"


def _toml(value: Any) -> str:
    """Return a value of a TOML file."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(entry)}" for key, entry in value.items()) + " }"
    return json.dumps(value)
