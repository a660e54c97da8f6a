"""Builds from recorded completions: sealed bytes, statistics, resumption, other readers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from command_line import run
from fakes import sample_all
from hashes import hashes
from helpers import (
    RIGHT,
    SILENT,
    TEXTS,
    WRONG,
    fixed_sampler,
    pair_statistics_of,
    problem_set,
    sample_settings,
    small_build,
    stage_counts,
    stage_options,
    statistics_of,
)
from pair_files import Rewards

from fsdpo_data.core import files
from fsdpo_data.core.errors import RunMismatchError, StoreError
from fsdpo_data.core.identity import file_sha256
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.core.statistics import Mean, wilson_interval
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.dataset.run_directory import COMPLETIONS_FILE, MANIFEST_FILE
from fsdpo_data.dataset.validate import validate
from fsdpo_data.models.prompts import get_template
from fsdpo_data.pairs.best_worst import PairSpec
from fsdpo_data.stages.pair import PairStage


def test_contents_of_a_build(tmp_path: Path) -> None:
    small_build(tmp_path / "run")
    statistics = statistics_of(tmp_path / "run")
    assert statistics.manifest.rows == (3, 12, 0)
    assert statistics.solutions.outcomes == {"correct": 3, "incorrect": 6, "no_answer": 3}
    assert statistics.solutions.labels == {"steps": 15, "negative": 9, "positive": 6}
    assert statistics.solutions.accuracy.n == 12
    assert statistics.solutions.pass_at_k.value == 1
    assert statistics.distinct_solutions == 12
    rows = pl.read_parquet(tmp_path / "run/solutions/*.parquet").to_dicts()
    assert ["".join(row["completions"]) for row in rows[:4]] == list(TEXTS)
    assert [row["labels"] for row in rows[:4]] == [[True] * 2, [False] * 2, [False], []]
    assert [row["answer"] for row in rows[:4]] == ["42", "43", SILENT, None]
    assert len({row["solution_id"] for row in rows}) == 12


def test_problems_with_an_unreadable_gold_are_not_labelled(tmp_path: Path) -> None:
    small_build(tmp_path / "run", problem_set(answer="   "))
    statistics = statistics_of(tmp_path / "run").solutions
    assert statistics.outcomes == {"gold_unparsed": 12}
    assert statistics.labels == {"steps": 15, "unlabelled": 15}
    assert statistics.accuracy == Mean(value=None, n=0, ci95=None, clusters=None)
    assert pl.read_parquet(tmp_path / "run/solutions/*.parquet")["labels"].is_null().all()


def test_sample_ids_do_not_depend_on_the_number_of_samples(tmp_path: Path) -> None:
    source = problem_set(1)
    ids = []
    for n in (2, 4):
        small_build(tmp_path / str(n), source, sampling=sample_settings(n=n))
        frame = pl.read_parquet(tmp_path / str(n) / "solutions/*.parquet")
        ids.append(frame["solution_id"].to_list())
    assert ids[1][:2] == ids[0]


def test_a_build_resumed_at_any_byte_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    small_build(tmp_path / "whole", batch_size=1)
    log_bytes = (tmp_path / "whole" / COMPLETIONS_FILE).read_bytes()
    for cut in (0, 1, len(log_bytes) // 2, len(log_bytes) - 1):
        run = tmp_path / f"cut{cut}"
        small_build(run, batch_size=1)
        (run / MANIFEST_FILE).unlink()
        (run / COMPLETIONS_FILE).write_bytes(log_bytes[:cut])
        (run / "solutions" / "train-00000-of-00001.parquet.tmp").write_bytes(b"half")
        small_build(run, batch_size=2, resume=True)
        assert hashes(run) == hashes(tmp_path / "whole")


def test_a_sealed_run_is_not_sampled_again(tmp_path: Path) -> None:
    first = small_build(tmp_path / "run")
    old_hashes = hashes(tmp_path / "run")
    again = small_build(tmp_path / "run", resume=True, make_sampler=lambda: pytest.fail("sampled"))
    assert again == first and hashes(tmp_path / "run") == old_hashes


def test_another_temperature_is_refused(tmp_path: Path) -> None:
    small_build(tmp_path / "run", sampling=sample_settings(temperature=0.8))
    with pytest.raises(RunMismatchError, match=r"sampling\.temperature: 0\.8 in the run, 0\.5 now"):
        small_build(tmp_path / "run", sampling=sample_settings(temperature=0.5), resume=True)


def test_workers_write_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsdpo_data.stages.sample.SHARD_SOLUTIONS", 8)
    small_build(tmp_path / "one", problem_set(7))
    monkeypatch.setattr("fsdpo_data.stages.write_solutions.MIN_BYTES_FOR_POOL", 0)
    small_build(tmp_path / "two", problem_set(7), workers=2)
    assert len(list((tmp_path / "one/solutions").iterdir())) == 4
    assert hashes(tmp_path / "one") == hashes(tmp_path / "two")


def test_a_disk_that_fails_while_sealing_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = files.write_atomic

    def full(path: Path, data: bytes) -> None:
        if path.suffix == ".parquet":
            raise OSError(28, "No space left on device")
        write(path, data)

    small_build(tmp_path / "good")
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_atomic", full)
        with pytest.raises(StoreError, match="the disk is full; free some space"):
            small_build(tmp_path / "run")
    assert not (tmp_path / "run" / MANIFEST_FILE).exists()
    small_build(tmp_path / "run", resume=True, make_sampler=lambda: pytest.fail("sampled again"))
    assert hashes(tmp_path / "run") == hashes(tmp_path / "good")


def test_other_libraries_read_the_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    import pandas as pd

    small_build(tmp_path / "run")
    cache = str(tmp_path / "cache")
    loaded = datasets.load_dataset(str(tmp_path / "run"), "solutions", cache_dir=cache)["train"]
    assert loaded.num_rows == 12
    assert loaded.features["completions"] == datasets.List(datasets.Value("string"))
    assert loaded.features["labels"] == datasets.List(datasets.Value("bool"))
    assert loaded[0]["completions"] == [
        "Step 1: 20 + 22 = 42.\n",
        "Step 2: So it is 42. The answer is: 42",
    ]
    problems = datasets.load_dataset(
        str(tmp_path / "run"), "problems", split="train", streaming=True, cache_dir=cache
    )
    assert [row["answer"] for row in problems] == ["42"] * 3
    assert len(pd.read_parquet(tmp_path / "run/solutions")) == 12


def test_quarantined_rows_are_written_and_counted(tmp_path: Path) -> None:
    from dataclasses import replace

    from fsdpo_data.problems.load import QuarantinedRow

    rows = [QuarantinedRow("x.jsonl", 3, "no answer", '{"question": "?"}')]
    manifest = small_build(tmp_path / "run", replace(problem_set(), quarantined_rows=rows))
    assert stage_counts(manifest, "problems")["quarantined"] == {"no answer": 1}
    row = json.loads((tmp_path / "run/quarantine.jsonl").read_text())
    assert row["row"] == 3 and row["raw"] == '{"question": "?"}'
    assert validate(tmp_path / "run").to_dict() == manifest


def test_a_build_without_problems_is_refused(tmp_path: Path) -> None:
    from fsdpo_data.core.errors import InputError

    with pytest.raises(InputError, match="no problem"):
        small_build(tmp_path / "run", problem_set(0))
    assert not (tmp_path / "run").exists()


def test_identical_samples_widen_the_interval() -> None:
    identical = wilson_interval([10] * 5 + [0] * 5, [10] * 10) or (0, 0)
    mixed = wilson_interval([5, 4, 6, 5] * 3, [10] * 12) or (0, 0)
    assert identical[1] - identical[0] > 2.5 * (mixed[1] - mixed[0])
    low, high = wilson_interval([32] * 20, [32] * 20) or (0, 0)
    assert high - low > 0.15  # all problems are solved, and 20 problems are few


def test_fixed_sampler_is_a_sampler() -> None:
    source = problem_set(1)
    from fsdpo_data.core.sampling import SamplingSpec

    prompt = get_template("problem").render(source.problems[0].question)
    texts = [
        completion.text
        for completion in sample_all(fixed_sampler(source), [prompt], SamplingSpec(n=2))[0]
    ]
    assert texts == list(TEXTS[:2])


def replay_command(folder: Path, *extra_arguments: str) -> list[str]:
    """Write completions of another model; return the command that builds a dataset from them."""
    problems, recorded = folder / "problems.jsonl", folder / "said.jsonl"
    problems.write_text('{"question": "20 + 22?", "answer": "42"}\n')
    completions = [
        {"text": RIGHT, "finish_reason": "stop"},
        {"text": WRONG, "finish_reason": "stop"},
    ]
    prompt = get_template("problem").render("20 + 22?")
    recorded.write_text(json.dumps({"prompt": prompt, "completions": completions}) + "\n")
    sampling_arguments = ["--template", "problem", "--samples", "2", "--engine", "replay"]
    file_arguments = ["--replay", str(recorded), "--out", str(folder / "out")]
    return [
        "build",
        "--problems",
        str(problems),
        *sampling_arguments,
        *file_arguments,
        *extra_arguments,
    ]


def test_a_replay_records_the_origin_of_its_completions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = replay_command(tmp_path, "--model-name", "Another 7B", "--temperature", "0.6")
    code, out, err = run(capsys, *line)
    assert code == 0, err
    manifest = validate(tmp_path / "out").to_dict()
    assert stage_options(manifest, "sample")["model"] == {
        "name": "Another 7B",
        "revision": "unknown",
    }
    digest = f"sha256:{file_sha256(tmp_path / 'said.jsonl')}"
    assert stage_options(manifest, "sample")["engine"]["recording"] == digest
    sampling = {"temperature": 0.6, **dict.fromkeys(("top_p", "max_tokens", "seed"), "unknown")}
    assert {
        name: stage_options(manifest, "sample")["sampling"][name] for name in sampling
    } == sampling
    assert manifest["cost"]["tokens"] is None
    assert "Another 7B" in out and "tiny" not in out and "unknown" in out
    card = (tmp_path / "out/README.md").read_text()
    assert "tiny" not in card and "top-p unknown" in card and "temperature 0.6" in card
    assert "fsdpo-data build" not in card  # a recording is not sampled again
    assert set(pl.read_parquet(tmp_path / "out/solutions")["n_tokens"]) == {None}


@pytest.mark.parametrize("model", [("--model", "tiny"), ("--model-name", "Another 7B"), ()])
@pytest.mark.parametrize("shard", [(), ("--shard", "1/1")])
def test_another_recording_under_the_same_path_does_not_continue_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: Sequence[str], shard: Sequence[str]
) -> None:
    line = replay_command(tmp_path, *model, *shard, "--batch-size", "1")
    problems, recorded = tmp_path / "problems.jsonl", tmp_path / "said.jsonl"
    questions = ["20 + 22?", "21 + 21?"]
    problems.write_text(
        "".join(json.dumps({"question": text, "answer": "42"}) + "\n" for text in questions)
    )
    code, _, err = run(capsys, *line)
    assert code == 1 and "no completions of the prompt" in err
    first_recording = recorded.read_text()
    recorded.write_text(first_recording.replace("42", "44"))
    code, _, err = run(capsys, *line, "--resume")
    assert code == 1 and "recording: 'sha256:" in err and "different config" in err
    recorded.write_text(first_recording)
    code, _, err = run(capsys, *line, "--resume")
    assert code == 1 and "no completions of the prompt" in err


def test_the_recording_of_a_known_model_is_not_in_the_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, *replay_command(tmp_path, "--model", "tiny"))[0] == 0
    manifest = validate(tmp_path / "out").to_dict()
    assert "sha256:" not in json.dumps(stage_options(manifest, "sample")["engine"])


def test_pairs_of_a_replay_are_measured_in_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, *replay_command(tmp_path, "--model-name", "Another 7B"))[0] == 0
    rewards = {RIGHT: [0.9] * 2, WRONG: [0.1] * 2}
    stages = [Rewards(rewards), PairStage(PairSpec())]
    derive_dataset(tmp_path / "out", tmp_path / "pairs", stages, progress=LineProgress())
    validate(tmp_path / "pairs")
    length = pair_statistics_of(tmp_path / "pairs").length
    assert (length["chosen_characters"], length["rejected_characters"]) == (len(RIGHT), len(WRONG))
    assert "chosen_tokens" not in length
    code, out, err = run(capsys, "inspect", str(tmp_path / "pairs"))
    assert code == 0, err
    assert f"{len(RIGHT):.1f} characters in" in " ".join(out.split())
    assert "tokens unknown" in out and " 0 tokens" not in out and "0.0 tokens" not in out
    card = (tmp_path / "pairs/README.md").read_text()
    assert "fsdpo-train dpo runs/data --model BASE_MODEL --out" in card


def test_a_replay_without_a_model_name_has_an_unknown_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, *replay_command(tmp_path))[0] == 0
    spec = stage_options(validate(tmp_path / "out").to_dict(), "sample")
    assert spec["model"]["name"] == spec["sampling"]["temperature"] == "unknown"
    code, _, err = run(capsys, "build", "--model-name", "me", "--out", str(tmp_path / "none"))
    assert code == 1 and "--model-name me" in err and "--replay FILE" in err
