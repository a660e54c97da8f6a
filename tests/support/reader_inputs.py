"""Small files of every kind that a command reads."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from bench_runs import write_run, written
from fsdpo_bench.prm.prmbench import ALTERATIONS
from fsdpo_bench.report.published import shipped_path
from helpers import RIGHT, SILENT, WRONG
from in_process import run_in_process
from recorded_rows import EXAMPLES
from step_label_rows import MADE_UP

from fsdpo_data.exchange.formats import export_formats, step_label_formats
from fsdpo_data.models.resolve import resolve

FROZEN = Path(__file__).parents[1] / "data/frozen/1.0"
_THREE_STEPS = (
    "--model tiny --max-steps 3 --save-every 1 --save-limit 3 --batch-size 1 --grad-accum 1"
)
#: Trainings of three steps that can be resumed after each, by method.
TRAININGS = {
    "sft": f"fsdpo_train sft {_THREE_STEPS}",
    "prm": f"fsdpo_train prm {_THREE_STEPS}",
    "dpo": f"fsdpo_train dpo {_THREE_STEPS}",
}
#: A chat template with the usual elements: roles, a loop, a condition.
CHAT_TEMPLATE = """{% for message in messages %}<|{{ message.role }}|>{{ message.content }}
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""
TEXTS = (RIGHT, WRONG, SILENT, RIGHT)
QUANTIZATION = {
    "quant_method": "bitsandbytes",
    "load_in_4bit": True,
    "bnb_4bit_compute_dtype": "bfloat16",
    "bnb_4bit_quant_type": "nf4",
    "bits": 4,
    "group_size": 128,
}
BENCHMARK = """
title = "Mine"
data = "PROBLEMS"
formats = [{ question = ["question"], answer = "answer", gold = "text" }]
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
RECIPE = """
name = "{size}"
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
command = "fsdpo-data build --samples {samples} {options} --out runs/mine"
done_file = "runs/mine/manifest.json"
gpus = 1
work = { kind = "generate", sequences = 16, tokens = 100, parameters = 1.5 }
"""
PRM_FORMAT = """
layout = "text"
prompt = "{question}\\n"
step = "Step {k}: {step}"
strip = "space"
step_token = "\\n"
head = "vocabulary"
label_tokens = ["1", "2"]
positive = [0]
beta = 0.05
token_offset = 0
"""


def step_label_file(name: str) -> str:
    """Return the path of the rows of a format of step labels, below the folder of the inputs."""
    suffix = Path(export_formats()[name].file_name).suffix if name in export_formats() else ".jsonl"
    return f"step-labels/{name}{suffix}"


def make_data_inputs(folder: Path) -> None:
    """Make datasets, rows, runs and definitions; no model is loaded."""
    shutil.copytree(FROZEN, folder / "pairs")
    make_rows(folder)
    _make_step_labels(folder)
    _make_runs(folder)
    benchmark = BENCHMARK.replace("PROBLEMS", str(folder / "problems.jsonl"))
    (folder / "benchmark.toml").write_text(benchmark)
    (folder / "recipe.toml").write_text(RECIPE)
    (folder / "format.toml").write_text(PRM_FORMAT)
    shutil.copyfile(shipped_path("recipes/embedded.toml"), folder / "embedded.toml")


def make_rows(folder: Path) -> None:
    """Write problems and recorded responses in every format."""
    _make_problems(folder)
    _make_responses(folder)


def _make_problems(folder: Path) -> None:
    """Write problems in every format of files."""
    questions = [f"What is 20 + 22, asked for the {number}th time?" for number in range(4)]
    problems = [{"question": text, "answer": "42", "level": 1.0} for text in questions]
    written(folder / "problems.jsonl", problems)
    (folder / "problems.json").write_text(json.dumps(problems, indent=1))
    pl.DataFrame(problems).write_parquet(folder / "problems.parquet")
    with (folder / "problems.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(problems[0]))
        writer.writeheader()
        writer.writerows(problems)


def _make_responses(folder: Path) -> None:
    """Write recorded responses in every format, and the template of their prompts."""
    template = resolve("tiny").template
    (folder / "template.txt").write_text(template.text)
    problems = json.loads((folder / "problems.json").read_text())
    questions = [problem["question"] for problem in problems]
    completions = [
        {"text": text, "finish_reason": "stop", "n_tokens": 9, "seconds": 0.1, "reasoning": "So."}
        for text in TEXTS
    ]
    rows: Mapping[str, Sequence[Mapping[str, Any]]] = {
        "recorded": [
            {"prompt": template.render(text), "completions": completions} for text in questions
        ],
        "responses": [
            {"question": text, "gt": "42", "code": TEXTS, "score": [True, False, False, True]}
            for text in questions
        ],
        "requests": [
            {"custom_id": str(number), "body": {"messages": [{"role": "user", "content": text}]}}
            for number, text in enumerate(questions)
        ],
        "batch": [_batch_row(number) for number in range(len(questions))],
    }
    for name, items in rows.items():
        written(folder / f"{name}.jsonl", items)
    (folder / "outputs").mkdir()
    for name, (items, _, _) in EXAMPLES.items():
        written(folder / f"outputs/{name}.jsonl", items)


def _batch_row(number: int) -> dict[str, Any]:
    choices = [{"message": {"content": RIGHT}, "finish_reason": "stop"}]
    body = {"model": "tiny", "choices": choices, "usage": {"completion_tokens": 9}}
    return {"custom_id": str(number), "response": {"body": body}}


def _make_step_labels(folder: Path) -> None:
    """Write a file in each format of step labels."""
    (folder / "step-labels").mkdir()
    for name in step_label_formats():
        if name in export_formats():
            out = folder / "formats" / name
            run_command(f"fsdpo_data export {folder}/pairs --to {name} --out {out}")
            shutil.copyfile(out / export_formats()[name].file_name, folder / step_label_file(name))
    for name, row, _ in MADE_UP:
        with (folder / step_label_file(name)).open("a") as lines:
            lines.write(json.dumps(row) + "\n")


def _make_runs(folder: Path) -> None:
    """Make an unsealed build, two shards of a build, and a run of two benchmarks."""
    build = (
        f"fsdpo_data build --problems {folder}/problems.jsonl --samples 4 --workers 1 "
        f"--engine replay --replay {folder}/recorded.jsonl"
    )
    run_command(f"{build} --out {folder}/unsealed")
    (folder / "unsealed/manifest.json").unlink()
    for index in (1, 2):
        run_command(f"{build} --shard {index}/2 --out {folder}/shard{index}")
    tasks = {"math": 3, "ocw": 2}
    write_run(folder / "bench", tasks)
    run_command(f"fsdpo_bench report {folder}/bench")


def make_model_inputs(folder: Path) -> None:
    """Make checkpoints, interrupted trainings, and benchmarks of reward models."""
    from preference_data import preference_rows
    from random_model import save_random_model, save_random_prm

    policy = save_random_model(folder / "policy")
    (policy / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    quantized = shutil.copytree(policy, folder / "quantized")
    model_config = json.loads((quantized / "config.json").read_text())
    model_config["quantization_config"] = QUANTIZATION
    (quantized / "config.json").write_text(json.dumps(model_config))
    save_random_prm(folder / "prm", policy)
    make_prm_benchmarks(folder)
    for method, name in (("sft", "trl-sft"), ("prm", "trl-stepwise")):
        rows = folder / "training-rows" / name
        run_command(f"fsdpo_data export {folder}/pairs --to {name} --out {rows}")
        shutil.copyfile(rows / export_formats()[name].file_name, folder / f"{method}.jsonl")
    written(folder / "dpo.jsonl", preference_rows())
    for method in TRAININGS:
        _make_interrupted_training(method, folder)


def make_prm_benchmarks(folder: Path) -> None:
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
    written(folder / "prmbench.jsonl", prmbench)


def _make_interrupted_training(method: str, folder: Path) -> None:
    """Train three steps, and delete the result and the checkpoint of the third step."""
    run_folder = folder / "trained" / method
    run_command(f"{TRAININGS[method]} {folder}/{method}.jsonl --out {run_folder}")
    shutil.rmtree(run_folder / "checkpoints/checkpoint-3")
    for file in run_folder.glob("*"):
        if file.is_file() and file.name not in (f"{method}.json", ".lock"):
            file.unlink()


def run_command(command: str) -> None:
    """Run a command that must succeed."""
    result = run_in_process(command.split())
    assert result.code == 0, (command, result.output)
