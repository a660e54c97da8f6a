"""What `benchmarks/perf/gpu.py` measures: one case, run as `gpu_cases.py FOLDER WHAT HOW SIZE`."""

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
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "perf"))
from random_model import save_random_prm
from trainers import PROMPTS, make_model, make_pairs, timed, trained, trl_trainer

Case = tuple[str, str, str]  #: What is measured, how, and of which size.
Result = dict[str, float]

#: As Qwen2.5's, but that its MLP is 4 widths wide and that two heads share a key.
SHAPES = {
    "0.5B": {"vocabulary": 151_936, "width": 896, "layers": 24},
    "1.5B": {"vocabulary": 151_936, "width": 1536, "layers": 28},
    "tiny": {"vocabulary": 300, "width": 128, "layers": 1},
}
#: Dense bfloat16 operations per second that makers state, by a part of a device's name.
PEAKS = {"H100": 989e12, "H200": 989e12, "B200": 2250e12, "A100": 312e12, "L40S": 362e12}
PEAKS |= {"A10": 125e12, "L4": 121e12, "4090": 165e12, "3090": 71e12}
RATIOS = ("64:512", "512:512", "2048:512")  #: Tokens of a prompt, and of each of its solutions.
ROUNDS = 3
SAMPLER = Path(__file__).parents[2] / "benchmarks" / "perf" / "sampler.py"
HEADLESS = "no chunked head"
UNSHARED = "no prompt sharing"
FLEXLESS = "no FlexAttention"
#: What has to be installed for a way.
NEEDS = {"trl": "trl", "vllm": "vllm", "flex": "triton"}


def cases(*, tiny: bool) -> Iterator[Case]:
    for size in ["tiny"] if tiny else ["0.5B", "1.5B"]:
        ways = {
            "dpo": ("ours", "trl", UNSHARED, HEADLESS, FLEXLESS),
            "sft": ("ours", "trl", HEADLESS),
            "prm": ("ours",),
            "score": ("transformers", UNSHARED, "vllm"),
        }
        yield from ((what, how, size) for what, known in ways.items() for how in known)
    for ratio in ["4:16"] if tiny else RATIOS:
        yield from (("attention", how, ratio) for how in ("flex", "tree", "flash", "sdpa"))
    yield "sampling", "vllm", "tiny" if tiny else "embedded"


def missing(how: str) -> bool:
    return how in NEEDS and find_spec(NEEDS[how]) is None


def measured(folder: Path, case: Case) -> Result:
    """Run a case.

    Returns:
        ``seconds`` of a step or a call, its ``tokens`` and their ``rate``, ``mb`` at the peak,
        ``mfu`` of known GPUs; of sampling the ``ratio`` of rates, through `build` to bare vLLM.
    """
    import torch

    what, how, _ = case
    run: dict[str, Callable[[Path, Case], Result]]
    run = {"score": score, "attention": attention, "sampling": sampling}
    found = run.get(what, train)(folder, case)
    if "tokens" in found:
        found["rate"] = found["tokens"] / found["seconds"]
    if torch.cuda.is_available() and how != "vllm":
        found["mb"] = torch.cuda.max_memory_allocated() / 2**20
        peak = [each for name, each in PEAKS.items() if name in torch.cuda.get_device_name()]
        if peak and "flops" in found:
            found["mfu"] = found["flops"] / found["seconds"] / peak[0]
    return found


def inputs(folder: Path, size: str) -> list[dict[str, Any]]:
    """Write model, pairs, rows and labelled steps, unless they are there; return the solutions."""
    if not (folder / size / "config.json").exists():
        make_model(folder / size, Namespace(**SHAPES[size]))
        make_pairs(folder / "dpo.jsonl")
    pairs = list(map(json.loads, (folder / "dpo.jsonl").read_text().splitlines()))
    solutions = {}
    for pair in pairs:
        for side in ("chosen", "rejected"):
            row = {"prompt": pair["prompt"], "completion": pair[side]}
            steps = pair[f"{side}_steps"]
            row |= {"completions": steps, "labels": [float(side == "chosen")] * len(steps)}
            solutions[pair["prompt"], pair[side]] = row
    for name, left_out in (("sft", ("completions", "labels")), ("prm", ("completion",))):
        rows = [{k: v for k, v in row.items() if k not in left_out} for row in solutions.values()]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return list(solutions.values())


def work(rows: Sequence[dict[str, Any]], size: str, each: int, head: bool) -> Result:
    """Say what has to be computed at least: a prompt once; ``each`` is 6 to train, 2 to read."""
    width, layers = SHAPES[size]["width"], SHAPES[size]["layers"]
    own = sum(len(row["completion"]) + 1 for row in rows)  # a letter is a token
    tokens = own + sum(map(len, {row["prompt"] for row in rows}))
    body = layers * width * width * (2 + 2 * (width // 128) * 64 / width + 3 * 4)
    flops = each * (tokens * body + head * own * width * SHAPES[size]["vocabulary"])
    return {"tokens": tokens, "flops": flops}


def train(folder: Path, case: Case) -> Result:
    import torch

    what, how, size = case
    rows = inputs(folder, size)
    flops = work(rows, size, 6, what != "prm")
    if how == "trl":
        file = folder / f"{what}.jsonl"
        batch = {"per_device_train_batch_size": 16, "num_train_epochs": 99}
        batch["gradient_accumulation_steps"] = len(file.read_text().splitlines()) // 16
        return flops | timed(trl_trainer(what, file, folder / size, max_steps=ROUNDS + 1, **batch))
    options: dict[str, Any] = dict(
        data=folder / f"{what}.jsonl",
        out=folder / f"{what}-{how}-{size}",
        model=str(folder / size),
        batch_size=PROMPTS if what == "dpo" else len(rows),
        grad_accum=1,
        epochs=99,
        max_steps=ROUNDS + 1,
        save_every=0,
        log_every=1,
        dtype="bfloat16" if torch.cuda.is_available() else "float32",
    )
    if what == "prm":
        options["held_out"] = 0
    if what == "dpo":
        options["share_prompt"] = how != UNSHARED
        options["attention"] = "sdpa" if how == FLEXLESS else "auto"
    if how == HEADLESS:
        from fsdpo_data.engines import logprobs

        logprobs.token_logprobs.__defaults__ = (2**31,)
    return flops | trained(what, options, timed)


def score(folder: Path, case: Case) -> Result:
    from fsdpo_data.engines.load import load_scorer
    from fsdpo_data.engines.options import ScorerOptions
    from fsdpo_data.engines.scorers import ScorerInput

    _, how, size = case
    rows, prm = inputs(folder, size), folder / f"prm-{size}"
    if not prm.exists():
        save_random_prm(prm, folder / size)
    engine: Any = "vllm" if how == "vllm" else "transformers"
    scorer: Any = load_scorer(str(prm), ScorerOptions(engine=engine, dtype="bfloat16"))
    if how == UNSHARED:
        scorer._can_share_prompts = False
    items = [ScorerInput(row["prompt"], row["completions"]) for row in rows]
    return work(rows, size, 2, False) | {"seconds": seconds_of(lambda: scorer.score(items))}


def attention(_: Path, case: Case) -> Result:
    """Attention forward and backward over groups of eight solutions."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    from fsdpo_data.engines import prefix_sharing
    from fsdpo_data.engines.step_tokens import PROMPT_STEP_ID, EncodedSolution
    from fsdpo_train.preference.groups import PromptGroup, collate_groups

    _, how, ratio = case
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    n_prompt, n_own = map(int, ratio.split(":"))
    n = n_prompt + n_own
    each = EncodedSolution([2] * n, [PROMPT_STEP_ID] * n_prompt + [0] * n_own, [n - 1], 1)
    group = PromptGroup([each] * 8, [[0.0]] * 8, [])
    shared = how in ("flex", "tree")
    batch = collate_groups([group] * 4, share_prompt=shared, pad_id=0, eos_id=1)
    name = prefix_sharing._REGISTERED_NAMES["flex" if how == "flex" else "sdpa"]
    net = Namespace(device=torch.device(device), dtype=dtype)
    net.config = Namespace(_attn_implementation=name)
    given = {name: each.to(device) for name, each in batch["model_inputs"].items()}
    given = prefix_sharing.tree_inputs(net, **given)
    shape = (len(given["input_ids"]), 14, given["input_ids"].shape[1], 64)
    states = [torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3)]
    mask = given["attention_mask"]
    causal = torch.ones(shape[2], shape[2], dtype=torch.bool, device=device).tril()
    padded = mask.bool()[:, None, None] & causal if how == "sdpa" else None

    def run() -> None:
        if shared:
            out, _ = prefix_sharing.tree_attention(None, *states, mask, tree=given["tree"])
        elif how == "flash":
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                out = scaled_dot_product_attention(*states, is_causal=True)
        else:
            out = scaled_dot_product_attention(*states, attn_mask=padded)
        out.sum().backward()

    return {"tokens": 4 * (n_prompt + 8 * n_own), "seconds": seconds_of(run)}


def sampling(_: Path, case: Case) -> Result:
    small = ["--problems", "4", "--samples", "4", "--rounds", "1"]
    asked = small if case[2] == "tiny" else ["--problems", "64", "--rounds", "3"]
    line = [sys.executable, str(SAMPLER), *asked]
    ran = subprocess.run(line, capture_output=True, text=True, check=True)
    return {"ratio": float(ran.stdout.split()[-1])}


def seconds_of(call: Callable[[], object]) -> float:
    """Return the median of a few calls behind one that warms up."""
    import torch

    took = []
    for _ in range(ROUNDS + 1):
        started = time.perf_counter()
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        took.append(time.perf_counter() - started)
    return statistics.median(took[1:])


def attempt(folder: Path, case: Case, seconds: float) -> Result | str:
    """Run a case in a process of its own; return what it gave, or why it gave nothing."""
    if missing(case[1]):
        return "not installed"
    if seconds <= 0:
        return "no time left"
    line = [sys.executable, __file__, str(folder), *case]
    try:
        ran = subprocess.run(line, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return "no time left"
    if ran.returncode:
        said = [each for each in ran.stderr.splitlines() if re.match(r"[\w.]+: ", each)]
        return f"failed: {(said or ran.stderr.splitlines() or ['?'])[-1][:200]}"
    found: Result = json.loads(ran.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    print(json.dumps(measured(Path(sys.argv[1]), (sys.argv[2], sys.argv[3], sys.argv[4]))))
