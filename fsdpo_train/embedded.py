"""The recipe of the embedded model: ``python -m fsdpo_train.embedded --out DIR``.

Writes demonstrations of the embedded world, trains a tokenizer on them, fine-tunes a model of
about a million random weights, measures it on held-out problems and writes the card. Everything
but the measuring goes through the code of ``fsdpo-train sft``.
"""

import json
import random
import shutil
import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from fsdpo_cards.render import render

from fsdpo_data.api import build
from fsdpo_data.cli.console import run_app
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import torch, transformers
from fsdpo_data.core.toml_tables import read_toml
from fsdpo_data.problems.embedded import PROMPT
from fsdpo_data.problems.embedded.generator import make_problems
from fsdpo_data.problems.embedded.solutions import first_wrong_step, write_solution
from fsdpo_data.problems.embedded.story import WORLD_VERSION
from fsdpo_train.config import SftConfig
from fsdpo_train.sft.train import train_sft

EOS, PAD = "<|endoftext|>", "<|pad|>"
VOCABULARY_SIZE = 1024
_RECIPE = read_toml(__file__)
ARCHITECTURE: dict[str, Any] = _RECIPE["architecture"]
STAGES: list[dict[str, Any]] = _RECIPE["stages"]

#: Files of a finished model that belong into the package.
_SHIPPED = (
    *("config.json", "generation_config.json", "model.safetensors"),
    *("tokenizer.json", "tokenizer_config.json"),
)


def make_model(out: Path, seed: int = 0) -> None:
    """Make the model in ``out``; what it was made from stays in ``out/work``.

    Raises:
        InputError: if ``out`` already holds something.
    """
    if out.exists() and any(out.iterdir()):
        raise InputError("not empty. Choose a new directory.", field="out", value=str(out))
    started = time.monotonic()
    work = out / "work"
    work.mkdir(parents=True)
    problems = iter(make_problems("train", sum(stage["rows"] for stage in STAGES), seed))
    rng = random.Random(f"{WORLD_VERSION}/demonstrations/{seed}")
    for stage in STAGES:
        with (work / f"{stage['name']}.jsonl").open("w") as file:
            for problem in islice(problems, stage["rows"]):
                completion = "".join(write_solution(problem, rng, stage["error_rate"]))
                row = {"prompt": PROMPT.format(question=problem.question), "completion": completion}
                file.write(json.dumps(row) + "\n")
    _write_architecture(work / "architecture", work / f"{STAGES[0]['name']}.jsonl")
    start: dict[str, Any] = {"from_config": work / "architecture"}
    for stage in STAGES:
        place = {"data": work / f"{stage['name']}.jsonl", "out": work / stage["name"]}
        train_sft(SftConfig(lr=stage["lr"], seed=seed, **place, **_RECIPE["training"], **start))
        start = {"model": str(work / stage["name"])}
    for name in _SHIPPED:
        shutil.copyfile(work / STAGES[-1]["name"] / name, out / name)
    minutes = (time.monotonic() - started) / 60
    (out / "README.md").write_text(_card(seed, minutes, measure_model(out)))


def _write_architecture(folder: Path, data: Path) -> None:
    """Train the tokenizer on the rows of ``data`` and write it beside the model's config."""
    rows = (json.loads(line) for line in data.open())
    tokenizer = train_tokenizer(row["prompt"] + row["completion"] for row in rows)
    tokenizer.save_pretrained(folder)
    transformers.Qwen2Config(
        **ARCHITECTURE,
        vocab_size=len(tokenizer),
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    ).save_pretrained(folder)


def train_tokenizer(texts: Iterable[str]) -> Any:
    """Train a byte-level BPE tokenizer: every digit a token, every text spelled back (as NFC).

    It is a ``Qwen2Tokenizer``, trained with that class's own splitting: transformers gives a model
    of type ``qwen2`` this class whatever else the tokenizer's files say.
    """
    from tokenizers import pre_tokenizers, trainers

    raw = transformers.Qwen2Tokenizer().backend_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=[EOS, PAD],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    raw.train_from_iterator(texts, trainer)
    model = json.loads(raw.to_str())["model"]
    return transformers.Qwen2Tokenizer(
        vocab=model["vocab"],
        merges=[tuple(pair) for pair in model["merges"]],
        eos_token=EOS,
        pad_token=PAD,
        model_max_length=ARCHITECTURE["max_position_embeddings"],
        padding_side="left",
    )


def measure_model(
    folder: Path, greedy_problems: int = 1000, sampled_problems: int = 100, samples: int = 32
) -> list[dict[str, float]]:
    """Measure a model greedily and at temperatures 0.8 and 1.

    Returns:
        For each temperature the numbers that the card shows; ``half_width`` is half the 95 %
        interval of ``accuracy``, in which problems are the independent units.
    """
    plans = (
        (0.0, greedy_problems, 1),
        (0.8, sampled_problems, samples),
        (1.0, sampled_problems, samples),
    )
    return [_measure(folder, *plan) for plan in plans]


def _measure(folder: Path, temperature: float, count: int, n: int) -> dict[str, float]:
    asked: dict[str, Any] = {"template": "problem", "split": "test", "engine": "transformers"}
    asked |= {"samples": n, "temperature": temperature, "max_tokens": 256, "limit": count}
    problems = {each.id: each for each in make_problems("test", count)}
    with TemporaryDirectory() as out:
        data = build(model=str(folder), out=Path(out) / "data", **asked)
        rows = data.solutions().select("problem_id", "completions").collect().rows()
    wrong = [first_wrong_step(problems[key], steps) is not None for key, steps in rows]
    told, solutions = data.manifest.statistics, count * n
    low, high = told.accuracy.ci95 or (0.0, 1.0)
    return {
        "temperature": temperature,
        "problems": count,
        "samples": n,
        "accuracy": told.accuracy.correct / solutions,
        "half_width": (high - low) / 2,
        "wrong_steps": sum(wrong) / solutions,
        "distinct": told.unique_solutions / solutions,
        "mixed": told.mixed_problems / count,
        "seconds": data.manifest.cost.seconds,
    }


def _card(seed: int, minutes: float, measured: list[dict[str, float]]) -> str:
    return render(
        Path(__file__).with_suffix(".md"),
        world=WORLD_VERSION,
        prompt=PROMPT.encode("unicode_escape").decode(),
        eos=EOS,
        measured=measured,
        seed=seed,
        minutes=minutes,
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        transformers=transformers.__version__,
        stages=STAGES,
    )


def main(
    out: Annotated[Path, typer.Option(help="New directory of the model.")],
    seed: Annotated[int, typer.Option(help="Of problems, demonstrations and weights.")] = 0,
) -> None:
    """Make the embedded model."""
    make_model(out, seed)


if __name__ == "__main__":
    run_app(lambda: typer.run(main))
