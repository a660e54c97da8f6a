"""Measure tokens per second, peak memory and MFU on a GPU, offline and in ten minutes.

    python benchmarks/perf/gpu.py [--minutes 10] [--only TEXT] [--out runs/gpu.json] [--tiny]

The models have random weights, the shapes of 0.5B and 1.5B models, and a vocabulary of 152k.
The data are 32 solutions of 4 prompts. The cases are:

- DPO, SFT and PRM training, also with one optimization switched off, and TRL with Liger for
  comparison; `ratio` is our rate divided by TRL's. TRL uses FlashAttention if `flash_attn` is
  installed, else sdpa;
- scoring with transformers and vLLM;
- attention over a shared prompt with 8 solutions (FlexAttention and segment by segment), compared
  with flash and sdpa attention;
- sampling through `fsdpo-data build`; `ratio` is its rate divided by the rate of vLLM alone.

Cases that do not fit in `--minutes` are skipped. `--only 0.5B` measures the cases with 0.5B in
their name. The errors of failed cases go to stderr.

Libraries to compare with are measured if they are installed; the second line names them. Model
FLOPs utilization (MFU) counts the minimum work: every solution and every prompt once, without
attention scores. Without a GPU the script only lists the cases; `--tiny` runs all of them at toy
size on any machine.
"""

import json
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import typer

from fsdpo_data.core.lazy import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from gpu_cases import GpuCase, list_cases, run_case

#: The table's columns: the key in a case's metrics, the title and the number format.
COLUMNS = (
    ("rate", "tokens/s", ",.0f"),
    ("mb", "peak MB", ",.0f"),
    ("mfu", "MFU", ".1%"),
    ("ratio", "ratio", ".2f"),
)
#: Packages that determine the speed.
PACKAGES = ("transformers", "triton", "trl", "liger_kernel", "flash_attn", "vllm")


def main(
    minutes: float = 10, only: str = "", out: Path = Path("runs/gpu.json"), tiny: bool = False
) -> None:
    """Measure every case, print a row for each, and write them all as JSON."""
    has_gpu = torch.cuda.is_available()
    measures = has_gpu or tiny
    deadline = time.monotonic() + 60 * minutes
    device = torch.cuda.get_device_name() if has_gpu else "no GPU here"
    print(f"{device}, torch {torch.__version__}{'' if measures else ': would measure'}")
    packages = {name: installed_version(name) for name in PACKAGES}
    print(", ".join(f"{name} {number}" for name, number in packages.items()))
    print(" " * 34 + "".join(f"{title:>10}" for _, title, _ in COLUMNS))
    rows = []
    rates: dict[GpuCase, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in list_cases(tiny=tiny):
            if only not in " ".join(case):
                continue
            seconds_left = deadline - time.monotonic()
            result = run_case(Path(folder), case, seconds_left) if measures else "-"
            if not isinstance(result, str) and "rate" in result:
                rates[case] = result["rate"]
                if case.variant == "trl" and (ours := rates.get(case._replace(variant="ours"))):
                    result["ratio"] = ours / result["rate"]
            metrics = {"error": result} if isinstance(result, str) else result
            rows.append({"what": case.workload, "how": case.variant, "size": case.size} | metrics)
            print(f"{' '.join(case):34}{format_result(result)}", flush=True)
    if measures:
        out.parent.mkdir(parents=True, exist_ok=True)
        report = {"device": device, "torch": torch.__version__, "packages": packages, "rows": rows}
        out.write_text(json.dumps(report, indent=1))


def installed_version(package: str) -> str:
    """Return the version of a package, or that it is missing."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


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
