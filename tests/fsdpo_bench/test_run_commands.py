"""Tests of the command lines that benchmark runs store: they create equal runs."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from fsdpo_bench.cli.app import main
from fsdpo_bench.runs.command import run_command
from fsdpo_bench.runs.options import RunOptions
from fsdpo_bench.runs.run import RunSpec
from fsdpo_bench.tasks.table import get_task, select_tasks, suites

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import RELEASE, ModelRef
from fsdpo_data.engines.options import SamplerOptions, ServerOptions
from fsdpo_data.models.prompts import RECORDED_TEMPLATE, get_template

ROWS = [{"question": "2+2?", "answer": "4"}, {"question": "3+4?", "answer": "7"}]
RESPONSES = [
    {"question": "2+2?", "answer": "4", "response": text}
    for text in ("The answer is 4.", "The answer is 5.")
]
PRM = {"name": "org/prm", "revision": "b" * 40, "engine": {"name": "vllm", "dtype": "bfloat16"}}


def write_rows(file: Path, rows: list[dict[str, Any]]) -> str:
    """Write rows as JSON lines, and return the path of the file."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def bench(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run ``fsdpo-bench``, and return its output."""
    code, out, err = run(capsys, *words, main=main)
    assert code == 0, out + err
    return out


def config_of(run_folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((run_folder / "config.json").read_text())
    return config


def card_commands(run_folder: Path) -> list[list[str]]:
    """Return the commands on the card, without the name of the program."""
    text = (run_folder / "README.md").read_text().partition("To repeat the measurement")[2]
    block = text.partition("```bash\n")[2].partition("```")[0].replace(" \\\n", " ")
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    return [words[1:] for words in lines if words]


def spec_of(options: RunOptions, **changes: Any) -> RunSpec:
    fields: dict[str, Any] = {
        "model": ModelRef("org/model", "a" * 40),
        "template": get_template("problem"),
        "sampling": options.sampling,
        "engine": {"name": "vllm", "dtype": "bfloat16"},
        "segmenter": "auto@1",
        "plan": options.plan(),
    }
    return RunSpec(**(fields | changes))


def test_the_commands_of_a_card_create_equal_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benchmarks").mkdir()
    task = write_rows(tmp_path / "benchmarks/sums.jsonl", ROWS)
    line = ["run", "--model", "tiny", "--task", task, "--decoder", "greedy,sc", "--k", "3"]
    local_options = ["--engine", "transformers", "--device", "cpu", "--workers", "1"]
    bench(capsys, *line, "--max-tokens", "24", *local_options, "--out", "first")
    output = bench(capsys, "grade", "first", "--k", "2", "--workers", "1", "--out", "second")
    assert "next: fsdpo-bench inspect second --outcome incorrect\n" in output
    config = config_of(Path("second"))
    [run_line, grade_line] = config["commands"]
    assert [run_line] == config_of(Path("first"))["commands"]
    assert run_line == (
        "fsdpo-bench run --model tiny --engine transformers --max-tokens 24 --task sums.jsonl "
        f"--decoder greedy,sc --k 3 --template problem@1 --segmenter auto@1  # {RELEASE}"
    )
    digest = config_of(Path("first"))["config_digest"]
    assert grade_line == f"fsdpo-bench grade run@{digest} --k 2  # {RELEASE}"
    monkeypatch.chdir(tmp_path / "benchmarks")
    for words in card_commands(tmp_path / "second"):
        bench(capsys, *words, *(("--device", "cpu") if words[0] == "run" else ()))
    assert config_of(Path("runs/grade")) == config
    assert read_results(Path("runs/grade")) == read_results(tmp_path / "second")


def read_results(run_folder: Path) -> dict[str, Any]:
    """Return ``results.json`` without measured times."""
    results: dict[str, Any] = json.loads((run_folder / "results.json").read_text())
    for cost in [
        *results["cost"].values(),
        *(
            decoder["cost"]
            for task in results["tasks"].values()
            for decoder in task["decoders"].values()
        ),
    ]:
        del cost["seconds"]
    return results


def test_the_command_of_recorded_responses_names_no_path(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = write_rows(tmp_path / "responses.jsonl", RESPONSES)
    line = ["run", "--engine", "replay", "--replay", file, "--model-name", "Another 7B"]
    options = ["--decoder", "sc", "--k", "2", "--temperature", "0.6", "--workers", "1"]
    bench(capsys, *line, *options, "--out", "first")
    config = config_of(Path("first"))
    assert config["commands"] == [
        "fsdpo-bench run --engine replay --replay FILE --model-name 'Another 7B' "
        f"--temperature 0.6 --decoder sc --k 2 --segmenter auto@1  # {RELEASE}"
    ]
    card = (tmp_path / "first/README.md").read_text()
    assert "pass its file to `--replay`" in card
    [words] = card_commands(Path("first"))
    bench(capsys, *(file if word == "FILE" else word for word in words))
    assert config_of(Path("runs/run")) == config
    assert read_results(Path("runs/run")) == read_results(tmp_path / "first")


def test_a_command_has_pinned_names_and_only_options_of_the_digest() -> None:
    options = RunOptions(
        model="org/model",
        suite="in-domain",
        task=("GSM-IC2", "/private/own.jsonl"),
        data=Path("/private/data"),
        out=Path("/private/out"),
        limit=20,
        decoder=("sc", "greedy,weighted,sbs"),
        k=(15, 5),
        prm="org/prm",
        prm_format="/private/mine.toml",
        aggregate="mean",
        b2=(1, 3),
        first_keep="b2",
        engine=SamplerOptions(
            engine="openai", server=ServerOptions(base_url="http://secret:8000/v1"), batch_size=3
        ),
        resume=True,
        workers=2,
        as_json=True,
    )
    spec = spec_of(
        options,
        engine={"name": "openai", "dtype": "auto"},
        prm={**PRM, "prm_format": {"name": "mine.toml", "digest": "0"}},
    )
    tasks = select_tasks("in-domain", ["gsm_ic2"])
    assert shlex.join(run_command(options, spec, tasks)) == (
        f"fsdpo-bench run --model org/model@{'a' * 40} --engine openai "
        "--base-url http://HOST:PORT/v1 --task gsm8k --task math --task gsm_ic2 --task own.jsonl "
        "--limit 20 --decoder greedy,sc,weighted,sbs --k 5 --k 15 "
        f"--prm org/prm@{'b' * 40} --prm-format mine.toml --template problem@1 "
        "--segmenter auto@1 --aggregate mean --b2 1 --b2 3 --first-keep b2"
    )


def test_a_command_has_no_options_without_an_effect() -> None:
    unread_options = {"aggregate": "mean", "b1": 3, "b2": (4,), "k": (9,)}
    for name, value in unread_options.items():
        with pytest.raises(InputError, match="the decoder greedy does not read this option"):
            RunOptions(model="org/model", task="gsm8k", **{name: value}).plan()
    options = RunOptions(model="org/model", task="gsm8k")
    words = run_command(options, spec_of(options), [get_task("gsm8k")])
    line = shlex.join(words)
    assert "--task gsm8k --decoder greedy --template" in line
    assert not {"--aggregate", "--b1", "--b2", "--k"} & {*words}


def test_the_command_of_a_run_without_a_task_names_all_benchmarks() -> None:
    options = RunOptions(model="org/model")
    words = run_command(options, spec_of(options), select_tasks(None, None))
    tasks = [value for name, value in pairwise(words) if name == "--task"]
    assert tasks == [*suites()["all"]] and "--suite" not in words


def test_rewards_of_recorded_responses_need_a_template_only_with_a_reward_model() -> None:
    replay = SamplerOptions(engine="replay", replay="responses.jsonl")
    options = RunOptions(engine=replay, decoder="bon", template="alpaca", prm="org/prm")
    fields = {"template": RECORDED_TEMPLATE, "engine": {"name": "replay", "dtype": "auto"}}
    prm = {**PRM, "template": {"name": "alpaca@1", "digest": "0"}}
    line = shlex.join(run_command(options, spec_of(options, **fields, prm=prm), []))
    assert f"--prm org/prm@{'b' * 40} --template alpaca@1 " in line
    recorded = RunOptions(engine=replay, decoder="bon", template="alpaca")
    line = shlex.join(run_command(recorded, spec_of(recorded, **fields, prm=PRM), []))
    assert "--prm" not in line and "--template" not in line


def test_a_run_without_a_stored_command_has_a_card_without_commands(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = write_rows(tmp_path / "responses.jsonl", RESPONSES)
    bench(capsys, "run", "--engine", "replay", "--replay", file, "--workers", "1", "--out", "old")
    config = config_of(Path("old"))
    assert "These commands repeat the run" in Path("old/report.html").read_text()
    assert f"```bash\n# {RELEASE}\nfsdpo-bench run" in Path("old/report.md").read_text()
    del config["commands"]
    Path("old/config.json").write_text(json.dumps(config))
    bench(capsys, "grade", "old", "--workers", "1", "--out", "new")
    assert "commands" not in config_of(Path("new"))
    assert "To repeat the measurement" not in Path("new/README.md").read_text()
    assert "These commands repeat the run" not in Path("new/report.html").read_text()


def test_a_template_file_is_an_option_and_part_of_the_config(tmp_path: Path) -> None:
    file = tmp_path / "my.txt"
    file.write_text("Q: {question}\nA:")
    template = get_template(str(file))
    options = RunOptions(template=str(file))
    spec = spec_of(options, template=template)
    assert spec.config([])["template"] == template.manifest_entry()
    assert "--template my.txt" in shlex.join(run_command(options, spec, []))
