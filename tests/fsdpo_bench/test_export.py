"""A run's responses as other harnesses write them, and back: the same responses and verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench_runs import written
from fsdpo_bench.cli.app import app
from fsdpo_bench.recorded.outputs import read_outputs
from fsdpo_bench.runs.records import read_records
from typer.testing import CliRunner

from fsdpo_data.core.errors import InputError

TEXTS = (
    (
        "4",
        "stop",
        ["We add.\nThe answer is 4.", "It is 5.", r"So $\boxed{4}$.", "The answer is 9."],
    ),
    (
        r"\frac{1}{2}",
        "stop",
        ["The answer is 0.5.", "one half", r"$\boxed{\frac12}$", "No \u2028 idea."],
    ),
    ("7", "length", ["We add 3 and 7", "The answer is 7", "7", "7 and then"]),
)
FILES = {"lm-eval": "samples_rows.jsonl", "lighteval": "details_rows.parquet"}


def done(*line: object) -> Any:
    made = CliRunner().invoke(app, [str(each) for each in line])
    assert made.exit_code == 0, made.output
    return made


def replayed(file: Path, out: Path) -> list[dict[str, Any]]:
    line = ("run", "--engine", "replay", "--replay", file, "--out", out, "--workers", 1)
    done(*line, "--decoder", "greedy,sc", "--k", 4)
    return list(read_records(out))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    rows = [
        {"question": f"Problem {i}?", "answer": gold, "responses": texts, "finish_reason": ended}
        for i, (gold, ended, texts) in enumerate(TEXTS)
    ]
    replayed(written(tmp_path / "rows.jsonl", rows), tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("form", FILES)
def test_what_is_written_reads_as_it_was(form: str, run: Path, tmp_path: Path) -> None:
    done("export", run, "--to", form, "--decoder", "sc@4", "--out", tmp_path / "out")
    again = replayed(tmp_path / "out" / FILES[form], tmp_path / "again")
    for before, after in zip(read_records(run), again, strict=True):
        assert (before["question"], before["gold"]) == (after["question"], after["gold"])
        for key in ("text", "answer", "status", "finish_reason"):
            assert [each[key] for each in before["samples"]] == [e[key] for e in after["samples"]]
        for name in ("greedy", "sc@4"):
            assert before["decoded"][name]["correct"] == after["decoded"][name]["correct"]


@pytest.mark.parametrize("form", FILES)
def test_the_greedy_solution_and_its_verdict_are_the_first(
    form: str, run: Path, tmp_path: Path
) -> None:
    done("export", run, "--to", form, "--out", tmp_path / "out")
    found = read_outputs(tmp_path / "out" / FILES[form])
    assert [each.response for each in found] == [texts[0] for _, _, texts in TEXTS]
    if form == "lm-eval":
        told = [record["decoded"]["greedy"]["correct"] for record in read_records(run)]
        assert [each.correct for each in found] == told == [True, True, False]
        row = json.loads((tmp_path / "out" / FILES[form]).read_text().splitlines()[0])
        assert row["arguments"]["gen_args_0"]["arg_0"] == "Problem 0?" and row["resps"] == [
            [TEXTS[0][2][0]]
        ]


def test_a_decoder_that_the_run_lacks_is_named(run: Path, tmp_path: Path) -> None:
    line = ["export", str(run), "--to", "lm-eval", "--out", str(tmp_path), "--decoder", "sc@5"]
    with pytest.raises(InputError, match=r"--decoder sc@5: .* has greedy, sc@4. Nearest: sc@4"):
        CliRunner().invoke(app, line, catch_exceptions=False)
