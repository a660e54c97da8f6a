"""Each option of a call is read, or refused.

A mode of a command is a call that leads to one branch of its work. For each mode, the test records
which options the call reads. Every other option gets another value, and must then be read, or be
refused by a message that names it.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
import typer
from bench_runs import write_run
from fsdpo_bench.cli.app import app as bench_app
from option_reads import OptionReads
from random_model import save_random_model, save_random_prm
from reader_inputs import FROZEN, make_prm_benchmarks, make_rows, run_command
from replayed_build import build_line, write_recording
from typer.testing import CliRunner

from fsdpo_data.cli.app import app as data_app
from fsdpo_data.core.command_line import CommandParameter, command_parameters, off_flag
from fsdpo_data.core.options import type_parts
from fsdpo_train.cli.app import app as train_app

pytest.importorskip("torch")

APPS = {"fsdpo-data": data_app, "fsdpo-train": train_app, "fsdpo-bench": bench_app}
#: The options of each command, by program and name.
COMMANDS = {
    (program, name): command.options_class
    for program, app in APPS.items()
    for name, command in typer.main.get_command(app).commands.items()  # type: ignore[attr-defined]
    if hasattr(command, "options_class")
}

POLICY = "--model policy --max-tokens 4 --workers 1"
SAMPLES = f"--problems problems.jsonl --limit 1 --samples 1 --template problem {POLICY}"
RECORDED = "--engine replay --replay recorded.jsonl --workers 1"
REPLAYED = "--engine replay --replay recording/recorded.jsonl --workers 1"
JUDGE = "--judge policy --judge-format judge.toml --max-tokens 4"
PROCESSBENCH = "--prm prm --template problem --processbench processbench.json"
ONE_STEP = "--max-steps 1 --batch-size 2"
#: The smallest call of each mode; NEW is a new path, and ID the id of a problem.
MODES = [
    f"fsdpo-data build --limit 1 --samples 1 --template problem {POLICY} --out NEW",
    f"fsdpo-data build {SAMPLES} --sampler beam --prm prm --b1 2 --max-steps 2 --out NEW",
    f"fsdpo-data build --problems problems.jsonl --samples 4 {RECORDED} --out NEW",
    f"fsdpo-data build --problems pairs --limit 1 --samples 4 {RECORDED} --max-failed 100% "
    "--out NEW",
    f"fsdpo-data build --problems problems.jsonl --samples 4 {RECORDED} --prm prm --out NEW",
    f"fsdpo-data label built --rollouts 2 {POLICY} --out NEW",
    f"fsdpo-data label built --rollouts 4 {REPLAYED} --out NEW",
    f"fsdpo-data label built {JUDGE} --out NEW",
    "fsdpo-data pair built --out NEW",
    f"fsdpo-data pair built --style step-dpo --threshold 1 --continuations 4 {REPLAYED} --out NEW",
    "fsdpo-data score built --prm prm --out NEW",
    "fsdpo-data score built --prm policy --reference policy --out NEW",
    "fsdpo-data select built --mixed --out NEW",
    "fsdpo-data select built --mixed --dry-run",
    "fsdpo-data select built --per-problem 2 --out NEW",
    "fsdpo-data select built --split validation=0.3 --out NEW",
    "fsdpo-data merge shard1 shard2 --out NEW",
    "fsdpo-data decontaminate problems.jsonl --against problems.jsonl",
    "fsdpo-data decontaminate pairs --against problems.jsonl --out NEW",
    "fsdpo-data push pairs org/name --dry-run",
    "fsdpo-data export pairs --to trl-sft --out NEW",
    "fsdpo-data import responses.jsonl --from outputs --workers 1 --out NEW",
    "fsdpo-data import responses.jsonl --from outputs --problems problems.jsonl --workers 1 "
    "--out NEW",
    "fsdpo-data import stepwise/stepwise.jsonl --from trl-stepwise --out NEW",
    "fsdpo-data import stepwise/stepwise.jsonl --from trl-stepwise --out NEW.jsonl",
    "fsdpo-data import stepwise/stepwise.jsonl --from fields --question-field prompt "
    "--steps-field completions --label-field labels --out NEW.jsonl",
    "fsdpo-data grade pairs --workers 1 --out NEW",
    "fsdpo-data grade responses.jsonl --workers 1",
    "fsdpo-data grade responses.jsonl --workers 1 --json",
    "fsdpo-data grade --explain 1/2 0.5",
    "fsdpo-data validate pairs",
    "fsdpo-data agree built:outcome built:rewards",
    "fsdpo-data agree built:outcome built:rewards --calibrate f1",
    "fsdpo-data inspect pairs",
    "fsdpo-data inspect pairs --columns",
    "fsdpo-data inspect pairs --count 0",
    "fsdpo-data inspect built --problem ID",
    "fsdpo-data view pairs --out NEW.html",
    "fsdpo-data diff pairs pairs",
    "fsdpo-data diff pairs pairs --json",
    "fsdpo-data list models",
    "fsdpo-data list templates problem",
    f"fsdpo-bench run --task problems.jsonl {RECORDED} --out NEW",
    f"fsdpo-bench run --task task.toml {RECORDED} --out NEW",
    f"fsdpo-bench run --task problems.jsonl --limit 1 --template problem {POLICY} --out NEW",
    f"fsdpo-bench run --task problems.jsonl --limit 1 --template problem {POLICY} --decoder sbs "
    "--prm prm --b1 2 --max-steps 2 --out NEW",
    "fsdpo-bench merge run1 run2 --out NEW",
    "fsdpo-bench report bench --out NEW",
    "fsdpo-bench report built pairs",
    "fsdpo-bench report pairs --json",
    "fsdpo-bench report imported --disagreements",
    "fsdpo-bench report imported --disagreements --json",
    "fsdpo-bench diff bench bench",
    "fsdpo-bench diff bench bench --json",
    "fsdpo-bench prm pairs",
    "fsdpo-bench prm pairs --prm prm",
    "fsdpo-bench prm pairs --likelihood policy",
    f"fsdpo-bench prm {PROCESSBENCH}",
    f"fsdpo-bench prm {PROCESSBENCH} --tune-on processbench.json",
    "fsdpo-bench prm --prm prm --template problem --prmbench prmbench.jsonl",
    "fsdpo-bench recipe",
    "fsdpo-bench recipe steps.toml --dry-run",
    "fsdpo-bench recipe steps.toml --json",
    "fsdpo-bench recipe steps.toml --results",
]
#: Further modes, with branches that are like those of other modes, and trainings.
LONG_MODES = [
    f"fsdpo-data build --problems problems.jsonl --samples 4 {RECORDED} --shard 1/2 --out NEW",
    f"fsdpo-data label built --rollouts 2 --search first-error {POLICY} --out NEW",
    f"fsdpo-data label built --rollouts 2 --shard 1/2 {POLICY} --out NEW",
    f"fsdpo-data label labelled {JUDGE} --consensus --out NEW",
    "fsdpo-data score built --prm prm --shard 1/2 --out NEW",
    "fsdpo-data select built --sample 2 --out NEW",
    "fsdpo-data select built --reward 0.. --out NEW",
    f"fsdpo-bench run --task problems.jsonl {RECORDED} --shard 1/2 --out NEW",
    f"fsdpo-bench run --task problems.jsonl {RECORDED} --decoder bon --k 4 --prm prm --out NEW",
    "fsdpo-bench diff bench bench --html NEW.html",
    f"fsdpo-bench prm {PROCESSBENCH} --threshold 0.5",
    f"fsdpo-data build {SAMPLES} --out NEW",
    f"fsdpo-train sft sft/sft.jsonl --model policy {ONE_STEP} --out NEW",
    f"fsdpo-train sft sft/sft.jsonl --from-config policy {ONE_STEP} --out NEW",
    "fsdpo-train sft sft/sft.jsonl --model policy --batch-tokens 512 --max-steps 1 --out NEW",
    f"fsdpo-train prm built --model policy {ONE_STEP} --out NEW",
    f"fsdpo-train prm built --model policy --loss pqm {ONE_STEP} --out NEW",
    f"fsdpo-train prm built --model policy --loss implicit {ONE_STEP} --out NEW",
    f"fsdpo-train prm built --model policy --held-out 0 {ONE_STEP} --out NEW",
    f"fsdpo-train prm stepwise/stepwise.jsonl --model policy {ONE_STEP} --out NEW",
    f"fsdpo-train dpo built --model policy {ONE_STEP} --out NEW",
    f"fsdpo-train dpo built --model policy --loss dpo {ONE_STEP} --out NEW",
    f"fsdpo-train dpo built --model policy --shuffle pairs {ONE_STEP} --out NEW",
    f"fsdpo-train dpo built --model policy --no-share-prompt {ONE_STEP} --out NEW",
    f"fsdpo-train dpo built --model policy --batch-pairs 2 {ONE_STEP} --out NEW",
]
#: Values of parameters whose type does not give one that differs from the default.
VALUES = {
    "base_url": "http://127.0.0.1:9/v1",
    "data": "problems.jsonl",
    "engine": "transformers",
    "engine_arg": "max_model_len=64",
    "label_field": "labels",
    "max_failed": "3%",
    "out": "NEW",
    "outcome": "correct",
    "prm": "prm",
    "prm_format": "qwen",
    "reference": "policy",
    "replay": "recorded.jsonl",
    "request_field": "top_k=2",
    "shard": "1/2",
    "split": "test",
    "template_arg": "a=1",
}
#: Settings of the samples. For recorded ones, the call does not read but record them.
RECORDED_SETTINGS = ("temperature", "top_p", "max_tokens")
#: The data decide whether this option has an effect: only if the problems differ.
UNREAD_FOR_SOME_DATA = ("common",)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the inputs of the calls."""
    folder = tmp_path_factory.mktemp("inputs")
    with pytest.MonkeyPatch.context() as patches:
        patches.chdir(folder)
        shutil.copytree(FROZEN, "pairs")
        make_rows(folder)
        make_prm_benchmarks(folder)
        write_run(folder / "bench", {"math": 3, "ocw": 2})
        save_random_prm(folder / "prm", save_random_model(folder / "policy"))
        (folder / "recording").mkdir()
        write_recording(folder / "recording")
        (folder / "judge.toml").write_text(
            'prompt = "{question}\\n{steps}\\nPut the index of the first error into \\\\boxed{}."\n'
            'step = "{i}: {step}"\nread_at = "index"\ntemplate = "problem"\n'
        )
        (folder / "task.toml").write_text(
            'title = "Mine"\ndata = "problems.jsonl"\n'
            'formats = [{ question = ["question"], answer = "answer" }]\n'
        )
        (folder / "steps.toml").write_text(
            'title = "Mine"\nabout = "An example."\n[[stage]]\nname = "models"\n'
            'purpose = "List models."\ncommand = "fsdpo-data list models"\ndone_file = "never"\n'
        )
        build = " ".join(["fsdpo_data", *build_line(Path("recording")), "--workers 1"])
        with patch("fsdpo_data.stages.sample.SHARD_SOLUTIONS", 8):  # several files, for shards
            run_command(f"{build} --prm prm --top 2 --out built")
        run_command(f"fsdpo_data label built --rollouts 4 {REPLAYED} --out labelled")
        run_command("fsdpo_data export built --to trl-stepwise --out stepwise")
        run_command("fsdpo_data export built --to trl-sft --out sft")
        run_command("fsdpo_data import responses.jsonl --from outputs --workers 1 --out imported")
        for index in (1, 2):
            shard = f"--shard {index}/2 --out"
            run_command(f"{build} {shard} shard{index}")
            task = f"--task problems.jsonl {RECORDED}"
            run_command(f"fsdpo_bench run {task} {shard} run{index}")
    return folder


class Call:
    """A call of a command, with the options that it has read.

    Attributes:
        output: The path in place of NEW.
        code: The exit code.
        message: The standard output, and the message of an error.
        reads: The options that the call has read.
    """

    def __init__(self, line: str, folder: Path) -> None:
        self.output = folder / "out" / f"{len(list(folder.glob('out/*'))):04}"
        self.output.mkdir(parents=True)
        problem_id = pl.read_parquet(folder / "built/problems/*.parquet")["problem_id"][0]
        words = shlex.split(line.replace("NEW", f"{self.output}/new").replace("ID", problem_id))
        self.reads = OptionReads()
        with self.reads.record(), patch("sys.argv", words):
            result = CliRunner().invoke(APPS[words[0]], words[1:], env={"COLUMNS": "200"})
        self.code = result.exit_code
        self.message = result.output
        if isinstance(result.exception, Exception):  # `run_app` prints it after `error:`
            self.message += f"error: {result.exception}"


def other_value(parameter: CommandParameter) -> list[str]:
    """Return the words that give a parameter another value than its default."""
    types = [*type_parts(parameter.info.annotation)]
    if bool in types:
        return [off_flag(parameter.flag) if parameter.default else parameter.flag]
    choices = [choice for choice in parameter.choices if choice != parameter.default]
    value: Any = "other"
    if parameter.name in VALUES and VALUES[parameter.name] != parameter.default:
        value = VALUES[parameter.name]
    elif choices:
        value = choices[0]
    elif int in types:
        value = (parameter.default or 2) + 1 if isinstance(parameter.default, int | None) else 3
    elif float in types:
        value = parameter.default / 2 if isinstance(parameter.default, float) else 0.5
    return [str(value)] if parameter.option.positional else [parameter.flag, str(value)]


def check_unread_option(line: str, parameter: CommandParameter, folder: Path) -> str:
    """Give an option that a call does not read another value; return what is wrong, if anything."""
    program, name = line.split()[:2]
    words = other_value(parameter)
    call = Call(f"{line} {shlex.join(words)}", folder)
    if call.code:
        is_named = re.search(rf"{re.escape(words[0])}(?![\w-])", call.message)
        return "" if is_named else f"{words}: {call.message[-300:]}"
    if call.reads.has_read(COMMANDS[program, name], parameter):
        return ""
    if parameter.name in RECORDED_SETTINGS and RECORDED in line:
        texts = [file.read_text() for file in call.output.rglob("config.json")]
        if any(f'"{parameter.name}":{words[1]}' in text.replace(" ", "") for text in texts):
            return ""
    if parameter.name in UNREAD_FOR_SOME_DATA:
        return ""
    return f"{words}: accepted, and not read"


@pytest.mark.parametrize(
    "line", [*MODES, *(pytest.param(line, marks=pytest.mark.proof) for line in LONG_MODES)]
)
def test_every_option_is_read_or_refused(
    line: str, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(inputs)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    call = Call(line, inputs)
    assert call.code == 0, call.message
    options_class = COMMANDS[tuple(line.split()[:2])]  # type: ignore[index]
    unread = [
        parameter
        for parameter in command_parameters(options_class).values()
        if not call.reads.has_read(options_class, parameter)
    ]
    problems = [check_unread_option(line, parameter, inputs) for parameter in unread]
    assert not [*filter(None, problems)]
