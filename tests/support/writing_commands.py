"""Every command that writes, on inputs small enough to be run hundreds of times.

Samples and continuations are recorded ones, so that a run that was interrupted has something to be
compared with byte for byte; rewards and training are computed, on one thread.
"""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson
from hub_repo import sha256
from hub_server import TOKEN, HubServer
from killing import digests
from warm import Warm

from fsdpo_data.models.resolve import resolve

#: Optimizer steps of a training run, and between its checkpoints.
STEPS, SAVE_EVERY = 6, 2
#: A chat template with what they have: roles, a loop, a condition.
CHAT = """{% for message in messages %}<|{{ message.role }}|>{{ message.content }}
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""
_RESUME = ("--resume",)
_TRAINED = (".lock", "checkpoints", "reference")


@dataclass(frozen=True)
class Case:
    """A command that writes.

    Attributes:
        name: Of the command.
        line: The command that writes to a directory, the first time.
        again: What is added the next times.
        globs: Files below its directory whose appearance begins a phase.
        outcome: What it has made in the end; equal ones are equal runs.
        checkpoints: Whether it writes checkpoints.
        sources: What it reads and must leave as it is.
    """

    name: str
    line: Callable[[Path], list[str]]
    again: Sequence[str] = ()
    globs: Sequence[str] = ()
    outcome: Callable[[Path], dict[str, str]] = digests
    checkpoints: bool = False
    sources: Sequence[Path] = ()


class Inputs:
    """What the commands read.

    Args:
        folder: Where it is made.
        problems: Problems of the one large build; the other commands get a few dozen.
    """

    def __init__(self, folder: Path, problems: int) -> None:
        self.folder, self.problems = folder, problems
        self.hub = HubServer()
        self.hub.start()
        self.env = _environment(folder, self.hub.url)

    @functools.cached_property
    def warm(self) -> Warm:
        """Return what starts commands."""
        return Warm(self.env)

    def stop(self) -> None:
        """End what serves the commands."""
        self.hub.stop()
        if "warm" in vars(self):
            self.warm.stop()

    def path(self, name: str) -> Path:
        """Return where an input is."""
        return self.folder / name

    def make(self) -> None:
        """Make all inputs, with the commands themselves where they can."""
        self.record("many", self.problems)
        self.record("few", 48)
        self._small()
        self._continuations()
        self._prm()
        for index in (1, 2):
            part = [*_build(self, "many"), "--shard", f"{index}/2"]
            self.run("fsdpo_data", *part, "--out", self.path(f"part{index}"))
        score = ["score", self.path("small"), "--prm", self.path("prm")]
        self.run("fsdpo_data", *score, "--out", self.path("scored"))
        pair = ["pair", self.path("scored"), "--no-require-outcome", "--top", "2"]
        self.run("fsdpo_data", *pair, "--out", self.path("pairs"))
        for form in ("trl-sft", "prm800k"):
            export = ["export", self.path("pairs"), "--to", form]
            self.run("fsdpo_data", *export, "--out", self.path(form))
        self.run("fsdpo_data", "push", self.path("pairs"), "org/there")
        self.run(*_bench_run(self), "--out", self.path("bench"))

    def make_more(self) -> None:
        """Make what only `fuzz_harness.py` reads, after :meth:`make`."""
        for form in ("trl-stepwise", "trl-preference", "math-shepherd", "processbench"):
            export = ["export", self.path("pairs"), "--to", form]
            self.run("fsdpo_data", *export, "--out", self.path(form))
        self.run("fsdpo_data", *_build(self, "few"), "--limit", 1, "--out", self.path("one"))
        unsealed = shutil.copytree(self.path("small"), self.path("unsealed"))
        (unsealed / "manifest.json").unlink()
        self._trained()
        policy = shutil.copytree(resolve("tiny").path, self.path("policy"))
        (policy / "chat_template.jinja").write_text(CHAT)

    def _trained(self) -> None:
        """Train three steps, and leave what two of them did."""
        from fuzz_readers import resumed

        trained = self.path("trained")
        self.run(*(word for word in resumed(self.folder, trained) if word != "--resume"))
        shutil.rmtree(trained / "checkpoints" / "checkpoint-3")
        for file in trained.glob("*"):
            if file.is_file() and file.name not in ("dpo.json", ".lock"):
                file.unlink()

    def run(self, module: str, *arguments: object) -> None:
        """Run a command to its end.

        Raises:
            SystemExit: if it fails.
        """
        line = [sys.executable, "-m", module, *map(str, arguments)]
        with tempfile.TemporaryFile() as said:
            if self.warm.start(line, self.env, said.fileno(), said.fileno()).wait() != 0:
                said.seek(0)
                sys.exit(f"error: {' '.join(line)}\n{said.read().decode()}")

    def record(self, name: str, count: int) -> None:
        """Write problems of the embedded world with eight recorded solutions each."""
        template = resolve("tiny").template
        with (
            self.path(f"{name}.jsonl").open("wb") as problems,
            self.path(f"{name}-recorded.jsonl").open("wb") as recorded,
            self.path(f"{name}-responses.jsonl").open("wb") as responses,
        ):
            for question, answer, texts in _world(count):
                problems.write(_line({"question": question, "answer": answer}))
                recorded.write(_line(_record(template.render(question), texts)))
                row = {"question": question, "gt": answer, "code": texts}
                responses.write(_line(row))

    def _small(self) -> None:
        """Build a dataset of several small shards."""
        from fsdpo_data.cli.app import main

        build = [*_build(self, "few"), "--out", str(self.path("small"))]
        with (
            patch("fsdpo_data.stages.sample.SHARD_SOLUTIONS", 96),
            patch("sys.argv", ["fsdpo-data", *build]),
            open(os.devnull, "w") as null,
            patch("sys.stdout", null),
            patch("sys.stderr", null),
        ):
            try:
                main()
            except SystemExit as ended:
                if ended.code:
                    raise

    def _continuations(self) -> None:
        """Record continuations of every beginning of the small dataset, half of them right."""
        import pyarrow.parquet as pq

        from fsdpo_data.stages.grade import gold_answers

        golds = gold_answers(sorted(self.path("small").glob("problems/*.parquet")))
        written: dict[str, bytes] = {}
        for file in sorted(self.path("small").glob("solutions/*.parquet")):
            for row in pq.read_table(file).to_pylist():
                right = f"Step 9: It is so.\nThe answer is: {golds[row['problem_id']]}"
                for text in accumulate([row["prompt"], *row["completions"][:-1]]):
                    texts = [right, "Step 9: Or not.\nThe answer is: 7"] * 4
                    written.setdefault(text, _line(_record(text, texts)))
        self.path("continuations.jsonl").write_bytes(b"".join(written.values()))

    def _prm(self) -> None:
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


def _world(count: int) -> Iterator[tuple[str, str, list[str]]]:
    from fsdpo_data.problems.embedded.generator import make_problems
    from fsdpo_data.problems.embedded.solutions import write_solution

    rng = random.Random(0)
    base = make_problems("train", min(count, 400))
    demonstrated = [
        ["".join(write_solution(problem, rng, error_rate=0.3)) for _ in range(8)]
        for problem in base
    ]
    for index in range(count):
        problem, texts = base[index % len(base)], demonstrated[index % len(base)]
        suffix = f" ({index // len(base)})" if index >= len(base) else ""
        yield problem.question + suffix, problem.answer, texts


def _record(prompt: str, texts: Sequence[str]) -> dict[str, Any]:
    made = {"finish_reason": "stop", "n_tokens": 9, "seconds": 0.001}
    return {"prompt": prompt, "completions": [{"text": text, **made} for text in texts]}


def _line(row: Mapping[str, Any]) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def _build(inputs: Inputs, name: str) -> list[str]:
    options = ["--problems", inputs.path(f"{name}.jsonl"), "--samples", 8, "--workers", 2]
    replay = ["--engine", "replay", "--replay", inputs.path(f"{name}-recorded.jsonl")]
    return ["build", *map(str, [*options, *replay, "--batch-size", 16])]


def _bench_run(inputs: Inputs) -> list[str]:
    replay = ["--engine", "replay", "--replay", str(inputs.path("few-responses.jsonl"))]
    return ["fsdpo_bench", "run", *replay, "--decoder", "sc", "--k", "8", "--batch-size", "4"]


_MIGRATE = """
import sys
from pathlib import Path
from fsdpo_data.dataset.migrate import migrate_dataset
from fsdpo_data.cli.console import run_app

def newer(root):
    file = root / "manifest.json"
    file.write_text(file.read_text().replace('"schema_version": 0', '"schema_version": 1'))

run_app(lambda: migrate_dataset(Path(sys.argv[1]), Path(sys.argv[2]), migrations={0: newer}))
"""


def all_cases(inputs: Inputs) -> dict[str, Case]:
    """Return the commands by name."""
    cases = [*_stages(inputs), *_exchange(inputs), *_bench(inputs), *_training(inputs)]
    return {case.name: case for case in cases}


def _command(module: str, *arguments: object) -> Callable[[Path], list[str]]:
    line = [sys.executable, "-m", module, *map(str, arguments)]
    return lambda out: [*line, "--out", str(out)]


def _stages(inputs: Inputs) -> Iterator[Case]:
    """Yield what makes sealed datasets."""
    small, scored, prm = inputs.path("small"), inputs.path("scored"), inputs.path("prm")
    continued = ["--engine", "replay", "--replay", inputs.path("continuations.jsonl")]
    lines: dict[str, tuple[Path, list[object]]] = {
        "label": (small, ["label", small, "--rollouts", 4, *continued, "--batch-size", 16]),
        "score": (small, ["score", small, "--prm", prm]),
        "grade": (scored, ["grade", scored]),
        "pair": (scored, ["pair", scored, "--no-require-outcome", "--top", 2]),
        "pair step-dpo": (
            scored,
            [
                "pair",
                scored,
                "--style",
                "step-dpo",
                "--continuations",
                4,
                *continued,
                "--batch-size",
                8,
            ],
        ),
    }
    yield Case("build", _command("fsdpo_data", *_build(inputs, "many")), _RESUME)
    through = [*_build(inputs, "few"), "--prm", prm, "--top", 2]
    shard = [*_build(inputs, "many"), "--shard", "2/3"]
    yield Case("build --shard", _command("fsdpo_data", *shard), _RESUME)
    parts = [inputs.path(f"part{index}") for index in (1, 2)]
    yield Case("merge", _command("fsdpo_data", "merge", *parts), sources=parts)
    yield Case("build --prm", _command("fsdpo_data", *through), _RESUME)
    for name, (source, line) in lines.items():
        yield Case(name, _command("fsdpo_data", *line), _RESUME, sources=[source])
    against = ["decontaminate", scored, "--against", inputs.path("few.jsonl")]
    yield Case("decontaminate", _command("fsdpo_data", *against), _RESUME, sources=[scored])


def _exchange(inputs: Inputs) -> Iterator[Case]:
    """Yield what brings datasets into other forms and places."""
    pairs, old = inputs.path("pairs"), inputs.path("old")
    if not old.exists() and pairs.exists():
        subprocess.run(["cp", "-r", pairs, old], check=True)
        text = (old / "manifest.json").read_text()
        (old / "manifest.json").write_text(
            text.replace('"schema_version": 1', '"schema_version": 0')
        )

    def migrate(out: Path) -> list[str]:
        return [sys.executable, "-c", _MIGRATE, str(old), str(out)]

    def imported(out: Path) -> list[str]:
        source = next(inputs.path("prm800k").glob("*.jsonl"))
        line = ["import", str(source), "--from", "prm800k", "--out", str(out / "rows.jsonl")]
        return [sys.executable, "-m", "fsdpo_data", *line]

    def push(out: Path) -> list[str]:
        return [sys.executable, "-m", "fsdpo_data", "push", str(pairs), f"org/{out.name}"]

    def pushed(out: Path) -> dict[str, str]:
        """Return what everybody sees on the Hub; the card names the repository."""
        repo = inputs.hub.repos.get(("dataset", f"org/{out.name}"))
        files = repo.at() if repo and repo.resolve("main") else {}
        return {path: sha256(data) for path, data in files.items() if path != "README.md"}

    yield Case("migrate", migrate, sources=[old])
    export = ["export", pairs, "--to", "llama-factory-sharegpt"]
    yield Case("export", _command("fsdpo_data", *export), sources=[pairs])
    yield Case("import", imported)
    yield Case("push", push, outcome=pushed, sources=[pairs])
    yield Case("pull", _command("fsdpo_data", "pull", "org/there"))


def _bench(inputs: Inputs) -> Iterator[Case]:
    yield Case("bench run", _command(*_bench_run(inputs)), _RESUME)
    grade = ["grade", inputs.path("bench"), "--k", 1, "--k", 4]
    sources = [inputs.path("bench")]
    yield Case("bench grade", _command("fsdpo_bench", *grade), _RESUME, sources=sources)


def _training(inputs: Inputs) -> Iterator[Case]:
    """Yield the training stages: some steps, several checkpoints."""
    data = {
        "sft": next(inputs.path("trl-sft").glob("*.jsonl"), inputs.path("trl-sft")),
        "prm": inputs.path("small"),
        "dpo": inputs.path("pairs"),
    }
    for stage, source in data.items():
        options = ["--model", "tiny", "--batch-size", 4, "--grad-accum", 1, "--lr", "1e-3"]
        options += ["--max-steps", STEPS, "--save-every", SAVE_EVERY, "--log-every", 1]
        yield Case(
            f"train {stage}",
            _command("fsdpo_train", stage, source, *options),
            _RESUME,
            globs=("reference*", "model.safetensors*", "README.md"),
            outcome=_weights,
            checkpoints=True,
            sources=[source] if source.is_dir() else [],
        )


def _weights(out: Path) -> dict[str, str]:
    """Return what a training run leaves, its last losses among it."""
    found = digests(out, without=_TRAINED)
    states = sorted(out.glob(f"checkpoints/checkpoint-{STEPS}/trainer_state.json"))
    logged = [json.loads(file.read_text())["log_history"] for file in states]
    losses = [[each["loss"] for each in history if "loss" in each] for history in logged]
    return found | {"losses": str(losses)}
