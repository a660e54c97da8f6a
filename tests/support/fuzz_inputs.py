"""Small inputs of every kind of file, which `fuzz_harness.py` changes."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from bench_runs import config, make_records, write_run
from fsdpo_bench.prm.prmbench import ALTERATIONS
from fsdpo_bench.results.published import shipped_path
from fuzz_readers import EXPORTED_STEP_FORMATS, TRAINING_METHODS, resume_arguments
from helpers import RIGHT, SILENT, WRONG
from in_process import run_in_process
from paired_data import paired_dataset
from step_label_rows import MADE_UP

from fsdpo_data.exchange.formats import FORMATS
from fsdpo_data.models.resolve import resolve

#: A chat template with the usual elements: roles, a loop, a condition.
CHAT_TEMPLATE = """{% for message in messages %}<|{{ message.role }}|>{{ message.content }}
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""
_TEXTS = (RIGHT, WRONG, SILENT, RIGHT)
_QUANTIZATION = {
    "quant_method": "bitsandbytes",
    "load_in_4bit": True,
    "bnb_4bit_compute_dtype": "bfloat16",
    "bnb_4bit_quant_type": "nf4",
    "bits": 4,
    "group_size": 128,
}
_BENCHMARK = """
title = "Mine"
data = "{problems}"
formats = [{{ question = ["question"], answer = "answer", gold = "text" }}]
groups.level = ["level"]
tolerance = 0.01
metric = "maj@4"
count = 4
version = 2
remove_text = ["asked"]

[[note]]
id = "72e711d1c9f5d3add97d"
reason = "the box holds a part of the answer"
gold = "42"
alternative_golds = ["43"]
"""
_RECIPE = """
name = "{{size}}"
title = "Mine"
about = "An example."

[values]
options = "--limit 4"

[[for.size]]
size = "small"
samples = 4

[[stage]]
name = "samples"
purpose = "Sample solutions."
command = "fsdpo-data build --samples {{samples}} {{options}} --out runs/mine"
done_file = "runs/mine/manifest.json"
gpus = 1
work = {{ kind = "generate", sequences = 16, tokens = 100, parameters = 1.5 }}
"""
_PRM_FORMAT = """
layout = "text"
prompt = "{{question}}\\n"
step = "Step {{k}}: {{step}}"
strip = "space"
step_token = "\\n"
head = "vocabulary"
label_tokens = ["1", "2"]
positive = [0]
beta = 0.05
token_offset = 0
"""


def make_data_inputs(folder: Path) -> None:
    """Make datasets, rows, runs and definitions; no model is loaded."""
    paired_dataset(folder / "made", problems=4)
    (folder / "made/pairs").rename(folder / "pairs")
    _make_rows(folder)
    for name in FORMATS:
        out = folder / "formats" / name
        _run("fsdpo_data", "export", folder / "pairs", "--to", name, "--out", out)
    _make_step_labels(folder)
    _make_prm_benchmarks(folder)
    _make_runs(folder)
    for name, text in (("benchmark", _BENCHMARK), ("recipe", _RECIPE), ("format", _PRM_FORMAT)):
        content = text.format(problems=folder / "problems.jsonl")
        (folder / f"{name}.toml").write_text(content)
    for name in ("paper", "prm-curve"):
        shutil.copyfile(shipped_path(f"recipes/{name}.toml"), folder / f"{name}.toml")


def _make_step_labels(folder: Path) -> None:
    """Write a file in each format of step labels, which is named after its format."""
    step_labels = folder / "step-labels"
    step_labels.mkdir()
    for name in (*EXPORTED_STEP_FORMATS, "step-dpo-10k"):
        file = next((folder / "formats" / name).glob("*.json*"))
        shutil.copyfile(file, step_labels / f"{name}{file.suffix}")
    for name, row, _ in MADE_UP:
        with (step_labels / f"{name}.jsonl").open("a") as lines:
            lines.write(json.dumps(row) + "\n")


def _make_prm_benchmarks(folder: Path) -> None:
    """Write files in the formats of ProcessBench and PRMBench."""
    steps = ["Step 1: 20 + 22 = 42.", "Step 2: So it is 42."]
    processbench = [
        {"id": f"gsm8k-{number}", "problem": "20 + 22?", "steps": steps, "label": number % 3 - 1}
        for number in range(12)
    ]
    (folder / "processbench.json").write_text(json.dumps(processbench))
    prmbench = [
        {
            "idx": f"{alteration}_{number}",
            "classification": alteration,
            "original_question": "20 + 22?",
            "original_process": steps,
            "modified_question": "20 + 23?",
            "modified_process": [*steps, "Step 3: Done."],
            "error_steps": [2, 3],
        }
        for alteration in ALTERATIONS
        for number in range(2)
    ]
    _write_rows(folder / "prmbench.jsonl", prmbench)


def _make_rows(folder: Path) -> None:
    """Write problems in every format, recorded responses to them, and a prompt template."""
    template = resolve("tiny").template
    (folder / "template.txt").write_text(template.text)
    questions = [f"What is 20 + 22, asked for the {number}th time?" for number in range(4)]
    problems = [{"question": text, "answer": "42", "level": 1.0} for text in questions]
    completions = [
        {"text": text, "finish_reason": "stop", "n_tokens": 9, "seconds": 0.1, "reasoning": "So."}
        for text in _TEXTS
    ]
    rows: dict[str, Sequence[Mapping[str, Any]]] = {
        "problems": problems,
        "recorded": [
            {"prompt": template.render(text), "completions": completions} for text in questions
        ],
        "responses": [
            {"question": text, "gt": "42", "code": _TEXTS, "score": [True, False, False, True]}
            for text in questions
        ],
        "plain": [
            {"question": text, "answer": "42", "responses": _TEXTS, "n_tokens": [9] * 4}
            for text in questions
        ],
        "requests": [
            {"custom_id": str(number), "body": {"messages": [{"role": "user", "content": text}]}}
            for number, text in enumerate(questions)
        ],
        "batch": [_batch_row(number) for number in range(len(questions))],
        "lm-eval": [_lm_eval_row(number, text) for number, text in enumerate(questions)],
    }
    for name, items in rows.items():
        _write_rows(folder / f"{name}.jsonl", items)
    (folder / "problems.json").write_text(json.dumps(problems, indent=1))
    pl.DataFrame(problems).write_parquet(folder / "problems.parquet")
    with (folder / "problems.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(problems[0]))
        writer.writeheader()
        writer.writerows(problems)


def _batch_row(number: int) -> dict[str, Any]:
    choices = [{"message": {"content": text}, "finish_reason": "stop"} for text in _TEXTS[:1]]
    body = {"model": "tiny", "choices": choices, "usage": {"completion_tokens": 9}}
    return {"custom_id": str(number), "response": {"body": body}}


def _lm_eval_row(number: int, question: str) -> dict[str, Any]:
    """Return a row that lm-evaluation-harness writes with ``--log_samples``."""
    return {
        "doc_id": number,
        "doc": {"question": question, "answer": "#### 42"},
        "target": "20 + 22 = 42\n#### 42",
        "arguments": {"gen_args_0": {"arg_0": question, "arg_1": {"until": ["</s>"]}}},
        "resps": [_TEXTS],
        "filtered_resps": ["42"],
        "filter": "strict-match",
        "metrics": ["exact_match"],
        "exact_match": 1.0,
    }


def _write_rows(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write JSON lines."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _make_runs(folder: Path) -> None:
    """Make an unsealed build, two shards of a build, and a run of two benchmarks."""
    build = ["build", "--problems", folder / "problems.jsonl", "--samples", 4, "--engine", "replay"]
    build += ["--replay", folder / "recorded.jsonl", "--workers", 1]
    _run("fsdpo_data", *build, "--out", folder / "unsealed")
    (folder / "unsealed/manifest.json").unlink()
    for index in (1, 2):
        part = ["--shard", f"{index}/2", "--out", folder / f"part{index}"]
        _run("fsdpo_data", *build, *part)
    tasks = {"math": 3, "ocw": 2}
    write_run(folder / "bench", config(tasks), make_records(tasks))
    _run("fsdpo_bench", "report", folder / "bench")


def make_model_inputs(folder: Path) -> None:
    """Make a policy with a chat template, and a reward model."""
    from random_model import save_random_prm
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    policy = shutil.copytree(resolve("tiny").path, folder / "policy")
    (policy / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    quantized = shutil.copytree(policy, folder / "quantized")
    model_config = json.loads((quantized / "config.json").read_text())
    model_config["quantization_config"] = _QUANTIZATION
    (quantized / "config.json").write_text(json.dumps(model_config))
    save_random_prm(folder / "prm", Path(resolve("tiny").path))
    for method in TRAINING_METHODS:
        _make_interrupted_training(method, folder)


def _make_interrupted_training(method: str, folder: Path) -> None:
    """Train three steps, and delete the result and the checkpoint of the third step."""
    run_folder = folder / "trained" / method
    arguments = resume_arguments(method, folder, run_folder)
    _run(*(argument for argument in arguments if argument != "--resume"))
    shutil.rmtree(run_folder / "checkpoints" / "checkpoint-3")
    for file in run_folder.glob("*"):
        if file.is_file() and file.name not in (f"{method}.json", ".lock"):
            file.unlink()


def _run(*command: object) -> None:
    """Run a command that must succeed."""
    result = run_in_process([str(word) for word in command])
    assert result.code == 0, (command, result.output)
