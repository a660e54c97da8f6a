"""The cases of `benchmarks/perf/gpu.py`.

Each case runs in a process of its own: ``gpu_cases.py FOLDER WORKLOAD VARIANT SIZE``.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from fakes import score_all

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "perf"))
from random_model import save_random_prm
from trainers import (
    PROMPTS,
    make_model,
    make_pairs,
    run_with_trainer,
    time_training,
    trl_trainer,
)


class GpuCase(NamedTuple):
    """One measurement."""

    workload: str  #: ``dpo``, ``sft``, ``prm``, ``score``, ``attention`` or ``sampling``.
    variant: str  #: A library, an attention implementation, or the optimization that is off.
    size: str  #: Size of the model; for ``attention`` the tokens of a prompt and of a solution.


Metrics = dict[str, float]

#: Model shapes as in Qwen2.5, except for an MLP of 4 widths and two attention heads per key.
SHAPES = {
    "0.5B": {"vocabulary": 151_936, "width": 896, "layers": 24},
    "1.5B": {"vocabulary": 151_936, "width": 1536, "layers": 28},
    "tiny": {"vocabulary": 300, "width": 128, "layers": 1},
}
#: The makers' dense bfloat16 FLOP/s, by a part of the device name.
PEAK_FLOPS = {
    "H100": 989e12,
    "H200": 989e12,
    "B200": 2250e12,
    "A100": 312e12,
    "L40S": 362e12,
    "A10": 125e12,
    "L4": 121e12,
    "4090": 165e12,
    "3090": 71e12,
}
#: Tokens of a prompt, and of each of its solutions.
ATTENTION_SIZES = ("64:512", "512:512", "2048:512")
ROUNDS = 5
MICRO_BATCH_ROWS = 16  #: Rows of a micro-batch: pairs or solutions of TRL, and our SFT rows.
#: Lines of a failed case that go to stderr.
ERROR_LINES = 40
SAMPLER_SCRIPT = Path(__file__).parents[2] / "benchmarks" / "perf" / "sampler.py"
NO_CHUNKED_HEAD = "no chunked head"
NO_SHARING = "no prompt sharing"
NO_FLEX = "no FlexAttention"
#: The variants of every workload that runs a model.
VARIANTS = {
    "dpo": ("ours", "trl", NO_SHARING, NO_CHUNKED_HEAD, NO_FLEX),
    "sft": ("ours", "trl", NO_CHUNKED_HEAD),
    "prm": ("ours",),
    "score": ("transformers", NO_SHARING, "vllm"),
}
#: The package that a variant needs.
REQUIRED_PACKAGES = {"trl": "trl", "vllm": "vllm", "flex": "triton"}


def list_cases(*, tiny: bool) -> Iterator[GpuCase]:
    """Yield the cases in the order of the table."""
    for size in ["tiny"] if tiny else ["0.5B", "1.5B"]:
        for workload, variants in VARIANTS.items():
            for variant in variants:
                yield GpuCase(workload, variant, size)
    for size in ["4:16"] if tiny else ATTENTION_SIZES:
        for variant in ("flex", "tree", "flash", "sdpa"):
            yield GpuCase("attention", variant, size)
    yield GpuCase("sampling", "vllm", "tiny" if tiny else "embedded")


def is_package_missing(variant: str) -> bool:
    """Return whether the variant needs a package that is not installed."""
    return variant in REQUIRED_PACKAGES and find_spec(REQUIRED_PACKAGES[variant]) is None


def measure(folder: Path, case: GpuCase) -> Metrics:
    """Run a case.

    Returns:
        ``seconds`` of a step or a call, its ``tokens`` and their ``rate``, ``mb`` at the peak, and
        ``mfu`` if the GPU's peak is known. For sampling, the ``ratio`` of the rates through `build`
        and of vLLM alone.
    """
    import torch

    runners: dict[str, Callable[[Path, GpuCase], Metrics]] = {
        "score": score,
        "attention": attention,
        "sampling": sampling,
    }
    metrics = runners.get(case.workload, train)(folder, case)
    if "tokens" in metrics:
        metrics["rate"] = metrics["tokens"] / metrics["seconds"]
    if torch.cuda.is_available() and case.variant != "vllm":
        metrics["mb"] = torch.cuda.max_memory_allocated() / 2**20
        device = torch.cuda.get_device_name()
        peaks = [peak for name, peak in PEAK_FLOPS.items() if name in device]
        if peaks and "flops" in metrics:
            metrics["mfu"] = metrics["flops"] / metrics["seconds"] / peaks[0]
    return metrics


def write_inputs(folder: Path, size: str) -> list[dict[str, Any]]:
    """Write the model and the rows of every trainer, and return the solutions."""
    if not (folder / size / "config.json").exists():
        make_model(folder / size, Namespace(**SHAPES[size]))
        make_pairs(folder / "dpo.jsonl")
    pairs = [json.loads(line) for line in (folder / "dpo.jsonl").read_text().splitlines()]
    solutions: dict[tuple[str, str], dict[str, Any]] = {}
    for pair in pairs:
        for side in ("chosen", "rejected"):
            steps = pair[f"{side}_steps"]
            solutions[pair["prompt"], pair[side]] = {
                "prompt": pair["prompt"],
                "completion": pair[side],
                "completions": steps,
                "labels": [float(side == "chosen")] * len(steps),
            }
    columns_by_file = {
        "sft.jsonl": ("prompt", "completion"),
        "prm.jsonl": ("prompt", "completions", "labels"),
    }
    for file_name, columns in columns_by_file.items():
        rows = [{name: row[name] for name in columns} for row in solutions.values()]
        (folder / file_name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return list(solutions.values())


def minimum_work(
    rows: Sequence[dict[str, Any]], size: str, *, flops_per_weight: int, with_head: bool
) -> Metrics:
    """Return the tokens and FLOPs of a perfect implementation, which computes a prompt only once.

    Args:
        rows: The solutions.
        size: Name of the model's shape.
        flops_per_weight: FLOPs per weight and token: 6 to train, 2 to infer.
        with_head: Whether the vocabulary head runs.
    """
    width = SHAPES[size]["width"]
    layers = SHAPES[size]["layers"]
    solution_tokens = sum(len(row["completion"]) + 1 for row in rows)  # a letter is a token
    prompt_tokens = sum(len(prompt) for prompt in {row["prompt"] for row in rows})
    tokens = solution_tokens + prompt_tokens
    layer_weights = layers * width * width * (2 + 2 * (width // 128) * 64 / width + 3 * 4)
    head_weights = width * SHAPES[size]["vocabulary"] if with_head else 0
    flops = flops_per_weight * (tokens * layer_weights + solution_tokens * head_weights)
    return {"tokens": tokens, "flops": flops}


def train(folder: Path, case: GpuCase) -> Metrics:
    """Time the optimizer steps of a training."""
    import torch

    method, variant, size = case
    rows = write_inputs(folder, size)
    work = minimum_work(rows, size, flops_per_weight=6, with_head=method != "prm")
    data = folder / f"{method}.jsonl"
    if variant == "trl":
        trainer = trl_trainer(
            method,
            data,
            folder / size,
            max_steps=ROUNDS + 1,
            per_device_train_batch_size=MICRO_BATCH_ROWS,
            num_train_epochs=99,
            gradient_accumulation_steps=len(data.read_text().splitlines()) // MICRO_BATCH_ROWS,
        )
        return work | time_training(trainer)
    options: dict[str, Any] = dict(
        data=data,
        out=folder / f"{method}-{variant}-{size}",
        model=str(folder / size),
        batch_size=PROMPTS if method == "dpo" else len(rows),
        grad_accum=1,
        max_steps=ROUNDS + 1,
        save_every=0,
        log_every=1,
        dtype="bfloat16" if torch.cuda.is_available() else "float32",
    )
    if method == "sft":
        options["batch_size"] = MICRO_BATCH_ROWS
        options["grad_accum"] = len(rows) // MICRO_BATCH_ROWS
    if method == "prm":
        options["held_out"] = 0
    if method == "dpo":
        options["share_prompt"] = variant != NO_SHARING
        options["attention"] = "sdpa" if variant == NO_FLEX else "auto"
    if variant == NO_CHUNKED_HEAD:
        options["head_chunk"] = 2**31
    return work | run_with_trainer(method, options, time_training)


def score(folder: Path, case: GpuCase) -> Metrics:
    """Time scoring with a random PRM."""
    from fsdpo_data.engines.load import load_scorer
    from fsdpo_data.engines.options import ScorerOptions
    from fsdpo_data.engines.scorers import ScorerInput

    rows = write_inputs(folder, case.size)
    prm = folder / f"prm-{case.size}"
    if not prm.exists():
        save_random_prm(prm, folder / case.size)
    engine: Any = "vllm" if case.variant == "vllm" else "transformers"
    scorer: Any = load_scorer(str(prm), ScorerOptions(engine=engine, dtype="bfloat16"))
    if case.variant == NO_SHARING:
        scorer._engine._can_share_prompts = False
    items = [ScorerInput(row["prompt"], row["completions"]) for row in rows]
    work = minimum_work(rows, case.size, flops_per_weight=2, with_head=False)
    return work | {"seconds": median_seconds(lambda: score_all(scorer, items))}


def attention(_: Path, case: GpuCase) -> Metrics:
    """Time attention, forward and backward, over four groups of eight solutions."""
    import numpy as np
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    from fsdpo_data.core.sampling import Prompt
    from fsdpo_data.engines.prefix_sharing.attention import tree_attention
    from fsdpo_data.engines.prefix_sharing.model_attention import REGISTERED_NAMES, tree_inputs
    from fsdpo_data.engines.step_tokens import EncodedSolution
    from fsdpo_train.preference.data import group_inputs
    from fsdpo_train.preference.pairs import PairedSolution, PromptGroup

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    prompt_tokens, solution_tokens = map(int, case.size.split(":"))
    length = prompt_tokens + solution_tokens
    encoded = EncodedSolution(
        input_ids=np.full(length, 2),
        prompt_length=prompt_tokens,
        score_positions=[length - 1],
        n_steps=1,
    )
    solution = PairedSolution(steps=(), rewards=(0.0,), encoded=encoded)
    group = PromptGroup(Prompt(""), [solution] * 8)
    shares_prompt = case.variant in ("flex", "tree")
    model_inputs = group_inputs([group] * 4, share_prompt=shares_prompt, pad_id=0)
    attention_name = "flex" if case.variant == "flex" else "sdpa"
    model = Namespace(device=torch.device(device), dtype=dtype)
    model.config = Namespace(_attn_implementation=REGISTERED_NAMES[attention_name])
    tensors = {name: tensor.to(device) for name, tensor in model_inputs.items()}
    inputs = tree_inputs(model, **tensors)
    n_rows, n_positions = inputs["input_ids"].shape
    shape = (n_rows, 14, n_positions, 64)  # heads of Qwen2.5-0.5B
    query, key, value = (
        torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3)
    )
    mask = inputs["attention_mask"]
    causal = torch.ones(n_positions, n_positions, dtype=torch.bool, device=device).tril()
    padded = mask.bool()[:, None, None] & causal if case.variant == "sdpa" else None

    def run() -> None:
        if shares_prompt:
            out, _ = tree_attention(
                module=None,
                query_RHLD=query,
                key_RGLD=key,
                value_RGLD=value,
                attention_mask=mask,
                tree=inputs["tree"],
            )
        elif case.variant == "flash":
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                out = scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            out = scaled_dot_product_attention(query, key, value, attn_mask=padded)
        out.sum().backward()

    return {"tokens": 4 * (prompt_tokens + 8 * solution_tokens), "seconds": median_seconds(run)}


def sampling(_: Path, case: GpuCase) -> Metrics:
    """Compare sampling through `build` with vLLM alone."""
    options = ["--problems", "64", "--rounds", "3"]
    if case.size == "tiny":
        options = ["--problems", "4", "--samples", "4", "--rounds", "1"]
    command = [sys.executable, str(SAMPLER_SCRIPT), *options]
    completed = subprocess.run(command, capture_output=True, text=True, check=True)
    return {"ratio": float(completed.stdout.split()[-1])}


def median_seconds(call: Callable[[], object]) -> float:
    """Return the median time of a few calls after a warm-up call."""
    import torch

    seconds = []
    for _ in range(ROUNDS + 1):
        started = time.perf_counter()
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:])


def run_case(folder: Path, case: GpuCase, timeout_seconds: float) -> Metrics | str:
    """Run a case in a process of its own; return its metrics, or the reason of its failure."""
    if is_package_missing(case.variant):
        return "not installed"
    if timeout_seconds <= 0:
        return "no time left"
    command = [sys.executable, __file__, str(folder), *case]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        return "no time left"
    if completed.returncode:
        lines = completed.stderr.splitlines()
        print(" ".join(case), *lines[-ERROR_LINES:], sep="\n", file=sys.stderr, flush=True)
        errors = [line for line in lines if re.match(r"[\w.]+: ", line)]
        return f"failed: {(errors or lines or ['?'])[-1][:200]}"
    metrics: Metrics = json.loads(completed.stdout.splitlines()[-1])
    return metrics


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), GpuCase(sys.argv[2], sys.argv[3], sys.argv[4]))))
