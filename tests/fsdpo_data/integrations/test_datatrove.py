"""A datatrove pipeline gives the dataset that ``build --shard`` and ``merge`` give."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import polars as pl
import pytest
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
from in_process import run_in_process
from random_model import save_random_prm

import fsdpo_data as fd
from fsdpo_data.integrations import AnswerGrader, SolutionSampler, StepScorer
from fsdpo_data.integrations.datatrove import MapDocuments, document_row
from fsdpo_data.models.resolve import resolve
from fsdpo_data.problems.embedded.generator import make_problems

TASKS = 4
SAMPLING = fd.SamplingSpec(n=3, max_tokens=48)
#: datatrove starts its tasks from a process with threads, of which Python warns.
pytestmark = pytest.mark.filterwarnings("default")


def run(*command: object) -> None:
    result = run_in_process(["fsdpo_data", *map(str, command)])
    assert result.code == 0, result.output


def write_problems(folder: Path, count: int) -> Path:
    """Write one file with all problems, and one file per task."""
    rows = [
        json.dumps({"question": problem.question, "answer": problem.answer}) + "\n"
        for problem in make_problems("train", count)
    ]
    (folder / "tasks").mkdir(parents=True)
    for task in range(TASKS):
        task_rows = rows[count * task // TASKS : count * (task + 1) // TASKS]
        (folder / f"tasks/{task}.jsonl").write_text("".join(task_rows))
    (folder / "all.jsonl").write_text("".join(rows))
    return folder / "all.jsonl"


def build_shards(problems: Path, out: Path) -> pl.DataFrame:
    """Build the problems in shards; return the solutions of the merged dataset."""
    line = ["build", "--problems", problems, "--samples", SAMPLING.n]
    line += ["--max-tokens", SAMPLING.max_tokens, "--device", "cpu"]
    for task in range(1, TASKS + 1):
        run(*line, "--shard", f"{task}/{TASKS}", "--out", out / f"shards/{task}")
    run("merge", *sorted((out / "shards").iterdir()), "--out", out / "merged")
    return fd.open_dataset(out / "merged").solutions().collect()


@pytest.mark.proof
def test_four_tasks_of_a_datatrove_pipeline_give_the_dataset_of_four_shards(tmp_path: Path) -> None:
    prm = save_random_prm(tmp_path / "prm", Path(resolve("tiny").path))
    problems = write_problems(tmp_path / "problems", 10)
    merged = build_shards(problems, tmp_path)
    LocalPipelineExecutor(
        pipeline=[
            JsonlReader(str(problems.parent / "tasks"), text_key="question"),
            MapDocuments(SolutionSampler("tiny", SAMPLING, device="cpu"), batch_size=2),
            MapDocuments(AnswerGrader()),
            MapDocuments(StepScorer(str(prm), device="cpu")),
            JsonlWriter(str(tmp_path / "rows"), adapter=document_row, compression=None),
        ],
        tasks=TASKS,
        workers=2,
        logging_dir=str(tmp_path / "logs"),
    ).run()
    files = sorted((tmp_path / "rows").glob("*.jsonl"))
    assert len(files) == TASKS
    rows = [orjson.loads(line) for file in files for line in file.read_bytes().splitlines()]
    assert len({row["id"] for row in rows}) == len(rows) == 30
    solutions = merged.rows(named=True)
    for row, solution in zip(rows, solutions, strict=True):
        assert row["steps"] == solution["completions"]
        assert row["outcome"] == solution["outcome"]
        assert row["extracted_answer"] == solution["answer"]
        assert len(row["step_rewards"]) == len(row["steps"])
    scored = fd.open_dataset(tmp_path / "merged").score(
        prm=prm, out=tmp_path / "scored", engine=fd.ScorerOptions(device="cpu")
    )
    assert [row["step_rewards"] for row in rows] == [
        pytest.approx(rewards, abs=1e-5)
        for rewards in scored.solutions().collect()["step_rewards"].to_list()
    ]
    # The rows become a dataset; only the ids differ, because they name the model and the settings.
    run("import", tmp_path / "rows", "--from", "outputs", "--out", tmp_path / "imported")
    imported = fd.open_dataset(tmp_path / "imported").solutions().collect()
    assert imported.drop("solution_id").equals(merged.drop("solution_id"))


def test_a_task_without_documents_loads_no_model() -> None:
    step = MapDocuments(SolutionSampler("no/such-model"))
    assert list(step.run(iter(()))) == []
    assert list(step.run(None)) == []


def test_a_pipeline_names_its_steps() -> None:
    assert str(MapDocuments(AnswerGrader())).endswith("AnswerGrader")
