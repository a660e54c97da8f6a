"""Run directories of the benchmark without a model: synthetic ones, and one of real outputs."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fsdpo_bench.decode.records import ProblemRecord, record_validator
from fsdpo_bench.results.result_types import Results
from fsdpo_bench.results.summary import summarise
from fsdpo_bench.runs.records import RunConfig, read_records

from fsdpo_data.answers import GradingRequest
from fsdpo_data.answers.grader import GRADER_NAME, MathGrader
from fsdpo_data.core.jsonl_log import encode_line
from fsdpo_data.steps.segment import split_auto

DECODERS = ("greedy", "sc@2", "sc@4", "bon@4:min", "sbs@2,1")
QWEN = Path(__file__).parents[3] / "shared/data/outputs/qwen_math_cot/math_cot_100.jsonl"

#: Text that would end a script, a style or a comment if it were put into a page as it is.
HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    "<!-- ${7*7} {{ 7*7 }} \u2028 \u0000 &lt; ]]> '\"`\n"
)


def written(file: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows as JSON lines; return the file."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def sample(
    answer: str | None,
    right: bool,
    rng: random.Random,
    text: str = "",
    rewards: bool = True,
    steps: Sequence[str] = (),
) -> dict[str, Any]:
    steps = list(steps) or ["We add.\n", f"{text}The answer is {answer}."]
    centre = 0.75 if right else 0.35
    return {
        "text": "".join(steps),
        "steps": steps,
        "finish_reason": "stop",
        "n_tokens": 20 + rng.randrange(30),
        "seconds": 0.01,
        "answer": answer,
        "correct": right,
        "status": "no_answer" if answer is None else "correct" if right else "incorrect",
        "rule": "none" if answer is None else "answer-is/number",
        "rewards": [min(1.0, max(0.0, rng.gauss(centre, 0.2))) for _ in steps] if rewards else None,
    }


def verdict(chosen: Mapping[str, Any], index: int | None) -> dict[str, Any]:
    """Return a decoder's entry for one of the samples, or for a solution of its own."""
    verdict_fields = {name: chosen[name] for name in ("answer", "correct", "status", "rule")}
    return (
        {**verdict_fields, "sample": index}
        if index is not None
        else {**verdict_fields, "solution": dict(chosen)}
    )


def record(
    task: str, number: int, chance: float, rng: random.Random, text: str = "", samples: int = 4
) -> dict[str, Any]:
    gold = str(10 + number)
    is_right = [rng.random() < chance for _ in range(samples + 2)]
    all_samples = [sample(gold if right else "7", right, rng, text) for right in is_right]
    greedy, beam, drawn_samples = all_samples[0], all_samples[1], all_samples[2:]
    best = max(range(samples), key=lambda i: min(drawn_samples[i]["rewards"]))
    chosen = {
        "greedy": verdict(greedy, None),
        "sc@2": verdict(drawn_samples[0], 0),
        "sc@4": verdict(drawn_samples[best], best),
        "bon@4:min": verdict(drawn_samples[best], best),
        "sbs@2,1": verdict(beam, None),
    }
    tokens = {"greedy": 30, "sc@2": 60, "sc@4": 120, "bon@4:min": 120, "sbs@2,1": 90}
    return {
        "task": task,
        "problem_id": f"{task}{number:04}",
        "row": number,
        "question": f"{text}What is {number} + 10?",
        "gold": gold,
        "metadata": {},
        "prompt": f"Question: {text}What is {number} + 10?\n",
        "samples": drawn_samples,
        "decoded": chosen,
        "cost": {
            name: {"tokens": n, "prm_calls": 4 if "@" in name else 0, "seconds": n / 100}
            for name, n in tokens.items()
        },
    }


def config(tasks: Mapping[str, int], model: str = "Qwen2-7B-SFT") -> dict[str, Any]:
    return {
        "config_digest": "0123456789abcdef0123",
        "kind": "bench",
        "version": 1,
        "model": {"name": model, "revision": "a" * 40},
        "template": {"name": "alpaca@1", "digest": "feedbeef"},
        "sampling": {
            **{"n": 4, "temperature": 0.8, "top_p": 1.0, "max_tokens": 1024, "seed": 0},
            "stop": [],
        },
        "engine": {"name": "replay", "dtype": "auto"},
        "segmenter": "auto@1",
        "grader": GRADER_NAME,
        "prm": {"name": "prm", "revision": "sha256:" + "b" * 64},
        "decoders": list(DECODERS),
        "beam": None,
        "tasks": {
            name: {
                "title": name.upper(),
                "version": 1,
                "digest": "d" * 20,
                "rows": problems + 3,
                "problems": problems,
                "tolerance": 0.01 if name == "ocw" else None,
                "source": {"name": name, "revision": "c" * 40, "split": "test"},
            }
            for name, problems in tasks.items()
        },
    }


def make_records(
    tasks: Mapping[str, int], chance: float = 0.6, seed: int = 0, text: str = "", samples: int = 4
) -> list[dict[str, Any]]:
    """Invent records: MATH with subjects and levels, OCW with tolerance, GSM-IC with clusters."""
    rng, records = random.Random(seed), []
    for task, problems in tasks.items():
        for number in range(problems):
            problem_record = record(task, number, chance, rng, text, samples)
            if task == "math":
                problem_record["metadata"] = {
                    "subject": ("Algebra", "Geometry")[number % 2],
                    "level": str(1 + number % 5),
                }
            if task.startswith("gsm_ic"):
                problem_record["metadata"] = {"cluster": f"base {number % 7}"}
            if task == "ocw":
                for entry in [*problem_record["samples"], *problem_record["decoded"].values()]:
                    entry["strict"] = entry["correct"] and number % 3 != 0
            records.append(problem_record)
    return records


def typed_records(rows: Sequence[Mapping[str, Any]]) -> list[ProblemRecord]:
    """Return the records of JSON objects, as a run reads them."""
    return [record_validator().validate_json(encode_line(row), strict=True) for row in rows]


def make_results(rows: Sequence[Mapping[str, Any]], run_config: Mapping[str, Any]) -> Results:
    """Return the results of JSON objects, as a run with this config has them."""
    return summarise(typed_records(rows), RunConfig.model_validate(run_config))


def read_rows(run: Path) -> list[dict[str, Any]]:
    """Return the records of a run as JSON objects."""
    return [json.loads(encode_line(record.to_json())) for record in read_records(run)]


def write_run(out: Path, config: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> Path:
    (out / "records").mkdir(parents=True)
    (out / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for task in config["tasks"]:
        lines = [json.dumps(item) + "\n" for item in records if item["task"] == task]
        (out / "records" / f"{task}.jsonl").write_text("".join(lines), encoding="utf-8")
    return out


def qwen_run(out: Path, problems: int = 100) -> Path:
    """Make a run of 100 MATH problems x 8 recorded solutions; one real score per solution."""
    records = []
    grader = MathGrader()
    for line in QWEN.read_text(encoding="utf-8").splitlines()[:problems]:
        row = json.loads(line)
        verdicts = grader.grade([GradingRequest(row["gt"], response) for response in row["code"]])
        samples = []
        for text, grade, [score] in zip(row["code"], verdicts, row["pred_score"], strict=True):
            steps = split_auto(text)
            samples.append(
                {
                    "text": text,
                    "steps": steps,
                    "finish_reason": "stop",
                    "n_tokens": len(text) // 4,
                    "seconds": 0.0,
                    "answer": grade.answer,
                    "correct": grade.status == "correct",
                    "status": grade.status,
                    "rule": grade.rule,
                    "rewards": [1 / (1 + 2.718281828**-score)] * len(steps),
                }
            )
        best = max(range(8), key=lambda i: samples[i]["rewards"][0])
        records.append(
            {
                "task": "math",
                "problem_id": f"math{row['idx']}",
                "row": len(records),
                "question": row["question"],
                "gold": row["gt"],
                "metadata": {"level": row["level"].removeprefix("Level ")},
                "prompt": row["query"],
                "samples": samples,
                "decoded": {
                    "first": verdict(samples[0], 0),
                    "bon@8:min": verdict(samples[best], best),
                },
                "cost": {},
            }
        )
    return write_run(out, config({"math": problems}, "qwen"), records)
