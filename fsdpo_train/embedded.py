"""The recipe of the embedded model: ``python -m fsdpo_train.embedded --out DIR``.

Writes demonstrations of the embedded world, trains a tokenizer on them, fine-tunes a model of
about a million random weights, measures it on held-out problems and writes the card. Everything
but the measuring goes through the code of ``fsdpo-train sft``.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from fsdpo_cards.render import render

from fsdpo_data.cli.console import run_app
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.nouns import Problem
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.engines.samplers import Sampler
from fsdpo_data.problems.embedded import (
    PROMPT,
    WORLD_VERSION,
    demonstration,
    final_answer,
    first_wrong_step,
    make_problems,
)
from fsdpo_data.steps.segment import step_marker
from fsdpo_train.config import SftConfig
from fsdpo_train.sft.train import train_sft

EOS, PAD = "<|endoftext|>", "<|pad|>"

#: About a million weights. Heads of 32, which vLLM's CPU attention serves.
ARCHITECTURE = {
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
VOCABULARY = 1024

#: Files of a finished model that belong into the package.
_SHIPPED = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
)


@dataclass(frozen=True, slots=True)
class Stage:
    """One pass of fine-tuning.

    Attributes:
        name: Of its files.
        rows: Demonstrations, each of another problem.
        error_rate: Chance of each step to be wrong.
        lr: Peak learning rate.
    """

    name: str
    rows: int
    error_rate: float
    lr: float


#: Learning to solve comes first and takes longest. Learning to err is short: the model keeps its
#: arithmetic and only becomes unsure of each step.
STAGES = (Stage("solve", 150_000, 0.0, 3e-3), Stage("err", 10_000, 0.25, 5e-4))


def make(out: Path, stages: Sequence[Stage] = STAGES, seed: int = 0) -> None:
    """Make the model in ``out``; what it was made from stays in ``out/work``.

    Raises:
        InputError: if ``out`` already holds something.
    """
    if out.exists() and any(out.iterdir()):
        raise InputError("not empty. Choose a new directory.", field="out", value=str(out))
    started = time.monotonic()
    work = out / "work"
    work.mkdir(parents=True)
    problems = make_problems("train", sum(stage.rows for stage in stages), seed)
    files = list(_write_data(work, problems, stages, seed))
    _write_architecture(work / "architecture", files[0])
    before: Path | None = None
    for stage, data in zip(stages, files, strict=True):
        before = _train(work, stage, data, before, seed)
    for name in _SHIPPED:
        shutil.copyfile(work / stages[-1].name / name, out / name)
    minutes = (time.monotonic() - started) / 60
    (out / "README.md").write_text(_card(stages, seed, minutes, list(measure(out))))


def _write_data(
    work: Path, problems: Sequence[Problem], stages: Sequence[Stage], seed: int
) -> Iterable[Path]:
    """Write one file of prompt/completion rows per stage."""
    rng = random.Random(f"{WORLD_VERSION}/demonstrations/{seed}")
    at = 0
    for stage in stages:
        path = work / f"{stage.name}.jsonl"
        with path.open("w") as file:
            for problem in problems[at : at + stage.rows]:
                prompt = PROMPT.format(question=problem.question)
                completion = demonstration(problem, rng, stage.error_rate).text
                file.write(json.dumps({"prompt": prompt, "completion": completion}) + "\n")
        at += stage.rows
        yield path


def _write_architecture(folder: Path, data: Path) -> None:
    """Train the tokenizer on the rows of ``data`` and write it beside the model's config."""
    from transformers import Qwen2Config

    rows = (json.loads(line) for line in data.open())
    tokenizer = train_tokenizer(row["prompt"] + row["completion"] for row in rows)
    tokenizer.save_pretrained(folder)
    Qwen2Config(
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
    from transformers import Qwen2Tokenizer

    raw = Qwen2Tokenizer().backend_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[EOS, PAD],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    raw.train_from_iterator(texts, trainer)
    model = json.loads(raw.to_str())["model"]
    return Qwen2Tokenizer(
        vocab=model["vocab"],
        merges=[tuple(pair) for pair in model["merges"]],
        eos_token=EOS,
        pad_token=PAD,
        model_max_length=ARCHITECTURE["max_position_embeddings"],
        padding_side="left",
    )


def _train(work: Path, stage: Stage, data: Path, before: Path | None, seed: int) -> Path:
    out = work / stage.name
    start = {"from_config": work / "architecture"} if before is None else {"model": str(before)}
    config = SftConfig(
        data=data,
        out=out,
        epochs=1,
        batch_size=32,
        lr=stage.lr,
        warmup=0.05,
        weight_decay=0.01,
        adam_beta2=0.98,
        log_every=100,
        save_every=0,
        seed=seed,
        **start,
    )
    train_sft(config)
    return out


@dataclass(frozen=True, slots=True)
class Measured:
    """How the model does on held-out problems at one temperature.

    Attributes:
        temperature: 0 is greedy.
        problems: Test problems asked.
        samples: Solutions per problem.
        accuracy: Share of solutions with the right answer.
        half_width: Half the 95 % interval of ``accuracy``; problems are the independent units.
        wrong_steps: Share of solutions with a wrong step.
        distinct: Mean share of a problem's samples that differ from each other.
        mixed: Share of problems with right and wrong samples, the ones that give pairs.
        seconds: Wall clock.
    """

    temperature: float
    problems: int
    samples: int
    accuracy: float
    half_width: float
    wrong_steps: float
    distinct: float
    mixed: float
    seconds: float


def measure(folder: Path, greedy: int = 1000, sampled: int = 100, n: int = 32) -> list[Measured]:
    """Measure a model greedily and at temperatures 0.8 and 1."""
    from fsdpo_data.engines.options import SamplerOptions
    from fsdpo_data.engines.samplers.transformers import TransformersSampler
    from fsdpo_data.models.resolve import Weights

    weights = Weights(ModelRef("embedded", "in the making"), str(folder))
    sampler = TransformersSampler(weights, SamplerOptions())
    plans = ((0.0, greedy, 1), (0.8, sampled, n), (1.0, sampled, n))
    return [_measure(sampler, *plan) for plan in plans]


def _measure(sampler: Sampler, temperature: float, count: int, n: int) -> Measured:
    started = time.monotonic()
    problems = make_problems("test", count)
    prompts = [PROMPT.format(question=problem.question) for problem in problems]
    spec = SamplingSpec(n=n, temperature=temperature, max_tokens=256)
    texts = [[each.text for each in samples] for samples in sampler.sample(prompts, spec)]
    pairs = list(zip(problems, texts, strict=True))
    right = [[final_answer(text) == problem.answer for text in group] for problem, group in pairs]
    shares = [statistics.fmean(group) for group in right]
    wrong = [
        first_wrong_step(problem, step_marker(text)) is not None
        for problem, group in pairs
        for text in group
    ]
    return Measured(
        temperature=temperature,
        problems=count,
        samples=n,
        accuracy=statistics.fmean(shares),
        half_width=1.96 * statistics.stdev(shares) / math.sqrt(count),
        wrong_steps=statistics.fmean(wrong),
        distinct=statistics.fmean(len(set(group)) / n for group in texts),
        mixed=statistics.fmean(0 < share < 1 for share in shares),
        seconds=time.monotonic() - started,
    )


def _card(stages: Sequence[Stage], seed: int, minutes: float, measured: list[Measured]) -> str:
    """Return the model card, its numbers as measured."""
    import torch
    import transformers

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
        stages=stages,
    )


def main(
    out: Annotated[Path, typer.Option(help="New directory of the model.")],
    seed: Annotated[int, typer.Option(help="Of problems, demonstrations and weights.")] = 0,
) -> None:
    """Make the embedded model."""
    make(out, seed=seed)


if __name__ == "__main__":
    run_app(lambda: typer.run(main))
