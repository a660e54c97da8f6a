"""Every command that writes, with inputs that are small enough for hundreds of runs.

Samples and continuations are recorded, so an interrupted run and an undisturbed run must write the
same bytes. Searches, rewards and trainings are computed on one thread.
"""

from __future__ import annotations

import functools
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson
import pyarrow as pa
from grown import grow
from helpers import remove_times
from hub_server import TOKEN, HubServer
from killing import TIMED_FILES, file_digests
from warm import WarmInterpreter

from fsdpo_data.models.resolve import resolve

#: Optimizer steps of a training run.
STEPS = 6
#: Optimizer steps between two checkpoints.
SAVE_EVERY = 2
#: Columns of a user, which every command carries along.
USER_COLUMNS = {
    "problems": {"topic": pa.string()},
    "solutions": {"note": pa.string(), "confidence": pa.int64()},
}
_RESUME = ("--resume",)
#: Files of a training run that may differ between runs with the same result.
_UNSTABLE_FILES = (".lock", "checkpoints", "reference")


@dataclass(frozen=True)
class WritingCommand:
    """A command that writes.

    Attributes:
        name: Name of the command.
        arguments: Returns the command line for an output directory.
        resume_options: Options that continue an interrupted run.
        outcome: Returns digests of the output; equal runs have equal digests.
        sources: Files and folders that the command reads and must not change.
    """

    name: str
    arguments: Callable[[Path], list[str]]
    resume_options: Sequence[str] = ()
    outcome: Callable[[Path], dict[str, str]] = file_digests
    sources: Sequence[Path] = ()


class Inputs:
    """The inputs of the commands, and the servers that they use.

    Args:
        folder: Folder of the inputs.
        problems: Problems of the large build; the other commands read a few dozen.
    """

    def __init__(self, folder: Path, problems: int) -> None:
        self.folder = folder
        self.problems = problems

    @functools.cached_property
    def hub(self) -> HubServer:
        """Start the Hub server."""
        hub = HubServer()
        hub.start()
        return hub

    @functools.cached_property
    def env(self) -> dict[str, str]:
        """Return the environment of the commands."""
        return _environment(self.folder, self.hub.url)

    @functools.cached_property
    def interpreter(self) -> WarmInterpreter:
        """Return the interpreter that starts the commands."""
        return WarmInterpreter(self.env)

    def stop(self) -> None:
        """Stop the Hub server and the interpreter."""
        self.hub.stop()
        if "interpreter" in vars(self):
            self.interpreter.stop()

    def path(self, name: str) -> Path:
        """Return the path of an input."""
        return self.folder / name

    def make(self) -> None:
        """Make all inputs, mostly with the commands themselves."""
        self.record("many", self.problems)
        self.record("few", 48)
        self._build_small()
        self._record_continuations()
        self._make_prm()
        for index in (1, 2):
            part = [*_build_arguments(self, "many"), "--shard", f"{index}/2"]
            self.run("fsdpo_data", *part, "--out", self.path(f"part{index}"))
        score = ["score", self.path("small"), "--prm", self.path("prm")]
        self.run("fsdpo_data", *score, "--out", self.path("scored"))
        pair = ["pair", self.path("scored"), "--no-require-outcome", "--top", "2"]
        self.run("fsdpo_data", *pair, "--out", self.path("pairs"))
        for format_name in ("trl-sft", "prm800k"):
            export = ["export", self.path("pairs"), "--to", format_name]
            self.run("fsdpo_data", *export, "--out", self.path(format_name))
        self.run("fsdpo_data", "push", self.path("pairs"), "o/pushed")

    def run(self, module: str, *arguments: object) -> None:
        """Run a command to its end.

        Raises:
            SystemExit: if the command fails.
        """
        command = [sys.executable, "-m", module, *map(str, arguments)]
        with tempfile.TemporaryFile() as output:
            child = self.interpreter.start(command, self.env, output.fileno(), output.fileno())
            if child.wait() != 0:
                output.seek(0)
                sys.exit(f"error: {' '.join(command)}\n{output.read().decode()}")

    def record(self, name: str, count: int) -> None:
        """Write embedded problems with eight recorded solutions each."""
        template = resolve("tiny").template
        with (
            self.path(f"{name}.jsonl").open("wb") as problems,
            self.path(f"{name}-recorded.jsonl").open("wb") as recorded,
            self.path(f"{name}-responses.jsonl").open("wb") as responses,
        ):
            for question, answer, texts in _numbered_problems(count):
                problems.write(_json_line({"question": question, "answer": answer}))
                recorded.write(_json_line(_record(template.render(question), texts)))
                row = {"question": question, "gt": answer, "code": texts}
                responses.write(_json_line(row))

    def _build_small(self) -> None:
        """Build a dataset of several small shards, and add columns of a user."""
        from fsdpo_data.cli.app import main

        build = [*_build_arguments(self, "few"), "--out", str(self.path("built"))]
        with (
            patch("fsdpo_data.stages.sample.SHARD_SOLUTIONS", 96),
            patch("sys.argv", ["fsdpo-data", *build]),
            open(os.devnull, "w") as null,
            patch("sys.stdout", null),
            patch("sys.stderr", null),
        ):
            try:
                main()
            except SystemExit as error:
                if error.code:
                    raise
        grow(self.path("built"), self.path("small"), USER_COLUMNS)

    def _record_continuations(self) -> None:
        """Record continuations of every prefix of the small dataset; half of them are right."""
        import pyarrow.parquet as pq

        from fsdpo_data.dataset.problem_rows import read_problems

        problems = read_problems(sorted(self.path("small").glob("problems/*.parquet")))
        lines: dict[str, bytes] = {}
        for file in sorted(self.path("small").glob("solutions/*.parquet")):
            for row in pq.read_table(file).to_pylist():
                right = f"Step 9: It is so.\nThe answer is: {problems[row['problem_id']].answer}"
                for prefix in accumulate([row["prompt"], *row["completions"][:-1]]):
                    texts = [right, "Step 9: Or not.\nThe answer is: 7"] * 4
                    lines.setdefault(prefix, _json_line(_record(prefix, texts)))
        self.path("continuations.jsonl").write_bytes(b"".join(lines.values()))

    def _make_prm(self) -> None:
        from random_model import save_random_prm
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        save_random_prm(self.path("prm"), Path(resolve("tiny").path))


def _environment(folder: Path, endpoint: str) -> dict[str, str]:
    """Return the environment of the commands: the Hub on this machine, one thread."""
    return os.environ | {
        "HF_HOME": str(folder / "disk" / "hf"),
        "HF_ENDPOINT": endpoint,
        "HF_TOKEN": TOKEN,
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }


def _numbered_problems(count: int) -> Iterator[tuple[str, str, list[str]]]:
    """Yield question, gold answer and eight solutions; problems repeat with a number."""
    from fsdpo_data.problems.embedded.generator import make_problems
    from fsdpo_data.problems.embedded.solutions import write_solution

    rng = random.Random(0)
    base = make_problems("train", min(count, 400))
    solutions = [
        ["".join(write_solution(problem, rng, error_rate=0.3)) for _ in range(8)]
        for problem in base
    ]
    for index in range(count):
        problem = base[index % len(base)]
        texts = solutions[index % len(base)]
        suffix = f" ({index // len(base)})" if index >= len(base) else ""
        yield problem.question + suffix, problem.answer, texts


def _record(prompt: str, texts: Sequence[str]) -> dict[str, Any]:
    fields = {"finish_reason": "stop", "n_tokens": 9, "seconds": 0.001}
    return {"prompt": prompt, "completions": [{"text": text, **fields} for text in texts]}


def _json_line(row: Mapping[str, Any]) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def _build_arguments(inputs: Inputs, name: str) -> list[str]:
    options = ["--problems", inputs.path(f"{name}.jsonl"), "--samples", 8, "--workers", 2]
    replay = ["--engine", "replay", "--replay", inputs.path(f"{name}-recorded.jsonl")]
    return ["build", *map(str, [*options, *replay, "--batch-size", 16])]


def _bench_arguments(inputs: Inputs) -> list[str]:
    task = ["--task", inputs.path("few.jsonl"), "--template", resolve("tiny").template.name]
    replay = ["--engine", "replay", "--replay", inputs.path("few-recorded.jsonl")]
    decoders = ["--decoder", "greedy,sc,bon", "--k", 8, "--prm", inputs.path("prm")]
    return ["run", *map(str, [*task, *replay, *decoders, "--batch-size", 4])]


def list_commands(inputs: Inputs) -> dict[str, WritingCommand]:
    """Return the commands by name."""
    commands = [
        *_stage_commands(inputs),
        *_exchange_commands(inputs),
        *_bench_commands(inputs),
        *_training_commands(inputs),
    ]
    return {command.name: command for command in commands}


def _command(module: str, *arguments: object) -> Callable[[Path], list[str]]:
    line = [sys.executable, "-m", module, *map(str, arguments)]
    return lambda out: [*line, "--out", str(out)]


def _stage_commands(inputs: Inputs) -> Iterator[WritingCommand]:
    """Yield the commands that write sealed datasets."""
    small = inputs.path("small")
    scored = inputs.path("scored")
    prm = inputs.path("prm")
    replay = ["--engine", "replay", "--replay", inputs.path("continuations.jsonl")]
    search = ["--rollouts", 4, "--search", "first-error"]
    step_pairs = ["pair", scored, "--style", "step-dpo", "--continuations", 4]
    lines: dict[str, tuple[Path, list[object]]] = {
        "label": (small, ["label", small, "--rollouts", 4, *replay, "--batch-size", 16]),
        "label --search": (small, ["label", small, *search, *replay, "--batch-size", 4]),
        "score": (small, ["score", small, "--prm", prm]),
        "grade": (scored, ["grade", scored]),
        "select": (scored, ["select", scored, "--per-problem", 2, "--unique"]),
        "pair": (scored, ["pair", scored, "--no-require-outcome", "--top", 2]),
        "pair step-dpo": (scored, [*step_pairs, *replay, "--batch-size", 8]),
    }
    yield WritingCommand(
        "build", _command("fsdpo_data", *_build_arguments(inputs, "many")), _RESUME
    )
    build_and_pair = [*_build_arguments(inputs, "few"), "--prm", prm, "--top", 2]
    shard = [*_build_arguments(inputs, "many"), "--shard", "2/3"]
    yield WritingCommand("build --shard", _command("fsdpo_data", *shard), _RESUME)
    search = ["--problems", inputs.path("few.jsonl"), "--limit", 12, "--batch-size", 4]
    search += ["--sampler", "beam", "--prm", prm, "--b1", 3, "--b2", 2, "--samples", 2]
    yield WritingCommand(
        "build --sampler beam",
        _command("fsdpo_data", "build", "--model", "tiny", *search),
        _RESUME,
        outcome=_search_outcome,
    )
    parts = [inputs.path(f"part{index}") for index in (1, 2)]
    yield WritingCommand("merge", _command("fsdpo_data", "merge", *parts), sources=parts)
    yield WritingCommand("build --prm", _command("fsdpo_data", *build_and_pair), _RESUME)
    for name, (source, line) in lines.items():
        yield WritingCommand(name, _command("fsdpo_data", *line), _RESUME, sources=[source])
    splits = ["--split", "validation=0.1", "--split", "test=0.2"]
    split_line = [sys.executable, "-m", "fsdpo_data", "select", str(scored), *splits]
    yield WritingCommand(
        "select --split",
        lambda out: [*split_line, "--out", str(out / "new")],
        _RESUME,
        sources=[scored],
    )
    against = ["decontaminate", scored, "--against", inputs.path("few.jsonl")]
    yield WritingCommand(
        "decontaminate", _command("fsdpo_data", *against), _RESUME, sources=[scored]
    )


def _exchange_commands(inputs: Inputs) -> Iterator[WritingCommand]:
    """Yield the commands that convert and transfer datasets."""
    pairs = inputs.path("pairs")

    def import_rows(out: Path) -> list[str]:
        source = next(inputs.path("prm800k").glob("*.jsonl"))
        line = ["import", str(source), "--from", "prm800k", "--out", str(out / "rows.jsonl")]
        return [sys.executable, "-m", "fsdpo_data", *line]

    export = ["export", pairs, "--to", "llama-factory-sharegpt"]
    yield WritingCommand("export", _command("fsdpo_data", *export), sources=[pairs])
    yield WritingCommand("import", import_rows)

    def import_labels(out: Path) -> list[str]:
        source = next(inputs.path("prm800k").glob("*.jsonl"))
        return _command("fsdpo_data", "import", source, "--from", "prm800k")(out)

    yield WritingCommand("import labels", import_labels, _RESUME)
    outputs = ["import", inputs.path("few-responses.jsonl"), "--from", "outputs", "--workers", 2]
    yield WritingCommand("import outputs", _command("fsdpo_data", *outputs), _RESUME)
    yield WritingCommand("pull", _command("fsdpo_data", "pull", "o/pushed"))


def _bench_commands(inputs: Inputs) -> Iterator[WritingCommand]:
    yield WritingCommand("bench run", _command("fsdpo_bench", *_bench_arguments(inputs)), _RESUME)
    search = ["--task", inputs.path("few.jsonl"), "--limit", 12, "--batch-size", 4]
    search += ["--model", "tiny", "--prm", inputs.path("prm")]
    search += ["--decoder", "greedy,bon,sbs", "--k", 2, "--b1", 3, "--max-tokens", 96]
    yield WritingCommand(
        "bench run sbs",
        _command("fsdpo_bench", "run", *search),
        _RESUME,
        outcome=_run_outcome,
    )


def _training_commands(inputs: Inputs) -> Iterator[WritingCommand]:
    """Yield the trainings, each with a few steps and several checkpoints."""
    data = {
        "sft": next(inputs.path("trl-sft").glob("*.jsonl"), inputs.path("trl-sft")),
        "prm": inputs.path("small"),
        "dpo": inputs.path("pairs"),
    }
    for stage, source in data.items():
        options = ["--model", "tiny", "--batch-size", 4, "--grad-accum", 1, "--lr", "1e-3"]
        options += ["--max-steps", STEPS, "--save-every", SAVE_EVERY, "--log-every", 1]
        yield WritingCommand(
            f"train {stage}",
            _command("fsdpo_train", stage, source, *options),
            _RESUME,
            outcome=_training_outcome,
            sources=[source] if source.is_dir() else [],
        )


def _run_outcome(out: Path) -> dict[str, str]:
    """Return the digests of a run with a model that runs."""
    return file_digests(out, without=TIMED_FILES)


def _search_outcome(out: Path) -> dict[str, str]:
    """Return the digests of a build with a model that runs, and its manifest without seconds."""
    manifest = json.loads((out / "manifest.json").read_text())
    remove_times(manifest)
    digests = file_digests(out, without=TIMED_FILES)
    return digests | {"manifest": json.dumps(manifest)}


def _training_outcome(out: Path) -> dict[str, str]:
    """Return the digests of a training run's files, and its logged losses."""
    digests = file_digests(out, without=_UNSTABLE_FILES)
    states = sorted(out.glob(f"checkpoints/checkpoint-{STEPS}/trainer_state.json"))
    histories = [json.loads(file.read_text())["log_history"] for file in states]
    losses = [[entry["loss"] for entry in history if "loss" in entry] for history in histories]
    return digests | {"losses": str(losses)}
