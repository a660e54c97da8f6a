"""Measure tokens per second, peak memory and MFU on a GPU, offline and in ten minutes.

    python benchmarks/perf/gpu.py [--minutes 10] [--out runs/gpu.json] [--tiny]

The models have random weights, the shapes of 0.5B and 1.5B models, and a vocabulary of 152k.
The data are 32 solutions of 4 prompts. The cases are:

- DPO, SFT and PRM training, also with one optimization switched off, and TRL with FlashAttention
  and Liger for comparison;
- scoring with transformers and vLLM;
- attention over a shared prompt with 8 solutions (FlexAttention and segment by segment), compared
  with flash and sdpa attention;
- sampling through `fsdpo-data build`; `ratio` is its rate divided by the rate of vLLM alone.

Cases that do not fit in `--minutes` are skipped.

Libraries to compare with are measured if they are installed. Model FLOPs utilization (MFU) counts
the minimum work: every solution and every prompt once, without attention scores. Without a GPU the
script only lists the cases; `--tiny` runs all of them at toy size on any machine.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import typer

from fsdpo_data.core.lazy import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from gpu_cases import list_cases, run_case

#: The table's columns: the key in a case's metrics, the title and the number format.
COLUMNS = (
    ("rate", "tokens/s", ",.0f"),
    ("mb", "peak MB", ",.0f"),
    ("mfu", "MFU", ".1%"),
    ("ratio", "ratio", ".2f"),
)


def main(minutes: float = 10, out: Path = Path("runs/gpu.json"), tiny: bool = False) -> None:
    """Measure every case, print a row for each, and write them all as JSON."""
    has_gpu = torch.cuda.is_available()
    measures = has_gpu or tiny
    deadline = time.monotonic() + 60 * minutes
    device = torch.cuda.get_device_name() if has_gpu else "no GPU here"
    print(f"{device}, torch {torch.__version__}{'' if measures else ': would measure'}")
    print(" " * 34 + "".join(f"{title:>10}" for _, title, _ in COLUMNS))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for case in list_cases(tiny=tiny):
            seconds_left = deadline - time.monotonic()
            result = run_case(Path(folder), case, seconds_left) if measures else "-"
            metrics = {"error": result} if isinstance(result, str) else result
            rows.append({"what": case.workload, "how": case.variant, "size": case.size} | metrics)
            print(f"{' '.join(case):34}{format_result(result)}", flush=True)
    if measures:
        out.parent.mkdir(parents=True, exist_ok=True)
        report = {"device": device, "torch": torch.__version__, "rows": rows}
        out.write_text(json.dumps(report, indent=1))


def format_result(result: dict[str, float] | str) -> str:
    """Format the metrics of a case as table cells, or the reason why the case has no metrics."""
    if isinstance(result, str):
        return f"  {result}"
    cells = [
        f"{result[key]:{number_format}}" if key in result else ""
        for key, _, number_format in COLUMNS
    ]
    return "".join(f"{cell:>10}" for cell in cells)


if __name__ == "__main__":
    typer.run(main)
