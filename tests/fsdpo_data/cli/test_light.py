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

#: Prints the help of a program and of each of its commands.
PRINT_HELP = """
import sys, typer
from typer.testing import CliRunner
from {package}.cli.app import app
for name in typer.main.get_command(app).commands:
    help_text = CliRunner().invoke(app, [name, "--help"]).output
    assert "Usage" in help_text, help_text
sys.argv = ["{package}", "--help"]
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


@pytest.mark.parametrize("package", ["fsdpo_data", "fsdpo_train", "fsdpo_bench"])
def test_help_is_light(package: str) -> None:
    modules, output = run_code(PRINT_HELP.format(package=package))
    assert not modules & HEAVY
    assert "Usage" in output


def test_the_check_sees_what_is_loaded() -> None:
    assert (
        "sympy" in run_code("import sys, sympy; print('loaded:', *sys.modules, file=sys.stderr)")[0]
    )
