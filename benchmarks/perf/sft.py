"""Supervised fine-tuning with a large vocabulary: time, memory, and the same without our head.

    python benchmarks/perf/sft.py

The model has the shape of SmolLM2-135M (vocabulary 49,152) and random weights; rows are random
tokens. "all logits" is the model's own loss, on a [tokens × vocabulary] tensor.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

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
    parser.add_argument("--prompt", type=int, default=128, help="tokens of a prompt")
    parser.add_argument("--completion", type=int, default=256, help="tokens of a completion")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--steps", type=int, default=2, help="steps timed, after one that is not")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--ways", nargs="*", default=WAYS, choices=WAYS)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(measured(options)))
        return
    print(f"{'way':<12} {'rows/s':>7} {'peak':>9}  loss")
    for way in options.ways:
        own = [sys.executable, __file__, *sys.argv[1:], "--run", way]
        env = {**os.environ, "OMP_NUM_THREADS": str(options.threads), "OMP_WAIT_POLICY": "PASSIVE"}
        ran = subprocess.run(own, env=env, capture_output=True, text=True)
        if ran.returncode:
            sys.exit(f"{way} failed:\n{ran.stderr[-3000:]}")
        found = json.loads(ran.stdout.splitlines()[-1])
        print(
            f"{way:<12} {options.batch / found['seconds']:7.2f} {found['mb']:6.0f} MB"
            f"  {found['loss']:.4f}",
            flush=True,
        )


def measured(options: argparse.Namespace) -> dict[str, float]:
    """Train one way, in a process of its own; return seconds of a step, peak in MB, the loss."""
    import torch
    import transformers
    from step_dpo import peak, watch

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
        clock = watch(trainer)
        with peak() as highest:
            trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    seconds = median(after - before for before, after in pairwise(clock))
    return {"seconds": seconds, "mb": highest[0] / 2**20, "loss": losses[-1]}


if __name__ == "__main__":
    main()
