"""Tokens per second, peak memory and MFU on the GPU at hand, in ten minutes and offline.

    python benchmarks/perf/gpu.py [--minutes 10] [--out runs/gpu.json] [--tiny]

Random weights of the shapes 0.5B and 1.5B, a vocabulary of 152k, 32 solutions of 4 prompts: DPO,
SFT and PRM training, each with a part left out, beside TRL with FlashAttention and Liger; scoring
by transformers and vLLM; attention over groups of 8 solutions beside flash and sdpa; sampling
through `build` beside bare vLLM. Peers are measured where they are installed. MFU counts what has
to be computed at least, every solution and every prompt once, and no attention scores.
Without a GPU it says what it would measure; `--tiny` does all of it at toy size anywhere.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import typer

from fsdpo_data.core.lazy import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from gpu_cases import attempt, cases

#: Of what a case gives: its name, its title, its format.
COLUMNS = (
    ("rate", "tokens/s", ",.0f"),
    ("mb", "peak MB", ",.0f"),
    ("mfu", "MFU", ".1%"),
    ("ratio", "ratio", ".2f"),
)


def main(minutes: float = 10, out: Path = Path("runs/gpu.json"), tiny: bool = False) -> None:
    """Measure every case, print a row for each, and write them all as JSON."""
    gpu, end = torch.cuda.is_available(), time.monotonic() + 60 * minutes
    device = torch.cuda.get_device_name() if gpu else "no GPU here"
    print(f"{device}, torch {torch.__version__}{'' if gpu or tiny else ': would measure'}")
    print(" " * 34 + "".join(f"{title:>10}" for _, title, _ in COLUMNS))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(tiny=tiny):
            left = end - time.monotonic()
            found = attempt(Path(folder), case, left) if gpu or tiny else "-"
            row = {"what": case[0], "how": case[1], "size": case[2]}
            rows.append(row | ({"error": found} if isinstance(found, str) else found))
            print(f"{' '.join(case):34}{format_case(found)}", flush=True)
    if gpu or tiny:
        out.parent.mkdir(parents=True, exist_ok=True)
        told = {"device": device, "torch": torch.__version__, "rows": rows}
        out.write_text(json.dumps(told, indent=1))


def format_case(found: dict[str, float] | str) -> str:
    """Lay out what a case gave, or why it gave nothing."""
    if isinstance(found, str):
        return f"  {found}"
    cells = (f"{found[name]:{how}}" if name in found else "" for name, _, how in COLUMNS)
    return "".join(f"{cell:>10}" for cell in cells)


if __name__ == "__main__":
    typer.run(main)
