"""Training recipe of the embedded model: ``python -m fsdpo_train.embedded --out DIR``.

The recipe writes demonstrations of embedded problems, and trains a tokenizer on them. It fine-tunes
a model with about a million random weights, measures the model on held-out problems, and writes the
model card. All training runs through the code of ``fsdpo-train sft``.
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

from fsdpo_data.api import SamplerOptions, SamplingSpec, build
from fsdpo_data.cli.console import run_app
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import torch, transformers
from fsdpo_data.core.toml_tables import read_module_table
from fsdpo_data.problems.embedded import PROMPT
from fsdpo_data.problems.embedded.generator import make_problems
from fsdpo_data.problems.embedded.solutions import first_wrong_step
from fsdpo_data.problems.embedded.story import EMBEDDED_VERSION
from fsdpo_train.config import SftConfig
from fsdpo_train.demonstrations import demonstration
from fsdpo_train.sft.train import train_sft

EOS = "<|endoftext|>"
PAD = "<|pad|>"
VOCABULARY_SIZE = 1024
_RECIPE = read_module_table(__file__)
ARCHITECTURE: dict[str, Any] = _RECIPE["architecture"]
STAGES: list[dict[str, Any]] = _RECIPE["stages"]

#: Files of a finished model that the package contains.
_SHIPPED_FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
)


def make_model(out: Path, seed: int = 0) -> None:
    """Train the embedded model and write it to ``out``. Intermediate files stay in ``out/work``.

    Raises:
        InputError: if ``out`` is not empty.
    """
    if out.exists() and any(out.iterdir()):
        raise InputError(
            "the directory is not empty. Choose a new directory.", field="out", value=str(out)
        )
    start_time = time.monotonic()
    work = out / "work"
    work.mkdir(parents=True)
    _write_demonstrations(work, seed)
    architecture = work / "architecture"
    _write_architecture(architecture, _demonstrations_file(work, STAGES[0]))
    # The first stage starts from random weights, and each later stage from the previous model.
    start: dict[str, Any] = {"from_config": architecture}
    for stage in STAGES:
        stage_out = work / stage["name"]
        config = SftConfig(
            data=[_demonstrations_file(work, stage)],
            out=stage_out,
            lr=stage["lr"],
            seed=seed,
            **_RECIPE["training"],
            **start,
        )
        train_sft(config)
        start = {"model": str(stage_out)}
    for name in _SHIPPED_FILES:
        shutil.copyfile(work / STAGES[-1]["name"] / name, out / name)
    minutes = (time.monotonic() - start_time) / 60
    (out / "README.md").write_text(_render_card(seed, minutes, measure_model(out)))


def _demonstrations_file(work: Path, stage: dict[str, Any]) -> Path:
    return work / f"{stage['name']}.jsonl"


def _write_demonstrations(work: Path, seed: int) -> None:
    """Write the prompt/completion rows of every stage, each row for another problem."""
    n_problems = sum(stage["rows"] for stage in STAGES)
    problems = iter(make_problems("train", n_problems, seed))
    rng = random.Random(f"{EMBEDDED_VERSION}/demonstrations/{seed}")
    for stage in STAGES:
        with _demonstrations_file(work, stage).open("w") as file:
            for problem in islice(problems, stage["rows"]):
                row = demonstration(problem, rng, stage["error_rate"])
                file.write(json.dumps(row) + "\n")


def _write_architecture(folder: Path, data: Path) -> None:
    """Train the tokenizer on the rows of ``data``, and write it with the config of the model."""
    rows = (json.loads(line) for line in data.open())
    tokenizer = train_tokenizer(row["prompt"] + row["completion"] for row in rows)
    tokenizer.save_pretrained(folder)
    model_config = transformers.Qwen2Config(
        **ARCHITECTURE,
        vocab_size=len(tokenizer),
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model_config.save_pretrained(folder)


def train_tokenizer(texts: Iterable[str]) -> Any:
    """Train a byte-level BPE tokenizer, in which every digit is a token.

    Decoding returns the NFC form of the text. The tokenizer is a ``Qwen2Tokenizer``, and its
    training uses the pre-tokenizer of this class. For every model of type ``qwen2``, transformers
    loads this class and ignores the class in the tokenizer files.
    """
    from tokenizers import pre_tokenizers, trainers

    backend = transformers.Qwen2Tokenizer().backend_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=[EOS, PAD],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    bpe_model = json.loads(backend.to_str())["model"]
    return transformers.Qwen2Tokenizer(
        vocab=bpe_model["vocab"],
        merges=[tuple(pair) for pair in bpe_model["merges"]],
        eos_token=EOS,
        pad_token=PAD,
        model_max_length=ARCHITECTURE["max_position_embeddings"],
        padding_side="left",
    )


def measure_model(
    folder: Path, greedy_problems: int = 1000, sampled_problems: int = 100, samples: int = 32
) -> list[dict[str, float]]:
    """Measure a model with greedy decoding, and with temperatures 0.8 and 1.

    Args:
        folder: The model.
        greedy_problems: Number of problems for greedy decoding.
        sampled_problems: Number of problems for each other temperature.
        samples: Samples per problem at these temperatures.

    Returns:
        The numbers of the card for each temperature. ``half_width`` is half the width of the 95 %
        interval of ``accuracy`` over problems.
    """
    return [
        _measure_temperature(folder, temperature=0.0, n_problems=greedy_problems, samples=1),
        _measure_temperature(folder, temperature=0.8, n_problems=sampled_problems, samples=samples),
        _measure_temperature(folder, temperature=1.0, n_problems=sampled_problems, samples=samples),
    ]


def _measure_temperature(
    folder: Path, *, temperature: float, n_problems: int, samples: int
) -> dict[str, float]:
    """Return the numbers of the card for one temperature."""
    problems = {problem.id: problem for problem in make_problems("test", n_problems)}
    with TemporaryDirectory() as out:
        dataset = build(
            model=str(folder),
            out=Path(out) / "data",
            template="problem",
            split="test",
            engine=SamplerOptions(engine="transformers"),
            sampling=SamplingSpec(n=samples, temperature=temperature, max_tokens=256),
            limit=n_problems,
        )
        rows = dataset.solutions().select("problem_id", "completions").collect().rows()
        statistics = dataset.statistics()
        solutions = statistics.solutions
        n_distinct = statistics.distinct_solutions
    with_wrong_step = [
        first_wrong_step(problems[problem_id], steps) is not None for problem_id, steps in rows
    ]
    n_solutions = n_problems * samples
    low, high = solutions.accuracy.ci95 or (0.0, 1.0)
    return {
        "temperature": temperature,
        "problems": n_problems,
        "samples": samples,
        "accuracy": solutions.outcomes.get("correct", 0) / n_solutions,
        "half_width": (high - low) / 2,
        "wrong_steps": sum(with_wrong_step) / n_solutions,
        "distinct": n_distinct / n_solutions,
        "mixed": solutions.mixed_problems / n_problems,
        "seconds": dataset.manifest.cost.seconds or 0.0,
    }


def _render_card(seed: int, minutes: float, measurements: list[dict[str, float]]) -> str:
    return render(
        Path(__file__).with_suffix(".md"),
        world=EMBEDDED_VERSION,
        prompt=PROMPT.encode("unicode_escape").decode(),
        eos=EOS,
        measurements=measurements,
        seed=seed,
        minutes=minutes,
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        transformers=transformers.__version__,
        stages=STAGES,
    )


def main(
    out: Annotated[Path, typer.Option(help="New directory for the model.")],
    seed: Annotated[
        int, typer.Option(help="Random seed of problems, demonstrations and weights.")
    ] = 0,
) -> None:
    """Train the embedded model."""
    make_model(out, seed)


if __name__ == "__main__":
    run_app(lambda: typer.run(main))
