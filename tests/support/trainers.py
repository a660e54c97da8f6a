"""Time trainings of a random model on random letters, with our trainers and with TRL's."""

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

PROMPTS = 4
#: Right solutions of each prompt, and as many wrong ones; each right-wrong combination is a pair.
SOLUTIONS_PER_SIDE = 4
#: The mean number of tokens of a prompt and of a solution; the lengths vary randomly.
PROMPT_TOKENS = 120
RESPONSE_TOKENS = 250
#: Steps of each solution.
STEPS = 6


def make_model(folder: Path, options: argparse.Namespace) -> None:
    """Write a random Qwen2 and a tokenizer with one token per letter.

    ``options`` has the model's ``vocabulary``, ``width`` and ``layers``.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    # A token is a letter; the other tokens of the vocabulary are only work for the head.
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = {token: number for number, token in enumerate(["<eos>", "<pad>", *letters])}
    tokenizer = Tokenizer(models.BPE(ids, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast_tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>"
    )
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
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):  # GPUs draw faster
        model = Qwen2ForCausalLM(config)
    model.save_pretrained(folder)
    fast_tokenizer.save_pretrained(folder)


def make_pairs(file: Path, response_tokens: int = RESPONSE_TOKENS) -> None:
    """Write preference pairs of random letters, with random step rewards."""
    rng = random.Random(0)

    def make_text(tokens: int) -> str:
        return "".join(rng.choices(ascii_lowercase, k=tokens - 1)) + "\n"

    def make_solution() -> tuple[list[str], list[float]]:
        tokens = round(response_tokens * rng.uniform(0.7, 1.3) / STEPS)
        steps = [make_text(tokens) for _ in range(STEPS)]
        rewards = [rng.random() for _ in range(STEPS)]
        return steps, rewards

    with file.open("w") as out:
        for _ in range(PROMPTS):
            prompt = make_text(round(PROMPT_TOKENS * rng.uniform(0.8, 1.2)))
            right_solutions = [make_solution() for _ in range(SOLUTIONS_PER_SIDE)]
            wrong_solutions = [make_solution() for _ in range(SOLUTIONS_PER_SIDE)]
            for chosen in right_solutions:
                for rejected in wrong_solutions:
                    out.write(json.dumps(pair_row(prompt, chosen, rejected)) + "\n")


def time_training(trainer: Any) -> dict[str, float]:
    """Train, and return the median seconds of a step, the last loss and the peak memory in MB."""
    import torch
    from transformers import TrainerCallback

    step_ends: list[float] = []

    class StepClock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            step_ends.append(time.perf_counter())

    trainer.add_callback(StepClock())
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM, the peak so far
    trainer.train()
    loss = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry][-1]
    seconds = statistics.median(end - start for start, end in pairwise(step_ends))
    return {"seconds": seconds, "mb": resident_mb("VmHWM"), "loss": loss}


def resident_mb(field: str) -> float:
    """Return the resident memory of this process in MB: ``VmRSS`` now, or ``VmHWM`` at its peak."""
    match = re.search(rf"^{field}:\s+(\d+)", Path("/proc/self/status").read_text(), re.M)
    assert match is not None
    return int(match[1]) / 2**10


class MeasurementDoneError(Exception):
    """Ends a training after its measurement, before it saves anything."""


def run_with_trainer(
    method: str, options: dict[str, Any], measure: Callable[[Any], dict[str, float]]
) -> dict[str, float]:
    """Prepare a training of `fsdpo-train` and return ``measure(trainer)``.

    Args:
        method: ``dpo``, ``sft`` or ``prm``.
        options: Fields of the method's config.
        measure: Gets the trainer that is ready to train.
    """
    from fsdpo_train.trainer.head_chunk import set_head_chunk

    module = import_module(f"fsdpo_train.{'preference' if method == 'dpo' else method}.train")
    config = getattr(import_module("fsdpo_train.config"), f"{method.title()}Config")(**options)

    def measure_and_stop(trainer: Any, *_: Any) -> None:
        set_head_chunk(trainer, {})
        raise MeasurementDoneError(measure(trainer))

    with patch.object(module, "run_trainer", measure_and_stop):
        try:
            getattr(module, f"train_{method}")(config)
        except MeasurementDoneError as done:
            metrics: dict[str, float] = done.args[0]
            return metrics
    raise AssertionError("nothing was trained")


def trl_trainer(method: str, data: Path, model: Path, **settings: Any) -> Any:
    """Return TRL's trainer at its fastest.

    Gradient checkpointing is off, and DPO precomputes the reference log-probabilities.
    """
    import torch
    import trl
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    has_gpu = torch.cuda.is_available()
    attention = "flash_attention_2" if has_gpu and find_spec("flash_attn") else "sdpa"
    columns = ["prompt", "completion"]
    if method == "dpo":
        columns = ["prompt", "chosen", "rejected"]
        settings["precompute_ref_log_probs"] = True
    arguments = getattr(trl, f"{method.upper()}Config")(
        output_dir=str(data.parent / "trl"),
        use_cpu=not has_gpu,
        bf16=has_gpu,
        use_liger_kernel=has_gpu and find_spec("liger_kernel") is not None,
        gradient_checkpointing=False,
        max_length=None,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        **settings,
    )
    rows = load_dataset("json", data_files=str(data), split="train")
    return getattr(trl, f"{method.upper()}Trainer")(
        model=AutoModelForCausalLM.from_pretrained(
            model, dtype="float32", attn_implementation=attention, trust_remote_code=False
        ),
        args=arguments,
        train_dataset=rows.select_columns(columns),
        processing_class=AutoTokenizer.from_pretrained(model, trust_remote_code=False),
    )


def separate_pairs(groups: list[Any]) -> list[Any]:
    """Give every pair its own copies of its solutions, as in trainers without prompt groups."""
    from dataclasses import replace

    separate_groups = []
    for group in groups:
        solutions = [group.solutions[index] for pair in group.pairs for index in pair]
        pairs = [(2 * n, 2 * n + 1) for n in range(len(group.pairs))]
        separate_groups.append(replace(group, solutions=solutions, pairs=pairs))
    return separate_groups


def compute_reference(trainer: Any, policy: Path) -> None:
    """Run the reference model in every step, as a training without a reference cache does."""
    import torch
    from transformers import AutoModelForCausalLM

    from fsdpo_data.engines.logprobs import patch_to_return_logprobs
    from fsdpo_train.preference.data import scatter_tokens

    reference_model = AutoModelForCausalLM.from_pretrained(policy, trust_remote_code=False).eval()
    patch_to_return_logprobs(reference_model, attention="auto")
    policy_loss = trainer.compute_loss

    def compute_loss(model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            logp_N = reference_model(**inputs["model_inputs"])
        reference_ST = scatter_tokens(logp_N, inputs["solutions"].step_ST)
        solutions = inputs["solutions"]._replace(reference_ST=reference_ST)
        return policy_loss(model, {**inputs, "solutions": solutions}, *args, **kwargs)

    trainer.compute_loss = compute_loss
