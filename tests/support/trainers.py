"""What is trained to be timed, a random model on random letters; and how, by us and by TRL."""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from string import ascii_lowercase
from typing import Any
from unittest.mock import patch

from preference_data import pair_row

#: Of prompts, right and wrong solutions of each, and about how many tokens and steps they have.
PROMPTS, TOP, PROMPT_TOKENS, RESPONSE_TOKENS, STEPS = 4, 4, 120, 250, 6


def make_model(folder: Path, options: argparse.Namespace) -> None:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    # A token is a letter; the rest of the vocabulary is there for the head to compute.
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = {token: number for number, token in enumerate(["<eos>", "<pad>", *letters])}
    tokenizer = Tokenizer(models.BPE(ids, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>")
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=options.vocabulary,
        hidden_size=options.width,
        intermediate_size=4 * options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=options.width // 64,
        num_key_value_heads=max(1, options.width // 128),
        max_position_embeddings=2**15,
        eos_token_id=0,
        pad_token_id=1,
        bos_token_id=None,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    fast.save_pretrained(folder)


def make_pairs(file: Path, response_tokens: int = RESPONSE_TOKENS) -> None:
    rng = random.Random(0)

    def text(tokens: int) -> str:
        return "".join(rng.choices(ascii_lowercase, k=tokens - 1)) + "\n"

    def solution() -> tuple[list[str], list[float]]:
        tokens = round(response_tokens * rng.uniform(0.7, 1.3) / STEPS)
        return [text(tokens) for _ in range(STEPS)], [rng.random() for _ in range(STEPS)]

    with file.open("w") as out:
        for _ in range(PROMPTS):
            prompt = text(round(PROMPT_TOKENS * rng.uniform(0.8, 1.2)))
            good, bad = ([solution() for _ in range(TOP)] for _ in range(2))
            for chosen in good:
                for rejected in bad:
                    out.write(json.dumps(pair_row(prompt, chosen, rejected)) + "\n")


def timed(trainer: Any) -> dict[str, float]:
    """Train; return seconds and the loss of a step, and the peak of memory in MB."""
    from transformers import TrainerCallback

    clock: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.append(time.perf_counter())

    trainer.add_callback(Clock())
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    trainer.train()
    loss = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry][-1]
    seconds = statistics.median(after - before for before, after in pairwise(clock))
    return {"seconds": seconds, "mb": resident("VmHWM"), "loss": loss}


def resident(kind: str) -> float:
    """Return how much memory the process holds (``VmRSS``), or has held (``VmHWM``), in MB."""
    found = re.search(rf"^{kind}:\s+(\d+)", Path("/proc/self/status").read_text(), re.M)
    assert found is not None
    return int(found[1]) / 2**10


class Timed(Exception):
    """Training is over when its steps are timed: nothing has to be saved."""


def trained(
    what: str, options: dict[str, Any], run: Callable[[Any], dict[str, float]]
) -> dict[str, float]:
    """Return what ``run`` gives of the trainer that `fsdpo-train` makes."""
    module = import_module(f"fsdpo_train.{'preference' if what == 'dpo' else what}.train")
    config = getattr(import_module("fsdpo_train.config"), f"{what.title()}Config")(**options)

    def stop(trainer: Any, *_: Any) -> None:
        raise Timed(run(trainer))

    with patch.object(module, "run_trainer", stop):
        try:
            getattr(module, f"train_{what}")(config)
        except Timed as found:
            result: dict[str, float] = found.args[0]
            return result
    raise AssertionError("nothing was trained")


def trl_trainer(what: str, data: Path, model: Path, **settings: Any) -> Any:
    """TRL's trainer at its fastest: no checkpointing of activations, the reference beforehand."""
    import torch
    import trl
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    gpu = torch.cuda.is_available()
    kind = "flash_attention_2" if gpu and find_spec("flash_attn") else "sdpa"
    columns = ["prompt", *(["chosen", "rejected"] if what == "dpo" else ["completion"])]
    if what == "dpo":
        settings["precompute_ref_log_probs"] = True
    arguments = getattr(trl, f"{what.upper()}Config")(
        output_dir=str(data.parent / "trl"),
        use_cpu=not gpu,
        bf16=gpu,
        use_liger_kernel=gpu and find_spec("liger_kernel") is not None,
        gradient_checkpointing=False,
        max_length=None,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        **settings,
    )
    rows = load_dataset("json", data_files=str(data), split="train")
    return getattr(trl, f"{what.upper()}Trainer")(
        model=AutoModelForCausalLM.from_pretrained(
            model, dtype="float32", attn_implementation=kind, trust_remote_code=False
        ),
        args=arguments,
        train_dataset=rows.select_columns(columns),
        processing_class=AutoTokenizer.from_pretrained(model, trust_remote_code=False),
    )


def every_pair_apart(data: Any, reference: Any) -> Any:
    """Give every pair solutions of its own, as trainers that know only pairs do."""
    from fsdpo_train.preference.groups import PromptGroup

    values = []
    for place, (group, arrays) in enumerate(zip(data.groups, reference, strict=True)):
        order = [index for pair in group.pairs for index in pair]
        pairs = [(2 * n, 2 * n + 1) for n in range(len(group.pairs))]
        rewards = [group.rewards[i] for i in order]
        data.groups[place] = PromptGroup([group.solutions[i] for i in order], rewards, pairs)
        values.append([arrays[i] for i in order])
    return values


def compute_reference(trainer: Any, policy: Path) -> None:
    """Run a second model in every step, as it is without a cache."""
    import torch
    from transformers import AutoModelForCausalLM

    from fsdpo_data.engines.logprobs import patch_to_return_logprobs
    from fsdpo_train.preference.groups import scatter_tokens

    second = AutoModelForCausalLM.from_pretrained(policy, trust_remote_code=False).eval()
    patch_to_return_logprobs(second, attention="auto")
    given = trainer.compute_loss

    def compute_loss(model: Any, inputs: dict[str, Any], *more: Any, **options: Any) -> Any:
        with torch.no_grad():
            logp_N = second(**inputs["model_inputs"])
        table = scatter_tokens(logp_N, inputs["step_ST"])
        return given(model, {**inputs, "reference_ST": table}, *more, **options)

    trainer.compute_loss = compute_loss
