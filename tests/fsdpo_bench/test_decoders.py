"""Decoders: result names, and a decoder that a plug-in adds."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench_runs import config, make_records, read_rows, write_run
from fakes import Judge, Writer
from fsdpo_bench.cli.app import app
from fsdpo_bench.decode.decoder import Decoder
from fsdpo_bench.decode.decoders import DECODERS, parse_result_name
from fsdpo_bench.decode.plan import make_plan
from fsdpo_bench.report.plots import style_class
from fsdpo_bench.report.render import write_report
from fsdpo_bench.runs.run import BenchJob, RunSpec, decode_tasks, limit_problems
from fsdpo_bench.tasks.load import load_task
from fsdpo_bench.tasks.table import builtin_tasks
from typer.testing import CliRunner

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.plugins import load_plugin
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.engines.beam_search import BeamSpec
from fsdpo_data.models.prompts import get_template

SHORTEST = """
from fsdpo_bench.decode.decoder import Decoder
from fsdpo_bench.decode.decoders import DECODERS


def choose_shortest(candidates):
    lengths = [len(sample.text) for sample in candidates.samples]
    return lengths.index(min(lengths))


DECODERS.register(
    Decoder(
        name="shortest",
        title="the shortest of K samples",
        description="the shortest of K samples",
        suffix="@{k}",
        choose=choose_shortest,
        colour=3,
    )
)
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_plugins: None) -> Iterator[Path]:
    """Load a plug-in with the decoder ``shortest``, for one test."""
    monkeypatch.setattr(DECODERS, "data", dict(DECODERS.items()))
    file = tmp_path / "shortest_plugin.py"
    file.write_text(SHORTEST)
    load_plugin(str(file))
    yield file
    del sys.modules["shortest_plugin"]


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def small_run(out: Path, *decoders: str) -> Path:
    plan = make_plan(decoders, (2, 3), "min", [])
    spec = RunSpec(
        model=Writer.model,
        template=get_template("problem"),
        sampling=SamplingSpec(n=max(1, plan.n_samples)),
        engine={"name": "replay", "dtype": "auto"},
        segmenter="newline@1",
        plan=plan,
    )
    tasks = [limit_problems(load_task(builtin_tasks()["embedded"]), 5)]
    job = BenchJob(spec, tasks, lambda: Writer(0), lambda: Judge(0), workers=1)
    decode_tasks(job, out, progress=LineProgress())
    return out


def test_result_names_are_parsed_as_they_are_written() -> None:
    beams = [BeamSpec(b1=5, b2=1), BeamSpec(b1=15, b2=3)]
    decoders = ["greedy", "first", "sc", "weighted", "bon", "sbs"]
    plan = make_plan([",".join(decoders)], [1, 16], "prod", beams)
    names = ["greedy", "first", "sc@1", "sc@16", "weighted@1:prod", "weighted@16:prod"]
    assert plan.result_names == [*names, "bon@1:prod", "bon@16:prod", "sbs@5,1", "sbs@15,3"]
    assert [parse_result_name(name) for name in plan.result_names] == plan.setups
    assert [DECODERS[name].form for name in decoders] == [
        *("greedy", "first", "sc@K", "weighted@K:AGGREGATE", "bon@K:AGGREGATE", "sbs@B1,B2")
    ]


def test_the_help_describes_every_decoder() -> None:
    text = " ".join(invoke("run", "--help").output.replace("│", " ").split())
    for decoder in DECODERS.values():
        assert f"{decoder.name}: {decoder.description}." in text


def test_names_of_aggregates_may_contain_dots_and_hyphens() -> None:
    setup = parse_result_name("bon@16:top-2.mean")
    assert setup is not None and (setup.k, setup.aggregate) == (16, "top-2.mean")
    assert setup.name == "bon@16:top-2.mean"


@pytest.mark.parametrize(
    "name", ["", "sc", "sc@", "sc@0", "sc@-1", "sc@5:min", "bon@5", "sbs@5", "greedy@1", "first@2"]
)
def test_other_names_are_not_results_of_a_known_decoder(name: str) -> None:
    assert parse_result_name(name) is None
    assert style_class(name) == "c6"


@pytest.mark.parametrize(
    "fields", [{}, {"choose": max}, {"suffix": "@{n}", "choose": max}, {"suffix": "{k}"}]
)
def test_contradictory_decoders_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="decoder 'x'"):
        Decoder(name="x", title="", description="", **fields)


def test_a_decoder_of_a_plugin_is_used_everywhere(plugin: Path, tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", "greedy,shortest")
    rows = read_rows(run)
    for row in rows:
        for k in (2, 3):
            lengths = [len(sample["text"]) for sample in row["samples"][:k]]
            assert row["decoded"][f"shortest@{k}"]["sample"] == lengths.index(min(lengths))
            assert row["cost"][f"shortest@{k}"]["prm_calls"] == 0
    done = invoke("grade", run, "--out", tmp_path / "again", "--k", 3)
    assert done.exit_code == 0, done.output
    for old, new in zip(rows, read_rows(tmp_path / "again"), strict=True):
        assert list(new["decoded"]) == ["greedy", "shortest@3"]
        assert new["decoded"]["shortest@3"] == old["decoded"]["shortest@3"]
        assert new["cost"]["shortest@3"] == old["cost"]["shortest@3"]
    assert "shortest@3" in done.output
    assert '<i class="swatch c3"></i> shortest@3' in (tmp_path / "again/report.html").read_text()
    difference = invoke("diff", run, tmp_path / "again", "--decoder", "shortest@3", "--json")
    [delta] = json.loads(difference.stdout)["deltas"]
    assert (delta["measure_a"], delta["only_a"], delta["only_b"]) == ("shortest@3", 0, 0)


def test_a_run_opens_without_its_plugin_but_is_not_decoded_again(tmp_path: Path) -> None:
    records = make_records({"gsm8k": 3})
    for record in records:
        for field in ("decoded", "cost"):
            record[field]["shortest@4"] = record[field].pop("sc@4")
    run_config = config({"gsm8k": 3})
    run_config["decoders"] = [
        "shortest@4" if name == "sc@4" else name for name in records[0]["cost"]
    ]
    run = write_run(tmp_path / "run", run_config, records)
    results = write_report(run)
    assert "shortest@4" in results.tasks["gsm8k"].decoders
    error = invoke("grade", run, "--out", tmp_path / "again").exception
    assert isinstance(error, InputError)
    assert "decoder = 'shortest@4'" in str(error) and "--plugin" in str(error)
