"""The commands that `fuzz_harness.py` runs on changed files, by the kind of file."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Options of a training that takes one step.
_ONE_STEP = ("--model", "tiny", "--max-steps", 1, "--batch-size", 1, "--grad-accum", 1)


@dataclass(frozen=True)
class Reader:
    """A command that reads a file.

    Attributes:
        kind: Kind of the file.
        source: File or folder to copy.
        glob: Files of the folder that may be changed; empty if the source is a file.
        arguments: Returns the command for the copy and an unused output path.
        sealed: Whether the command must refuse any change.
        identity: Reads the identity of the source from the command's output; the identity of a
            changed copy must differ. None if the output has no identity.
    """

    kind: str
    source: Path
    glob: str
    arguments: Callable[[Path, Path], Sequence[object]]
    sealed: bool = False
    identity: Callable[[Path], str] | None = None


def readers(folder: Path) -> list[Reader]:
    """Return the readers of all kinds of files."""
    return [
        *_dataset_readers(folder),
        *_json_lines_readers(folder),
        *_run_readers(folder),
        *_model_readers(folder),
    ]


def _dataset_readers(folder: Path) -> Iterator[Reader]:
    """Yield the readers of sealed datasets, in which nothing may change."""
    pairs = folder / "pairs"
    prm = folder / "prm"
    data = "fsdpo_data"
    commands: list[Callable[[Path, Path], Sequence[object]]] = [
        lambda copy, out: [data, "validate", copy],
        lambda copy, out: [data, "diff", pairs, copy],
        lambda copy, out: [data, "export", copy, "--to", "trl-preference", "--out", out],
        lambda copy, out: [data, "grade", copy, "--out", out],
        lambda copy, out: [data, "pair", copy, "--no-require-outcome", "--top", 1, "--out", out],
        lambda copy, out: [data, "score", copy, "--prm", prm, "--out", out],
        lambda copy, out: [
            data, "decontaminate", copy, "--against", folder / "few.jsonl", "--out", out
        ],
        lambda copy, out: [data, "push", copy, "org/fuzzed", "--dry-run"],
    ]  # fmt: skip
    for arguments in commands:
        yield Reader("parquet", pairs, "*/*.parquet", arguments, sealed=True)
        yield Reader("manifest", pairs, "manifest.json", arguments, sealed=True)
    for command in ((data, "inspect"), ("fsdpo_bench", "prm")):
        inspect = functools.partial(_inspect_arguments, command)
        yield Reader("parquet", pairs, "solutions/*.parquet", inspect, sealed=True)
        yield Reader("manifest", pairs, "manifest.json", inspect, sealed=True)
    # A training reads and checks only one config, because the others cannot change its weights.
    for method, config in {"prm": "solutions", "dpo": "pairs"}.items():
        train = functools.partial(_train_arguments, method)
        yield Reader("parquet", pairs, f"{config}/*.parquet", train, sealed=True)
        yield Reader("manifest", pairs, "manifest.json", train, sealed=True)


def _json_lines_readers(folder: Path) -> Iterator[Reader]:
    """Yield the readers of JSON lines."""
    problems = folder / "few.jsonl"
    recorded = folder / "few-recorded.jsonl"
    responses = folder / "few-responses.jsonl"
    prm = folder / "prm"
    processbench = next((folder / "processbench").glob("*.json*"))
    build = ["fsdpo_data", "build", "--samples", 8, "--engine", "replay"]
    bench = ["fsdpo_bench", "run", "--engine", "replay", "--decoder", "sc", "--k", 8]
    train: dict[str, Path] = {
        "sft": next((folder / "trl-sft").glob("*.jsonl")),
        "prm": next((folder / "trl-stepwise").glob("*.jsonl")),
        "dpo": next((folder / "trl-preference").glob("*.jsonl")),
    }
    commands: list[tuple[Path, Callable[[Path, Path], Sequence[object]]]] = [
        (
            problems,
            lambda copy, out: [*build, "--problems", copy, "--replay", recorded, "--out", out],
        ),
        (
            recorded,
            lambda copy, out: [*build, "--problems", problems, "--replay", copy, "--out", out],
        ),
        (responses, lambda copy, out: [*bench, "--replay", copy, "--out", out]),
        (responses, lambda copy, out: ["fsdpo_bench", "grade", copy]),
        (
            processbench,
            lambda copy, out: ["fsdpo_bench", "prm", "--prm", prm, "--processbench", copy],
        ),
        (problems, lambda copy, out: ["fsdpo_data", "decontaminate", copy, "--against", problems]),
        (problems, lambda copy, out: ["fsdpo_data", "decontaminate", problems, "--against", copy]),
    ]
    for file, arguments in commands:
        yield Reader("JSON lines", file, "", arguments)
    for method, file in train.items():
        yield Reader("JSON lines", file, "", functools.partial(_train_arguments, method))
    for format_name in ("prm800k", "math-shepherd", "processbench"):
        file = next((folder / format_name).glob("*.json*"))
        yield Reader("JSON lines", file, "", functools.partial(_import_arguments, format_name))


def _inspect_arguments(command: Sequence[str], data: Path, out: Path) -> Sequence[object]:
    return [*command, data]


def _train_arguments(method: str, data: Path, out: Path) -> Sequence[object]:
    return ["fsdpo_train", method, data, *_ONE_STEP, "--out", out]


def _import_arguments(format_name: str, file: Path, out: Path) -> Sequence[object]:
    return ["fsdpo_data", "import", file, "--from", format_name, "--out", out.with_suffix(".jsonl")]


def _run_readers(folder: Path) -> Iterator[Reader]:
    """Yield the commands that resume or read runs."""
    bench = folder / "bench"
    few = folder / "few.jsonl"
    replay = ["--replay", folder / "few-recorded.jsonl", "--resume"]
    build = ["fsdpo_data", "build", "--samples", 8, "--engine", "replay", "--problems", few]
    yield Reader(
        "run", folder / "unsealed", "*.json*", lambda copy, _: [*build, *replay, "--out", copy]
    )
    parts = [folder / "part1", folder / "part2"]
    yield Reader(
        "run", parts[0], "**/*.json*",
        lambda copy, out: ["fsdpo_data", "merge", copy, parts[1], "--out", out],
    )  # fmt: skip
    # The options of the training, its reference cache, and its checkpoints.
    for glob in ("dpo.json", "reference/*", "checkpoints/*/*"):
        yield Reader(
            "checkpoint", folder / "trained", glob, lambda copy, _: resume_arguments(folder, copy)
        )
    for command in ("report", "inspect"):
        yield Reader("run", bench, "**/*.json*", functools.partial(_bench_arguments, command))
    yield Reader("run", bench, "**/*.json*", lambda copy, _: ["fsdpo_bench", "diff", bench, copy])
    yield Reader(
        "run", bench, "**/*.json*", lambda copy, out: ["fsdpo_bench", "grade", copy, "--out", out]
    )


def resume_arguments(folder: Path, run: Path) -> list[object]:
    """Return the command that resumes the interrupted training in the folder `trained`."""
    options = ["--max-steps", 3, "--save-every", 1, "--save-limit", 3, "--batch-size", 1]
    return ["fsdpo_train", "dpo", folder / "pairs", *options, "--resume", "--out", run]


def _bench_arguments(command: str, run: Path, out: Path) -> Sequence[object]:
    return ["fsdpo_bench", command, run]


def _model_readers(folder: Path) -> Iterator[Reader]:
    """Yield the commands that load checkpoints, tokenizers and chat templates."""
    few = folder / "few.jsonl"
    policy = folder / "policy"
    prm = folder / "prm"
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
                lambda copy, out: [*build, "--model", copy, "--template", "chat", "--out", out],
                identity=functools.partial(_read_identity, "model"),
            )
            if kind != "template":
                yield Reader(
                    kind,
                    policy,
                    glob,
                    lambda copy, out: [
                        "fsdpo_train", "sft", rows, *_ONE_STEP[2:], "--model", copy, "--out", out
                    ],
                )  # fmt: skip
                yield Reader(
                    kind,
                    prm,
                    glob,
                    lambda copy, out: [
                        "fsdpo_data", "score", folder / "one", "--prm", copy, "--out", out
                    ],
                    identity=functools.partial(_read_identity, "prm"),
                )  # fmt: skip


def _read_identity(model: str, out: Path) -> str:
    """Return the revision of the model and the digest of the template in a sealed dataset."""
    spec = json.loads((out / "manifest.json").read_text())["spec"]
    return json.dumps([spec.get("score", spec)[model]["revision"], spec["template"]["digest"]])
