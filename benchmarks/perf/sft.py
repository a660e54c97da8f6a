"""Supervised fine-tuning with a large vocabulary: time, memory, and the same without our head.

    python benchmarks/perf/sft.py

The model has the shape of SmolLM2-135M (vocabulary 49,152) and random weights; rows are random
tokens. "all logits" is the model's own loss, on a [tokens × vocabulary] tensor.
"""

import argparse
import json
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from step_dpo import alone, timed

SHAPE = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
WAYS = ("ours", "all logits")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    tokens = {"prompt": 128, "completion": 256}
    for name, default in {**tokens, "batch": 8, "layers": 30, "threads": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--steps", type=int, default=2, help="steps timed, after one that is not")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--ways", nargs="*", default=WAYS, choices=WAYS)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(measured(options)))
        return
    print(f"{'way':<12} {'rows/s':>7} {'peak':>9}  loss")
    for way in options.ways:
        found = alone(way, options.threads)
        rate = options.batch / found["seconds"]
        told = f"{way:<12} {rate:7.2f} {found['mb']:6.0f} MB  {found['loss']:.4f}"
        print(told, flush=True)


def measured(options: argparse.Namespace) -> dict[str, float]:
    """Train one way, in a process of its own; return seconds of a step, peak in MB, the loss."""
    import torch
    import transformers

    from fsdpo_train.config import SftConfig
    from fsdpo_train.sft import train as sft
    from fsdpo_train.trainer.arguments import training_arguments

    with tempfile.TemporaryDirectory() as folder:
        config = SftConfig(
            data=Path("rows"),
            out=Path(folder),
            model="random",
            batch_size=options.batch,
            epochs=1,
            dtype=options.dtype,
            warmup=0.0,
            log_every=1,
            save_every=0,
        )
        transformers.set_seed(0)
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(**SHAPE, num_hidden_layers=options.layers)
        )
        shape = options.batch * (options.steps + 1), options.prompt + options.completion
        ids = torch.randint(2, SHAPE["vocab_size"], shape)
        labels = ids.clone()
        labels[:, : options.prompt] = sft.IGNORE
        rows = [
            {"input_ids": one, "labels": other, "length": shape[1]}
            for one, other in zip(ids, labels, strict=True)
        ]
        tokenizer: Any = SimpleNamespace(pad_token_id=0, eos_token_id=1, bos_token_id=None)
        forward = model.forward
        trainer = sft._trainer(config, training_arguments(config), model, tokenizer, rows)
        if options.run == "all logits":
            trainer.model.forward = forward
            trainer.compute_loss = lambda model, inputs, **_: model(**inputs).loss
        return timed(trainer)


if __name__ == "__main__":
    main()
