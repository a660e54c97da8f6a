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

#: What an editable install loads at the start of Python.
EDITABLE_INSTALL = {"editables", "sitecustomize"}
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


def test_grading_a_response_loads_the_grader_and_nothing_else() -> None:
    code = """
import sys, fsdpo_data
print(fsdpo_data.grade("1/2", "0.5").status)
print("loaded:", *sys.modules, file=sys.stderr)
"""
    modules, output = run_code(code)
    assert output == "correct\n"
    roots = {name.partition(".")[0] for name in modules}
    allowed = {"fsdpo_data", *EDITABLE_INSTALL, *sys.stdlib_module_names}
    assert {name for name in roots if not name.startswith("_")} <= allowed
    ours = {name for name in modules if name.startswith("fsdpo_data.")}
    grader = {name for name in ours if name.startswith("fsdpo_data.answers")}
    assert ours - grader == {"fsdpo_data.core", "fsdpo_data.core.errors"}
    assert "fsdpo_data.answers.grader" in grader
    assert "fsdpo_data.answers.comparison.worker" not in grader  # only sympy's process needs it


def test_the_check_sees_what_is_loaded() -> None:
    assert (
        "sympy" in run_code("import sys, sympy; print('loaded:', *sys.modules, file=sys.stderr)")[0]
    )
