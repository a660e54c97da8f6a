"""The commands that `fuzz_harness.py` gives changed files to, by what they read."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_TRAIN = ("--model", "tiny", "--max-steps", 1, "--batch-size", 1, "--grad-accum", 1)


@dataclass(frozen=True)
class Reader:
    """A command that reads a file.

    Attributes:
        kind: What the file is.
        source: What is copied, a file or a folder.
        glob: The files that may be changed.
        line: The command, from the copy and a free path.
        sealed: Whether any change must be refused.
        identity: Reads the identity of what was read out of what the command wrote; a changed one
            must differ. None where there is none.
    """

    kind: str
    source: Path
    glob: str
    line: Callable[[Path, Path], Sequence[object]]
    sealed: bool = False
    identity: Callable[[Path], str] | None = None


def readers(folder: Path) -> list[Reader]:
    """Return the commands, by what they read."""
    return [*_sealed(folder), *_lines(folder), *_runs(folder), *_models(folder)]


def _sealed(folder: Path) -> Iterator[Reader]:
    """Yield what reads sealed datasets, of which nothing may change."""
    pairs, prm = folder / "pairs", folder / "prm"
    data = "fsdpo_data"
    commands: list[Callable[[Path, Path], Sequence[object]]] = [
        lambda it, out: [data, "validate", it],
        lambda it, out: [data, "diff", pairs, it],
        lambda it, out: [data, "export", it, "--to", "trl-preference", "--out", out],
        lambda it, out: [data, "grade", it, "--out", out],
        lambda it, out: [data, "pair", it, "--no-require-outcome", "--top", 1, "--out", out],
        lambda it, out: [data, "score", it, "--prm", prm, "--out", out],
        lambda it, out: [
            data, "decontaminate", it, "--against", folder / "few.jsonl", "--out", out
        ],
        lambda it, out: [data, "push", it, "org/fuzzed", "--dry-run"],
    ]  # fmt: skip
    for line in commands:
        yield Reader("parquet", pairs, "*/*.parquet", line, sealed=True)
        yield Reader("manifest", pairs, "manifest.json", line, sealed=True)
    for looking in ((data, "inspect"), ("fsdpo_bench", "prm")):
        look = functools.partial(_looked_at, looking)
        yield Reader("parquet", pairs, "solutions/*.parquet", look, sealed=True)
        yield Reader("manifest", pairs, "manifest.json", look, sealed=True)
    # Training reads, and checks, one config alone; what the others hold cannot change a weight.
    for stage, read in {"prm": "solutions", "dpo": "pairs"}.items():
        train = functools.partial(_trained, stage)
        yield Reader("parquet", pairs, f"{read}/*.parquet", train, sealed=True)
        yield Reader("manifest", pairs, "manifest.json", train, sealed=True)


def _lines(folder: Path) -> Iterator[Reader]:
    """Yield what reads JSON lines."""
    problems, recorded = folder / "few.jsonl", folder / "few-recorded.jsonl"
    responses, prm = folder / "few-responses.jsonl", folder / "prm"
    found = next((folder / "processbench").glob("*.json*"))
    build = ["fsdpo_data", "build", "--samples", 8, "--engine", "replay"]
    bench = ["fsdpo_bench", "run", "--engine", "replay", "--decoder", "sc", "--k", 8]
    train: dict[str, Path] = {
        "sft": next((folder / "trl-sft").glob("*.jsonl")),
        "prm": next((folder / "trl-stepwise").glob("*.jsonl")),
        "dpo": next((folder / "trl-preference").glob("*.jsonl")),
    }
    commands: list[tuple[Path, Callable[[Path, Path], Sequence[object]]]] = [
        (problems, lambda it, out: [*build, "--problems", it, "--replay", recorded, "--out", out]),
        (recorded, lambda it, out: [*build, "--problems", problems, "--replay", it, "--out", out]),
        (responses, lambda it, out: [*bench, "--replay", it, "--out", out]),
        (responses, lambda it, out: ["fsdpo_bench", "grade", it]),
        (found, lambda it, out: ["fsdpo_bench", "prm", "--prm", prm, "--processbench", it]),
        (problems, lambda it, out: ["fsdpo_data", "decontaminate", it, "--against", problems]),
        (problems, lambda it, out: ["fsdpo_data", "decontaminate", problems, "--against", it]),
    ]
    for file, line in commands:
        yield Reader("JSON lines", file, "", line)
    for stage, file in train.items():
        yield Reader("JSON lines", file, "", functools.partial(_trained, stage))
    for form in ("prm800k", "math-shepherd", "processbench"):
        file = next((folder / form).glob("*.json*"))
        yield Reader("JSON lines", file, "", functools.partial(_imported, form))


def _looked_at(command: Sequence[str], data: Path, out: Path) -> Sequence[object]:
    return [*command, data]


def _trained(stage: str, data: Path, out: Path) -> Sequence[object]:
    return ["fsdpo_train", stage, data, *_TRAIN, "--out", out]


def _imported(form: str, file: Path, out: Path) -> Sequence[object]:
    return ["fsdpo_data", "import", file, "--from", form, "--out", out.with_suffix(".jsonl")]


def _runs(folder: Path) -> Iterator[Reader]:
    """Yield what takes up or reads runs that are there."""
    bench, few = folder / "bench", folder / "few.jsonl"
    replay = ["--replay", folder / "few-recorded.jsonl", "--resume"]
    build = ["fsdpo_data", "build", "--samples", 8, "--engine", "replay", "--problems", few]
    yield Reader(
        "run", folder / "unsealed", "*.json*", lambda it, _: [*build, *replay, "--out", it]
    )
    parts = [folder / "part1", folder / "part2"]
    yield Reader(
        "run", parts[0], "**/*.json*",
        lambda it, out: ["fsdpo_data", "merge", it, parts[1], "--out", out],
    )  # fmt: skip
    # What says which run it is, what is computed beforehand, and where it goes on.
    for glob in ("dpo.json", "reference/*", "checkpoints/*/*"):
        yield Reader("checkpoint", folder / "trained", glob, lambda it, _: resumed(folder, it))
    for command in ("report", "inspect"):
        yield Reader("run", bench, "**/*.json*", functools.partial(_of_bench, command))
    yield Reader("run", bench, "**/*.json*", lambda it, _: ["fsdpo_bench", "diff", bench, it])
    yield Reader(
        "run", bench, "**/*.json*", lambda it, out: ["fsdpo_bench", "grade", it, "--out", out]
    )


def resumed(folder: Path, run: Path) -> list[object]:
    """Return the training that `trained` was stopped in."""
    options = ["--max-steps", 3, "--save-every", 1, "--save-limit", 3, "--batch-size", 1]
    return ["fsdpo_train", "dpo", folder / "pairs", *options, "--resume", "--out", run]


def _of_bench(command: str, run: Path, out: Path) -> Sequence[object]:
    return ["fsdpo_bench", command, run]


def _models(folder: Path) -> Iterator[Reader]:
    """Yield what loads checkpoints, tokenizers and chat templates."""
    few, policy, prm = folder / "few.jsonl", folder / "policy", folder / "prm"
    build = ["fsdpo_data", "build", "--problems", few, "--limit", 1, "--samples", 1]
    build += ["--max-tokens", 2]
    rows = next((folder / "trl-sft").glob("*.jsonl"))
    kinds = {
        "checkpoint": ("*config.json", "model.safetensors"),
        "tokenizer": ("tokenizer*.json",),
        "template": ("chat_template.jinja",),
    }
    for kind, globs in kinds.items():
        for glob in globs:
            yield Reader(
                kind,
                policy,
                glob,
                lambda it, out: [*build, "--model", it, "--template", "chat", "--out", out],
                identity=functools.partial(_of_spec, "model"),
            )
            if kind != "template":
                yield Reader(
                    kind,
                    policy,
                    glob,
                    lambda it, out: [
                        "fsdpo_train", "sft", rows, *_TRAIN[2:], "--model", it, "--out", out
                    ],
                )  # fmt: skip
                yield Reader(
                    kind,
                    prm,
                    glob,
                    lambda it, out: [
                        "fsdpo_data", "score", folder / "one", "--prm", it, "--out", out
                    ],
                    identity=functools.partial(_of_spec, "prm"),
                )  # fmt: skip


def _of_spec(part: str, out: Path) -> str:
    """Return what a sealed dataset says its model was, and how it was asked."""
    spec = json.loads((out / "manifest.json").read_text())["spec"]
    return json.dumps([spec.get("score", spec)[part]["revision"], spec["template"]["digest"]])
