"""The parts that ``guard_rails.py`` records."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import polars as pl
from in_process import run_in_process
from random_model import save_random_prm
from typer.main import get_command

from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.models.resolve import resolve

ROOT = Path(__file__).parents[2]
SHARED_DATA = ROOT.parent / "shared" / "data"
FROZEN_RESPONSES = ROOT / "tests" / "data" / "frozen" / "responses.jsonl"
PACKAGES = ("fsdpo_data", "fsdpo_train", "fsdpo_bench")

#: One thread, no GPU, no network and one width of the terminal, so that recordings are equal.
ENVIRONMENT = {
    "COLUMNS": "100",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}

#: Seed of the random reward model. Its rewards of the embedded problems spread over (0, 1).
PRM_SEED = 2
#: Reward models whose scores of GSM8K ``results-pools`` measures.
POOL_MODELS = ("qwen_prm", "math_shepherd")

#: Command lines with a wrong option. They read ``rows.jsonl``, which has two problems.
WRONG_COMMANDS = (
    "fsdpo_data bild",
    "fsdpo_data score",
    "fsdpo_data build --sampels 4",
    "fsdpo_data build --samples 0",
    "fsdpo_data build --samples many",
    "fsdpo_data build --max-failed 200",
    "fsdpo_data build --shard 3/2",
    "fsdpo_data build --top 2",
    "fsdpo_data build --model qwen2-7b-stf",
    "fsdpo_data build --engine vlm",
    "fsdpo_data build --engine replay",
    "fsdpo_data build --engine transformers --concurrency 4",
    "fsdpo_data build --problems nowhere.jsonl",
    "fsdpo_data build --problems rows.jsonl --question-field text",
    "fsdpo_data label nowhere --out new --rollouts 4 --judge tiny",
    "fsdpo_data pair nowhere --out new --aggregate median",
    "fsdpo_data export nowhere --out new --to trl",
    "fsdpo_train dpo nowhere --out new --loss full-stepp",
    "fsdpo_train dpo nowhere --out new --lr -1",
    "fsdpo_bench run --suite smok --model tiny",
    "fsdpo_bench run --task gsm9k --model tiny",
    "fsdpo_bench run --suite smoke",
    "fsdpo_bench run --suite smoke --model tiny --decoder bonn",
    "fsdpo_bench run --suite smoke --model tiny --decoder bon",
    "fsdpo_bench run --suite smoke --model tiny --decoder greedy --k 4",
    "fsdpo_bench run --suite smoke --model tiny --metric avg@0",
    "fsdpo_bench run --suite smoke --model tiny --judge nowhere.toml",
    "fsdpo_data grade",
    "fsdpo_bench diff nowhere elsewhere",
    "fsdpo_bench recipe papr",
)

Record = dict[str, Any]


class Part(NamedTuple):
    """A part of a recording, with a file of its own."""

    record: Callable[[], Record]  #: Records the part; it writes files into the working directory.
    needs_shared: bool = False  #: Whether the part reads the public data next to the checkout.


def list_parts(stride: int = 1) -> dict[str, Part]:
    """Return the parts by name; ``stride`` is the distance between graded responses."""
    return {
        "results-recorded": Part(record_recorded_run, needs_shared=True),
        "results-tiny": Part(record_tiny_run),
        "results-pools": Part(record_pools, needs_shared=True),
        "verdicts": Part(partial(record_verdicts, stride), needs_shared=True),
        "datasets": Part(record_datasets),
        "commands": Part(record_commands),
        "signatures": Part(record_signatures),
        "errors": Part(record_errors),
    }


# Results


def record_recorded_run() -> Record:
    """Return the results of 100 MATH problems with 8 recorded responses."""
    responses = SHARED_DATA / "outputs" / "qwen_math_cot" / "math_cot_100.jsonl"
    run_command(f"fsdpo_data import {responses} --from outputs --out imported")
    report = json.loads(run_command("fsdpo_bench report imported --k 4 --k 8 --json"))
    results: Record = without_seconds(report)
    return results


def record_tiny_run() -> Record:
    """Return the results of the embedded model with all decoders."""
    save_prm()
    run_command(
        "fsdpo_bench run --suite smoke --model tiny --prm prm --limit 20 "
        "--decoder greedy,sc,weighted,bon,sbs --k 4 --k 8 --b1 3 --b2 1 --b2 2 --out run"
    )
    return read_results(Path("run"))


def record_pools() -> Record:
    """Return the comparison of two reward models on real samples of GSM8K."""
    pool = SHARED_DATA / "pools" / "gsm8k"
    for model in POOL_MODELS:
        run_command(
            f"fsdpo_data import {pool / 'candidates.jsonl.gz'} --from outputs --temperature 0.8 "
            f"--scores {pool / 'scores' / model}.jsonl.gz --prm-name {model} --out {model}"
        )
    gammas = "--gamma 0.5 --gamma 2 --gamma 8"
    comparison: Record = json.loads(
        run_command(f"fsdpo_bench report {' '.join(POOL_MODELS)} {gammas} --json")
    )
    return comparison


def read_results(run: Path) -> Record:
    """Return the results of a run without seconds."""
    results: Record = without_seconds(json.loads((run / "results.json").read_text("utf-8")))
    return results


def without_seconds(value: Any) -> Any:
    """Return a JSON value without the fields that hold durations."""
    if isinstance(value, dict):
        return {key: without_seconds(item) for key, item in value.items() if key != "seconds"}
    if isinstance(value, list):
        return [without_seconds(item) for item in value]
    return value


def run_command(line: str) -> str:
    """Run a command in a process of its own, and return its standard output."""
    module, *arguments = shlex.split(line)
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        # A relative PYTHONPATH would lead nowhere from the working directory of a part.
        env=os.environ | ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{line}\n{done.stdout}{done.stderr}")
    return done.stdout


def save_prm() -> None:
    """Write a random reward model of the size of the embedded model to ``prm``."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    save_random_prm(Path("prm"), Path(resolve("tiny").path), seed=PRM_SEED)


# Verdicts


def record_verdicts(stride: int) -> Record:
    """Return the verdicts of every n-th recorded response of each file."""
    sys.path.append(str(ROOT / "benchmarks" / "grading"))
    from measure_grader import read_recorded

    outputs = [
        output
        for output in read_recorded(SHARED_DATA)
        if int(output.key.rpartition("#")[2]) % stride == 0
    ]
    verdicts = MathGrader().grade([output.request for output in outputs])
    return {
        "every": stride,
        "verdicts": {
            output.key: {"status": verdict.status, "answer": verdict.answer}
            for output, verdict in zip(outputs, verdicts, strict=True)
        },
    }


# Datasets


def record_datasets() -> Record:
    """Return the columns of small datasets: of the embedded model, and of recorded responses."""
    save_prm()
    run_command(
        "fsdpo_data build --model tiny --prm prm --limit 12 --samples 8 --top 2 --out built"
    )
    run_command("fsdpo_data label built --rollouts 2 --out labelled")
    run_command(
        f"fsdpo_data import {FROZEN_RESPONSES} --from outputs --model-name fixed "
        "--prm-name made-up-prm --out imported"
    )
    run_command("fsdpo_data pair imported --top 2 --out paired")
    names = ("built", "labelled", "imported", "paired")
    return {name: describe_dataset(Path(name)) for name in names}


def describe_dataset(folder: Path) -> Record:
    """Return the columns of the tables of a dataset, and the digests of its parquet files."""
    files = sorted(folder.glob("*/*.parquet"))
    return {
        "columns": {
            config: describe_columns(pl.read_parquet(folder / config / "*.parquet"))
            for config in sorted({file.parent.name for file in files})
        },
        "files": {
            file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in files
        },
    }


def describe_columns(table: pl.DataFrame) -> Record:
    """Return the type and the values of each column; a digest stands for values without fractions.

    Rewards are compared as numbers, because their last digits depend on the batches.
    """
    columns: Record = {}
    for column in table:
        values = column.to_list()
        if "Float" not in str(column.dtype):
            text = json.dumps(values, ensure_ascii=False)
            values = hashlib.sha256(text.encode()).hexdigest()
        columns[column.name] = {"type": str(column.dtype), "rows": len(column), "values": values}
    return columns


# Command lines and signatures


def record_commands() -> Record:
    """Return the parameters of each command, with their defaults."""
    commands: Record = {}
    for package in PACKAGES:
        group: Any = get_command(import_module(f"{package}.cli.app").app)
        for name, command in group.commands.items():
            choices = getattr(command, "choices", {})
            commands[f"{package} {name}"] = {
                "hidden": command.hidden,
                "parameters": {
                    max(parameter.opts, key=len): describe_flag(parameter, choices)
                    for parameter in command.params
                },
            }
    return commands


def describe_flag(parameter: Any, choices: Mapping[str, Sequence[Any]]) -> Record:
    """Return what the help states of a parameter, except its text."""
    shown_default = parameter.show_default
    return {
        "flags": [*parameter.opts, *parameter.secondary_opts],
        "values": [*map(str, choices.get(parameter.name, ()))] or parameter.metavar,
        "default": shown_default if isinstance(shown_default, str) else repr(parameter.default),
        "required": parameter.required,
        "repeatable": parameter.nargs == -1 or getattr(parameter, "multiple", False),
    }


def record_signatures() -> Record:
    """Return the signatures of the public functions, and of the methods of public classes."""
    signatures: Record = {}
    for package in PACKAGES:
        module = import_module(package)
        for name in getattr(module, "__all__", dir(module)):
            value = getattr(module, name)
            if callable(value):
                signatures[f"{package}.{name}"] = describe_signature(value)
            if inspect.isclass(value):
                for method, function in public_methods(value):
                    signatures[f"{package}.{name}.{method}"] = describe_signature(function)
    return signatures


def public_methods(owner: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the methods and properties that our packages define."""
    for attribute in inspect.classify_class_attrs(owner):
        is_ours = attribute.defining_class.__module__.partition(".")[0] in PACKAGES
        if not is_ours or attribute.name.startswith("_"):
            continue
        if isinstance(attribute.object, property) and attribute.object.fget:
            yield attribute.name, attribute.object.fget
        elif callable(function := getattr(owner, attribute.name)):
            yield attribute.name, function


def describe_signature(function: Callable[..., Any]) -> dict[str, str]:
    """Return the kind, the annotation and the default of each parameter, and the result."""
    signature = inspect.signature(function)
    parameters = {
        parameter.name: f"{parameter.kind.description}: {format_annotation(parameter.annotation)}"
        + format_default(parameter.default)
        for parameter in signature.parameters.values()
    }
    return parameters | {"return": format_annotation(signature.return_annotation)}


def format_annotation(annotation: Any) -> str:
    """Return the text of a type without modules, which may move."""
    if annotation is inspect.Parameter.empty:
        return "not annotated"
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:[A-Za-z_]\w*\.)+(?=\w)", "", text)


def format_default(default: Any) -> str:
    """Return the text of a default without the addresses of objects."""
    if default is inspect.Parameter.empty:
        return ""
    return f" = {re.sub(r' at 0x[0-9a-f]+', '', repr(default))}"


# Errors


def record_errors() -> Record:
    """Return the exit code and the output of wrong command lines."""
    rows = [{"question": "2+2?", "answer": "4"}, {"question": "3+4?", "answer": "7"}]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    errors: Record = {}
    with patch.dict(os.environ, ENVIRONMENT):
        for line in WRONG_COMMANDS:
            result = run_in_process(shlex.split(line))
            errors[line] = {"code": result.code, "output": result.output}
    return errors
