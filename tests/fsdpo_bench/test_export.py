"""Exports to the formats of lm-eval and lighteval can be read back without loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench_runs import read_rows, written
from fsdpo_bench.cli.app import app
from typer.testing import CliRunner

from fsdpo_data.core.errors import InputError
from fsdpo_data.recorded.outputs import read_outputs

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


def run_command(*line: object) -> Any:
    result = CliRunner().invoke(app, [str(argument) for argument in line])
    assert result.exit_code == 0, result.output
    return result


def replay_responses(file: Path, out: Path) -> list[dict[str, Any]]:
    line = ("run", "--engine", "replay", "--replay", file, "--out", out, "--workers", 1)
    run_command(*line, "--decoder", "greedy,sc", "--k", 4)
    return read_rows(out)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    rows = [
        {"question": f"Problem {i}?", "answer": gold, "responses": texts, "finish_reason": ended}
        for i, (gold, ended, texts) in enumerate(TEXTS)
    ]
    replay_responses(written(tmp_path / "rows.jsonl", rows), tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("form", FILES)
def test_an_export_can_be_replayed_to_the_same_records(
    form: str, run: Path, tmp_path: Path
) -> None:
    run_command("export", run, "--to", form, "--decoder", "sc@4", "--out", tmp_path / "out")
    again = replay_responses(tmp_path / "out" / FILES[form], tmp_path / "again")
    for old_record, new_record in zip(read_rows(run), again, strict=True):
        assert (old_record["question"], old_record["gold"]) == (
            new_record["question"],
            new_record["gold"],
        )
        for key in ("text", "answer", "status", "finish_reason"):
            assert [sample[key] for sample in old_record["samples"]] == [
                e[key] for e in new_record["samples"]
            ]
        for name in ("greedy", "sc@4"):
            assert old_record["decoded"][name]["correct"] == new_record["decoded"][name]["correct"]


@pytest.mark.parametrize("form", FILES)
def test_an_export_without_decoder_contains_the_greedy_solutions(
    form: str, run: Path, tmp_path: Path
) -> None:
    run_command("export", run, "--to", form, "--out", tmp_path / "out")
    recorded = read_outputs(tmp_path / "out" / FILES[form])
    assert [response.response for response in recorded] == [texts[0] for _, _, texts in TEXTS]
    if form == "lm-eval":
        verdicts = [record["decoded"]["greedy"]["correct"] for record in read_rows(run)]
        assert [response.correct for response in recorded] == verdicts == [True, True, False]
        row = json.loads((tmp_path / "out" / FILES[form]).read_text().splitlines()[0])
        assert row["arguments"]["gen_args_0"]["arg_0"] == "Problem 0?" and row["resps"] == [
            [TEXTS[0][2][0]]
        ]


def test_an_unknown_decoder_is_refused(run: Path, tmp_path: Path) -> None:
    line = ["export", str(run), "--to", "lm-eval", "--out", str(tmp_path), "--decoder", "sc@5"]
    with pytest.raises(InputError, match=r"has the decoders greedy, sc@4\. Nearest: sc@4"):
        CliRunner().invoke(app, line, catch_exceptions=False)
