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
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "perf"))
from random_model import save_random_prm
from step_dpo import timed
from step_dpo_inputs import PROMPTS, make_model, make_pairs

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


def cases(*, tiny: bool) -> Iterator[Case]:
    for size in ["tiny"] if tiny else ["0.5B", "1.5B"]:
        ways = {
            "dpo": ("ours", "trl", UNSHARED, HEADLESS),
            "sft": ("ours", "trl", HEADLESS),
            "prm": ("ours",),
            "score": ("transformers", UNSHARED, "vllm"),
        }
        yield from ((what, how, size) for what, known in ways.items() for how in known)
    for ratio in ["4:16"] if tiny else RATIOS:
        yield from (("attention", how, ratio) for how in ("tree", "flash", "sdpa"))
    yield "sampling", "vllm", "tiny" if tiny else "embedded"


def missing(how: str) -> bool:
    return how in ("trl", "vllm") and find_spec(how) is None


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


class Timed(Exception):
    """Training is over when its steps are timed: nothing has to be saved."""


def train(folder: Path, case: Case) -> Result:
    import torch

    from fsdpo_train import config as configs
    from fsdpo_train.preference import train as dpo
    from fsdpo_train.prm import train as prm
    from fsdpo_train.sft import train as sft

    what, how, size = case
    rows = inputs(folder, size)
    flops = work(rows, size, 6, what != "prm")
    if how == "trl":
        return flops | timed(make_trl(folder, what, size))
    module = {"dpo": dpo, "sft": sft, "prm": prm}[what]
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
    if how == HEADLESS:
        from fsdpo_data.engines import logprobs

        logprobs.token_logprobs.__defaults__ = (2**31,)
    config = getattr(configs, f"{what.title()}Config")(**options)

    def run(trainer: Any, *_: Any) -> None:
        raise Timed(timed(trainer))

    with patch.object(module, "run_trainer", run):
        try:
            getattr(module, f"train_{what}")(config)
        except Timed as found:
            return flops | found.args[0]
    raise AssertionError("nothing was trained")


def make_trl(folder: Path, what: str, size: str) -> Any:
    """TRL's trainer at its fastest: no checkpointing of activations, the reference beforehand."""
    import torch
    import trl
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    gpu = torch.cuda.is_available()
    kind = "flash_attention_2" if gpu and find_spec("flash_attn") else "sdpa"
    rows = load_dataset("json", data_files=str(folder / f"{what}.jsonl"), split="train")
    columns = ["prompt", *(["chosen", "rejected"] if what == "dpo" else ["completion"])]
    more: dict[str, Any] = {"precompute_ref_log_probs": True} if what == "dpo" else {}
    settings = getattr(trl, f"{what.upper()}Config")(
        output_dir=str(folder / "trl"),
        num_train_epochs=99,
        max_steps=ROUNDS + 1,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=len(rows) // 16,
        use_cpu=not gpu,
        bf16=gpu,
        use_liger_kernel=gpu and find_spec("liger_kernel") is not None,
        gradient_checkpointing=False,
        max_length=None,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        **more,
    )
    return getattr(trl, f"{what.upper()}Trainer")(
        model=AutoModelForCausalLM.from_pretrained(
            folder / size, dtype="float32", attn_implementation=kind, trust_remote_code=False
        ),
        args=settings,
        train_dataset=rows.select_columns(columns),
        processing_class=AutoTokenizer.from_pretrained(folder / size, trust_remote_code=False),
    )


def score(folder: Path, case: Case) -> Result:
    from fsdpo_data.engines.load import load_scorer
    from fsdpo_data.engines.options import ScorerOptions
    from fsdpo_data.engines.scorers import SteppedText

    _, how, size = case
    rows, prm = inputs(folder, size), folder / f"prm-{size}"
    if not prm.exists():
        save_random_prm(prm, folder / size)
    engine: Any = "vllm" if how == "vllm" else "transformers"
    scorer: Any = load_scorer(str(prm), ScorerOptions(engine=engine, dtype="bfloat16"))
    if how == UNSHARED:
        scorer._share = False
    items = [SteppedText(row["prompt"], row["completions"]) for row in rows]
    return work(rows, size, 2, False) | {"seconds": seconds_of(lambda: scorer.score(items))}


def attention(_: Path, case: Case) -> Result:
    """Attention forward and backward over groups of eight solutions."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    from fsdpo_data.engines.sharing import tree_attention
    from fsdpo_data.engines.step_tokens import PROMPT, Encoded
    from fsdpo_train.preference.groups import Group, collate_groups

    _, how, ratio = case
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    n_prompt, n_own = map(int, ratio.split(":"))
    each = Encoded([2] * (n_prompt + n_own), [PROMPT] * n_prompt + [0] * n_own, [], 1)
    group = Group([each] * 8, [[0.0]] * 8, [])
    batch = collate_groups([group] * 4, share_prompt=how == "tree", pad=0, eos=1, dtype=dtype)
    shape = (len(batch.input_ids_RL), 14, batch.input_ids_RL.shape[1], 64)
    states = [torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3)]
    mask = batch.attention_mask.to(device)
    tree = {name: value.to(device) for name, value in batch.tree.items()}
    seen = torch.ones(shape[2], shape[2], dtype=torch.bool, device=device).tril()
    padded = mask.bool()[:, None, None] & seen if how == "sdpa" else None

    def run() -> None:
        if how == "tree":
            out, _ = tree_attention(torch.nn.Module(), *states, mask, **tree)
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
