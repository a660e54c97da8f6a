"""Tests of the start-up: importing a package, or printing its help, loads no heavy library."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {
    "torch",
    "transformers",
    "vllm",
    "datasets",
    "deepspeed",
    "sympy",
    "ray",
    "polars",
}
HEAVY |= {"pyarrow", "numpy", "scipy", "mpmath", "jinja2", "yaml", "huggingface_hub", "fsspec"}

COMMANDS = [
    ("fsdpo_data", "--help"),
    ("fsdpo_data", "build --help"),
    ("fsdpo_data", "demo --help"),
    ("fsdpo_data", "validate --help"),
    ("fsdpo_data", "inspect --help"),
    ("fsdpo_data", "grade --help"),
    ("fsdpo_data", "label --help"),
    ("fsdpo_data", "score --help"),
    ("fsdpo_data", "pair --help"),
    ("fsdpo_train", "--help"),
    ("fsdpo_train", "sft --help"),
    ("fsdpo_train", "prm --help"),
    ("fsdpo_bench", "--help"),
    ("fsdpo_bench", "prm --help"),
    ("fsdpo_bench", "run --help"),
    ("fsdpo_bench", "validate --help"),
    ("fsdpo_bench", "grade --help"),
    ("fsdpo_bench", "diff --help"),
    ("fsdpo_bench", "report --help"),
    ("fsdpo_bench", "recipe --help"),
]

RUN = """
import sys
sys.argv = {argv!r}
from {package}.cli.app import main
try:
    main()
finally:
    print("loaded:", *sorted({{name.partition(".")[0] for name in sys.modules}}), file=sys.stderr)
"""


def run_code(code: str) -> tuple[set[str], str]:
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(ran.stderr.splitlines()[-1].split()[1:]), ran.stdout


@pytest.mark.parametrize("package", ["fsdpo_data", "fsdpo_train", "fsdpo_bench", "fsdpo_cards"])
def test_importing_a_package_is_light(package: str) -> None:
    code = f"import sys, {package}; print('loaded:', *sys.modules, file=sys.stderr)"
    assert not run_code(code)[0] & HEAVY


@pytest.mark.parametrize(("package", "arguments"), COMMANDS)
def test_help_is_light(package: str, arguments: str) -> None:
    modules, output = run_code(RUN.format(package=package, argv=[package, *arguments.split()]))
    assert not modules & HEAVY
    assert "Usage" in output


def test_the_check_sees_what_is_loaded() -> None:
    assert (
        "sympy" in run_code("import sys, sympy; print('loaded:', *sys.modules, file=sys.stderr)")[0]
    )
