"""The commands that `fuzz_harness.py` runs on changed files, by the kind of file."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Returns the command for the changed copy and an unused output path.
Arguments = Callable[[Path, Path], Sequence[object]]

#: Options of a training that takes one step.
_ONE_STEP = ("--model", "tiny", "--max-steps", 1, "--batch-size", 1, "--grad-accum", 1)
_DATA = "fsdpo_data"
_BENCH = "fsdpo_bench"
#: Formats of step labels that are also formats of the export; the imports write sealed datasets.
EXPORTED_STEP_FORMATS = ("trl-stepwise", "math-shepherd", "prm800k", "processbench")


#: Methods of training, and the formats of the rows that they read.
TRAINING_METHODS = {"sft": "trl-sft", "prm": "trl-stepwise", "dpo": "trl-preference"}


@dataclass(frozen=True)
class Reader:
    """A command that reads a file.

    Attributes:
        kind: Kind of the file.
        source: File or folder to copy.
        glob: Files of the folder that may be changed; empty if the source is a file.
        arguments: Returns the command for the copy and an unused output path.
        is_sealed: Whether the command must refuse any change.
        reseals: Whether the digests are made to match after the change.
        writes_copy: Whether the copy is the output directory of the command.
        identity: Reads the identity of the source from the command's output; the identity of a
            changed copy must differ. None if the output has no identity.
    """

    kind: str
    source: Path
    glob: str
    arguments: Arguments
    is_sealed: bool = False
    reseals: bool = False
    writes_copy: bool = False
    identity: Callable[[Path], str] | None = None


def data_readers(folder: Path) -> list[Reader]:
    """Return the readers of all kinds of files without a model."""
    return [
        *_dataset_readers(folder),
        *_row_readers(folder),
        *_step_label_readers(folder),
        *_run_readers(folder),
        *_definition_readers(folder),
    ]


def _dataset_readers(folder: Path) -> Iterator[Reader]:
    """Yield the readers of sealed datasets, also of datasets whose digests match the changes."""
    pairs = folder / "pairs"
    against = ["--against", folder / "problems.jsonl"]
    commands: list[Arguments] = [
        lambda copy, out: [_DATA, "validate", copy],
        lambda copy, out: [_DATA, "diff", pairs, copy],
        lambda copy, out: [_DATA, "view", copy, "--out", out],
        lambda copy, out: [_DATA, "inspect", copy],
        lambda copy, out: [_DATA, "export", copy, "--to", "trl-preference", "--out", out],
        lambda copy, out: [_DATA, "export", copy, "--to", "prm800k", "--out", out],
        lambda copy, out: [_DATA, "grade", copy, "--workers", 1, "--out", out],
        lambda copy, out: [_DATA, "pair", copy, "--no-require-outcome", "--top", 1, "--out", out],
        lambda copy, out: [_DATA, "decontaminate", copy, *against, "--out", out],
        lambda copy, out: [_BENCH, "prm", copy],
    ]
    for arguments in commands:
        # The measurement of rewards reads no pairs.
        parquet_glob = "[!p]*/*.parquet" if _BENCH in arguments(pairs, pairs) else "*/*.parquet"
        for reseals in (False, True):
            for kind, glob in (("parquet", parquet_glob), ("manifest", "manifest.json")):
                yield Reader(
                    kind,
                    pairs,
                    glob,
                    arguments,
                    is_sealed=not reseals,
                    reseals=reseals,
                )


def _row_readers(folder: Path) -> Iterator[Reader]:
    """Yield the readers of problems, recorded responses and templates."""
    problems = folder / "problems.jsonl"
    recorded = folder / "recorded.jsonl"
    build = [_DATA, "build", "--samples", 4, "--engine", "replay", "--workers", 1]
    bench = [_BENCH, "run", "--engine", "replay", "--decoder", "sc", "--k", 4, "--workers", 1]
    outputs = [_DATA, "import", "--from", "outputs", "--workers", 1]
    for suffix in ("jsonl", "json", "csv", "parquet"):
        file = problems.with_suffix(f".{suffix}")
        yield Reader(
            "problems", file, "",
            lambda copy, out: [*build, "--problems", copy, "--replay", recorded, "--out", out],
        )  # fmt: skip
        yield Reader(
            "problems", file, "",
            lambda copy, out: [_DATA, "decontaminate", problems, "--against", copy],
        )  # fmt: skip
    responses = folder / "responses.jsonl"
    batch = folder / "batch.jsonl"
    lm_eval = folder / "lm-eval.jsonl"
    requests = folder / "requests.jsonl"
    gold = ["--problems", problems]
    commands: list[tuple[Path, Arguments]] = [
        (recorded, lambda copy, out: [*build, *gold, "--replay", copy, "--out", out]),
        (responses, lambda copy, out: [*bench, "--replay", copy, "--out", out]),
        (responses, lambda copy, out: [_BENCH, "grade", copy, "--workers", 1]),
        (responses, lambda copy, out: [*outputs, copy, "--out", out]),
        (folder / "plain.jsonl", lambda copy, out: [*outputs, copy, "--out", out]),
        (batch, lambda copy, out: [*outputs, copy, *gold, "--requests", requests, "--out", out]),
        (requests, lambda copy, out: [*outputs, batch, *gold, "--requests", copy, "--out", out]),
        (lm_eval, lambda copy, out: [*outputs, copy, "--out", out]),
        (lm_eval, lambda copy, out: [_BENCH, "grade", copy, "--workers", 1]),
    ]
    for file, arguments in commands:
        yield Reader("responses", file, "", arguments)
    template = folder / "template.txt"
    replay = ["--replay", recorded]
    yield Reader(
        "template", template, "",
        lambda copy, out: [*build, *gold, *replay, "--template", copy, "--out", out],
        identity=_read_template_digest,
    )  # fmt: skip
    # Recorded responses need no prompts, so this command accepts every readable template.
    yield Reader(
        "template", template, "",
        lambda copy, out: [*outputs, responses, "--template", copy, "--out", out],
        identity=_read_template_digest,
    )  # fmt: skip


def _step_label_readers(folder: Path) -> Iterator[Reader]:
    """Yield the imports of all formats of step labels, to rows and to sealed datasets."""
    for file in sorted((folder / "step-labels").iterdir()):
        yield Reader("step labels", file, "", _import_rows_arguments)
    for name in EXPORTED_STEP_FORMATS:
        [file] = (folder / "step-labels").glob(f"{name}.*")
        yield Reader("step labels", file, "", _import_arguments)


def _import_arguments(file: Path, out: Path) -> Sequence[object]:
    """Return the import of a file that is named after its format."""
    return [_DATA, "import", file, "--from", file.stem, "--out", out]


def _import_rows_arguments(file: Path, out: Path) -> Sequence[object]:
    return _import_arguments(file, out.with_suffix(".jsonl"))


def _run_readers(folder: Path) -> Iterator[Reader]:
    """Yield the commands that resume or read runs."""
    bench = folder / "bench"
    build = [_DATA, "build", "--samples", 4, "--engine", "replay", "--workers", 1, "--resume"]
    build += ["--problems", folder / "problems.jsonl", "--replay", folder / "recorded.jsonl"]
    part = folder / "part2"
    yield Reader(
        "run", folder / "unsealed", "*.json*", lambda copy, out: [*build, "--out", copy],
        writes_copy=True,
    )  # fmt: skip
    yield Reader(
        "run", folder / "part1", "*.json*",
        lambda copy, out: [_DATA, "merge", copy, part, "--workers", 1, "--out", out],
    )  # fmt: skip
    commands: list[Arguments] = [
        lambda copy, out: [_BENCH, "inspect", copy],
        lambda copy, out: [_BENCH, "diff", bench, copy],
        lambda copy, out: [_BENCH, "grade", copy, "--workers", 1, "--out", out],
    ]
    yield Reader(
        "run", bench, "**/*.json*", lambda copy, out: [_BENCH, "report", copy], writes_copy=True
    )
    for arguments in commands:
        yield Reader("run", bench, "**/*.json*", arguments)


def _definition_readers(folder: Path) -> Iterator[Reader]:
    """Yield the readers of TOML files."""
    benchmark = folder / "benchmark.toml"
    replay = ["--replay", folder / "responses.jsonl"]
    commands: list[tuple[Path, Arguments]] = [
        (benchmark, lambda copy, out: [_BENCH, "validate", "--task", copy]),
        (
            benchmark,
            lambda copy, out: [
                _BENCH, "run", "--task", copy, "--engine", "replay", *replay, "--workers", 1,
                "--out", out,
            ],
        ),
        (folder / "recipe.toml", lambda copy, out: [_BENCH, "recipe", copy, "--dry-run"]),
        (folder / "prm-curve.toml", lambda copy, out: [_BENCH, "recipe", copy, "--dry-run"]),
        (
            folder / "format.toml",
            lambda copy, out: [
                _DATA, "label", folder / "pairs", "--judge", "tiny", "--judge-format", copy,
                "--out", out,
            ],
        ),
    ]  # fmt: skip
    for file, arguments in commands:
        yield Reader("TOML", file, "", arguments)


def model_readers(folder: Path) -> list[Reader]:
    """Return the commands that load a model: checkpoints, tokenizers, templates and trainings."""
    return [
        *_checkpoint_readers(folder),
        *_prm_benchmark_readers(folder),
        *_training_readers(folder),
    ]


def _checkpoint_readers(folder: Path) -> Iterator[Reader]:
    """Yield the commands that sample from a changed policy, and score with a changed PRM."""
    build = [_DATA, "build", "--problems", folder / "problems.jsonl", "--limit", 1, "--samples", 1]
    build += ["--max-tokens", 2, "--workers", 1, "--engine", "transformers", "--template", "chat"]
    score = [_DATA, "score", folder / "pairs"]
    kinds = {
        "config.json": "checkpoint",
        "model.safetensors": "checkpoint",
        "tokenizer*.json": "tokenizer",
        "chat_template.jinja": "template",
    }
    for glob, kind in kinds.items():
        yield Reader(
            kind, folder / "policy", glob,
            lambda copy, out: [*build, "--model", copy, "--out", out],
            identity=functools.partial(_read_identity, "model"),
        )  # fmt: skip
        if kind != "template":
            yield Reader(
                kind, folder / "prm", glob,
                lambda copy, out: [*score, "--prm", copy, "--out", out],
                identity=functools.partial(_read_identity, "prm"),
            )  # fmt: skip
    quantized = folder / "quantized"
    yield Reader(
        "checkpoint", quantized, "config.json",
        lambda copy, out: [*build, "--model", copy, "--out", out],
    )  # fmt: skip
    yield Reader(
        "TOML", folder / "format.toml", "",
        lambda copy, out: [*score, "--prm", folder / "prm", "--prm-format", copy, "--out", out],
    )  # fmt: skip


def _prm_benchmark_readers(folder: Path) -> Iterator[Reader]:
    """Yield the measurements of a reward model on ProcessBench and PRMBench."""
    measure = [_BENCH, "prm", "--prm", folder / "prm", "--template", "problem"]
    processbench = folder / "processbench.json"
    commands: list[tuple[Path, Arguments]] = [
        (processbench, lambda copy, out: [*measure, "--processbench", copy]),
        (
            processbench,
            lambda copy, out: [*measure, "--processbench", processbench, "--tune-on", copy],
        ),
        (folder / "prmbench.jsonl", lambda copy, out: [*measure, "--prmbench", copy]),
    ]
    for file, arguments in commands:
        yield Reader("PRM benchmark", file, "", arguments)


def _training_readers(folder: Path) -> Iterator[Reader]:
    """Yield the trainings on files of rows, and on sealed datasets."""
    for method, name in TRAINING_METHODS.items():
        train = functools.partial(_train_arguments, method)
        file = next((folder / "formats" / name).glob("*.jsonl"))
        yield Reader("training rows", file, "", train)
    # The options of a training, its reference cache, and its checkpoints.
    for method in TRAINING_METHODS:
        for glob in (f"{method}.json", "reference/*", "checkpoints/*/*"):
            if glob != "reference/*" or method == "dpo":
                resume = functools.partial(_resume_training, method, folder)
                source = folder / "trained" / method
                yield Reader("training run", source, glob, resume, writes_copy=True)
    # A training reads and checks only one config, because the others cannot change its weights.
    for method, config in {"prm": "solutions", "dpo": "pairs"}.items():
        train = functools.partial(_train_arguments, method)
        for reseals in (False, True):
            yield Reader(
                "parquet", folder / "pairs", f"{config}/*.parquet", train,
                is_sealed=not reseals, reseals=reseals,
            )  # fmt: skip


def resume_arguments(method: str, folder: Path, run: Path) -> list[object]:
    """Return the command that resumes the interrupted training of a method."""
    options = ["--model", "tiny", "--max-steps", 3, "--save-every", 1, "--save-limit", 3]
    options += ["--batch-size", 1, "--grad-accum", 1]
    data = training_data(method, folder)
    return ["fsdpo_train", method, data, *options, "--resume", "--out", run]


def training_data(method: str, folder: Path) -> Path:
    """Return the rows or the dataset of an interrupted training."""
    if method == "sft":
        return next((folder / "formats/trl-sft").glob("*.jsonl"))
    return folder / "pairs"


def _resume_training(method: str, folder: Path, copy: Path, out: Path) -> Sequence[object]:
    return resume_arguments(method, folder, copy)


def _train_arguments(method: str, data: Path, out: Path) -> Sequence[object]:
    return ["fsdpo_train", method, data, *_ONE_STEP, "--out", out]


def _read_identity(model: str, out: Path) -> str:
    """Return the revision of the model and the digest of the template in a sealed dataset."""
    spec = json.loads((out / "manifest.json").read_text())["spec"]
    return json.dumps([spec.get("score", spec)[model]["revision"], spec["template"]["digest"]])


def _read_template_digest(out: Path) -> str:
    """Return the digest of the template in a sealed dataset."""
    spec = json.loads((out / "manifest.json").read_text())["spec"]
    return str(spec["template"]["digest"])
