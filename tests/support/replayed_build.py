"""A build that replays recorded completions of small problems."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import orjson
from helpers import RIGHT, SILENT, WRONG

from fsdpo_data.core.sampling import Completion
from fsdpo_data.models.prompts import get_template

PROBLEMS = 7  #: Usable problems of the recording.


def write_recording(folder: Path) -> Path:
    """Write problems, one of them unusable, and recorded completions of prompts and prefixes."""
    template = get_template("problem")
    with (
        (folder / "problems.jsonl").open("wb") as problems,
        (folder / "recorded.jsonl").open("wb") as recorded,
    ):
        for index in range(PROBLEMS):
            question = f"What is 20 + 22, the {index}th time?"
            problems.write(orjson.dumps({"question": question, "answer": "42"}) + b"\n")
            prompt = template.render(question)
            texts = [RIGHT, WRONG, SILENT, f"{RIGHT} ({index})"]
            texts_by_prefix = {prompt: texts} | {
                prompt + text.splitlines(keepends=True)[0]: [text.splitlines()[-1]] * 4
                for text in texts
            }
            for prefix, completion_texts in texts_by_prefix.items():
                completions = [
                    asdict(Completion(text, "stop", 9, seconds=0.1)) for text in completion_texts
                ]
                recorded.write(orjson.dumps({"prompt": prefix, "completions": completions}) + b"\n")
        problems.write(b'{"question": "no gold?"}\n')
    return folder


def build_line(recording: Path) -> list[str]:
    """Return the command line, without ``--out``, of a build from a recording."""
    options = ["--problems", recording / "problems.jsonl", "--samples", 4, "--template", "problem"]
    replay = ["--engine", "replay", "--replay", recording / "recorded.jsonl", "--batch-size", 2]
    return ["build", *map(str, [*options, *replay])]
