"""Monte-Carlo labels: prefixes to continue, counts, cost, and resumption."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from fakes import PartlyRightSampler
from helpers import (
    RIGHT,
    WRONG,
    label_with_rollouts,
    problem_set,
    rollouts,
    seal_json,
    small_build,
    stage_counts,
    stage_entry,
    stage_options,
    statistics_of,
)
from made_runs import written
from recorded_imports import import_file

import fsdpo_data as fd
from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.command_line import make_options
from fsdpo_data.core.errors import InputError, SchemaError, UnavailableError
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.models.prompts import get_template
from fsdpo_data.models.trained_template import write_trained_template
from fsdpo_data.problems.embedded import CHECKPOINT
from fsdpo_data.stages.grade import GradeStage
from fsdpo_data.stages.label import LabelOptions, format_rollout_cost, make_label_stage
from fsdpo_data.stages.pair import PairOptions, make_pair_stage


def test_every_step_but_the_last_is_continued(tmp_path: Path) -> None:
    small_build(tmp_path / "run", problem_set(1))
    sampler = PartlyRightSampler()
    manifest = label_with_rollouts(tmp_path / "run", tmp_path / "mc", sampler)
    prompt = pl.read_parquet(tmp_path / "run/solutions/*.parquet")["prompt"][0]
    assert sampler.prompts == [
        prompt + "Step 1: 20 + 22 = 42.\n",
        prompt + "Step 1: 20 + 22 = 43.\n",
    ]
    right, wrong, silent, empty = rollouts(tmp_path / "mc")
    assert right == [{"n": 4, "n_correct": 3}, {"n": 1, "n_correct": 1}]
    assert wrong == [{"n": 4, "n_correct": 1}, {"n": 1, "n_correct": 0}]
    assert silent == [{"n": 1, "n_correct": 0}] and empty == []
    assert stage_counts(manifest, "label")["prefixes"] == 2
    source_tokens = json.loads((tmp_path / "run/manifest.json").read_text())["cost"]["tokens"]
    cost = {"tokens": 80, "prm_calls": 0, "seconds": 4.0}
    assert stage_entry(manifest, "label")["cost"] == cost
    labels = statistics_of(tmp_path / "mc").step_labels
    assert (labels.steps, labels.disagreements) == (5, 0)
    assert (
        manifest["cost"]["tokens"] == source_tokens + 80
        and stage_options(manifest, "label")["continuations"]["sampling"]["n"] == 4
    )
    card = (tmp_path / "mc/README.md").read_text()
    plot = card.partition("Steps by fraction of correct continuations:")[2].split("```")[1]
    counts = [line.split()[0::2] for line in plot.strip().splitlines()[1:] if "█" in line]
    assert counts == [["0.0–0.1", "2"], ["0.2–0.3", "1"], ["0.7–0.8", "1"], ["0.9–1.0", "1"]]


def test_half_right_continuations_count_as_right(tmp_path: Path) -> None:
    """One of two continuations is right after the first step of the wrong solution."""
    small_build(tmp_path / "run", problem_set(1))
    label_with_rollouts(tmp_path / "run", tmp_path / "mc", n=2)
    assert rollouts(tmp_path / "mc")[1][0] == {"n": 2, "n_correct": 1}
    assert statistics_of(tmp_path / "mc").step_labels.disagreements == 1


def test_outcome_labels_stay_next_to_the_counts(tmp_path: Path) -> None:
    small_build(tmp_path / "run")
    label_with_rollouts(tmp_path / "run", tmp_path / "mc")
    old_solutions, new_solutions = (
        pl.read_parquet(tmp_path / name / "solutions/*.parquet") for name in ("run", "mc")
    )
    assert new_solutions.drop("rollouts").equals(old_solutions.drop("rollouts"))


def test_a_shared_prefix_is_continued_once(tmp_path: Path) -> None:
    from helpers import fixed_sampler, sample_settings

    source = problem_set(1)
    texts = (RIGHT, RIGHT.replace("42. The answer", "forty-two. The answer"), WRONG)
    sampler = PartlyRightSampler()
    small_build(
        tmp_path / "run",
        source,
        sampling=sample_settings(n=3),
        make_sampler=lambda: fixed_sampler(source, texts),
    )
    manifest = label_with_rollouts(tmp_path / "run", tmp_path / "mc", sampler)
    assert len(sampler.prompts) == len(set(sampler.prompts)) == 2
    assert stage_counts(manifest, "label")["prefixes"] == 2
    first, second, _ = rollouts(tmp_path / "mc")
    assert first[0] == second[0]


def test_fewer_continuations_are_the_first_ones(tmp_path: Path) -> None:
    small_build(tmp_path / "run", problem_set(1))
    label_with_rollouts(tmp_path / "run", tmp_path / "mc", n=2)
    assert rollouts(tmp_path / "mc")[0][0] == {"n": 2, "n_correct": 2}


def test_a_resumed_run_samples_only_the_missing_continuations(tmp_path: Path) -> None:
    small_build(tmp_path / "run", problem_set(4))
    expected_manifest = label_with_rollouts(tmp_path / "run", tmp_path / "whole", batch=1)
    for calls in (0, 3, 7):
        out = tmp_path / f"part{calls}"
        with pytest.raises(UnavailableError):
            label_with_rollouts(
                tmp_path / "run", out, PartlyRightSampler(dies_after=calls), batch=1
            )
        again = PartlyRightSampler()
        assert (
            label_with_rollouts(tmp_path / "run", out, again, batch=1, resume=True)
            == expected_manifest
        )
        assert len(again.prompts) == 8 - calls
        completions, expected = (
            (folder / "rollouts/completions.jsonl").read_bytes()
            for folder in (out, tmp_path / "whole")
        )
        assert completions == expected


def test_an_unreadable_gold_gives_no_counts(tmp_path: Path) -> None:
    small_build(tmp_path / "run", problem_set(answer=" "))
    with pytest.raises(InputError, match="has no graded solution of two steps or more"):
        label_with_rollouts(tmp_path / "run", tmp_path / "mc")
    assert not (tmp_path / "mc").exists()


def test_one_rollout_is_refused() -> None:
    with pytest.raises(InputError, match=r"LabelOptions\.rollouts = 1: expected at least 2"):
        LabelOptions(data="runs/a", out="runs/b", rollouts=1)


def test_the_command_line_with_the_embedded_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    from command_line import run

    base, mc, two = (str(tmp_path / name) for name in ("base", "mc", "two"))
    few = [
        "--limit",
        "1",
        "--samples",
        "2",
        "--max-tokens",
        "128",
        "--engine",
        "transformers",
        "--device",
        "cpu",
    ]
    assert run(capsys, "build", *few, "--out", base)[0] == 0
    engine = ["--engine", "transformers", "--device", "cpu"]
    code, out, err = run(capsys, "label", base, "--rollouts", "3", "--out", mc, *engine)
    assert code == 0, err
    assert "N=3:" in out and "continuations of" in out and "times the tokens of sampling" in out
    assert all(step_counts["n"] == 3 for row in rollouts(Path(mc)) for step_counts in row[:-1])
    # Two of the three recorded continuations, replayed, are the labels of N = 2.
    recorded = str(Path(mc) / "rollouts/completions.jsonl")
    replay = ["--engine", "replay", "--replay", recorded]
    code, _, err = run(capsys, "label", base, "--rollouts", "2", "--out", two, *replay)
    assert code == 0, err
    assert all(step_counts["n"] == 2 for row in rollouts(Path(two)) for step_counts in row[:-1])
    code, _, err = run(capsys, "label", base, "--rollouts", "1", "--out", two, *engine)
    assert code == 1 and "--rollouts 1" in err


def test_the_cost_is_compared_with_sampling_alone(tmp_path: Path) -> None:
    """Earlier labels cost tokens, too, and a selection has a part of the sampled solutions."""
    build_tokens = small_build(tmp_path / "run", problem_set(2))["cost"]["tokens"]
    label_with_rollouts(tmp_path / "run", tmp_path / "mc")
    manifest = label_with_rollouts(tmp_path / "mc", tmp_path / "again", n=8)
    tokens = stage_entry(manifest, "label")["cost"]["tokens"]
    text = format_rollout_cost(read_manifest(tmp_path / "again"))
    assert f"{tokens / build_tokens:.1f} times the tokens of sampling" in text
    fd.open_dataset(tmp_path / "run").select(out=tmp_path / "one", sample=1)
    label_with_rollouts(tmp_path / "one", tmp_path / "selected")
    text = format_rollout_cost(read_manifest(tmp_path / "selected"))
    assert "80 tokens; outcome labels need no tokens" in text


def test_another_recording_of_continuations_does_not_continue_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from command_line import run

    small_build(tmp_path / "run", problem_set(1))
    label_with_rollouts(tmp_path / "run", tmp_path / "mc")
    recording = tmp_path / "recording.jsonl"
    [first, second] = (tmp_path / "mc/rollouts/completions.jsonl").read_text().splitlines()
    line = ["label", str(tmp_path / "run"), "--rollouts", "2", "--out", str(tmp_path / "out")]
    line += ["--engine", "replay", "--replay", str(recording), "--batch-size", "1"]
    for text, message in (
        (first, "no completions of the prompt"),
        (second.replace("42", "44"), "recording: 'sha256:"),
        (first, "no completions of the prompt"),
    ):
        recording.write_text(f"{text}\n")
        code, _, err = run(capsys, *line, *(["--resume"] if (tmp_path / "out").exists() else []))
        assert code == 1 and message in err


def test_unknown_settings_of_the_solutions_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The continuations of imported responses have default settings."""
    rows = [{"question": "20+22?", "answer": "42", "response": text} for text in (RIGHT, WRONG)]
    responses = written(tmp_path / "responses.jsonl", rows)
    settings = {"temperature": 0.5, "max_tokens": 64}
    import_file(responses, tmp_path / "stated", top_p=0.9, **settings)
    import_file(responses, tmp_path / "unknown", top_p=0.9)
    caplog.clear()

    def warnings(name: str, **options: float) -> list[str]:
        common = {"data": tmp_path / name, "out": tmp_path / "out", **options}
        common |= {"engine": "replay", "replay": responses}
        make_label_stage(make_options(LabelOptions, {**common, "rollouts": 2}))
        make_pair_stage(make_options(PairOptions, {**common, "style": "step-dpo"}))
        messages = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return messages

    of_labels, of_pairs = warnings("unknown")
    assert "defaults: temperature 0.8, max_tokens 1024. State" in of_labels
    assert of_pairs == of_labels
    assert not warnings("unknown", **settings)
    assert not warnings("stated")


def test_prompts_that_do_not_suit_the_model_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Prompts without a template join question and steps; prompts of another one are unknown."""
    rows = [{"question": "20+22?", "answer": "42", "response": text} for text in (RIGHT, WRONG)]
    responses = written(tmp_path / "responses.jsonl", rows)
    prompts = [row | {"prompt": "Problem: 20+22?\nSolution:\n"} for row in rows]
    recorded = written(tmp_path / "recorded.jsonl", prompts)
    settings = {"temperature": 0.5, "max_tokens": 64, "top_p": 0.9}
    import_file(responses, tmp_path / "bare", **settings)
    import_file(recorded, tmp_path / "recorded", **settings)
    import_file(responses, tmp_path / "problem", template="problem", **settings)
    for name in ("problem@1", "alpaca@1"):
        shutil.copytree(CHECKPOINT, tmp_path / name)
        write_trained_template(tmp_path / name, get_template(name).ref)
    caplog.clear()

    def warnings(data: str, model: str | Path) -> str:
        common = {"data": tmp_path / data, "out": tmp_path / "out", "model": str(model)}
        common |= {"engine": "transformers"}
        make_label_stage(make_options(LabelOptions, {**common, "rollouts": 2}))
        of_labels = [record.getMessage() for record in caplog.records]
        caplog.clear()
        make_pair_stage(make_options(PairOptions, {**common, "style": "step-dpo"}))
        of_pairs = [record.getMessage() for record in caplog.records]
        caplog.clear()
        assert of_pairs == of_labels
        # The first warning says that another model sampled the solutions.
        return "".join(of_labels[1:])

    bare = "prompts that are the questions alone"
    other = (
        "prompts of the template alpaca@1, and the solutions have prompts of {}: its continuations"
    )
    assert bare in warnings("bare", "tiny")
    assert bare in warnings("bare", tmp_path / "alpaca@1")
    assert not warnings("recorded", "tiny")
    assert other.format("recorded@1") in warnings("recorded", tmp_path / "alpaca@1")
    assert other.format("problem@1") in warnings("problem", tmp_path / "alpaca@1")
    assert not warnings("problem", "tiny")
    assert not warnings("problem", tmp_path / "problem@1")


def test_a_dataset_of_another_model_needs_the_model_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from command_line import run

    small_build(tmp_path / "run")
    file = tmp_path / "run/manifest.json"
    manifest = json.loads(file.read_text())
    stage_options(manifest, "sample")["model"] = {"name": "tiny", "revision": "sha256:0"}
    file.write_text(seal_json(manifest))
    arguments = ["label", str(tmp_path / "run"), "--rollouts", "2", "--out", str(tmp_path / "mc")]
    code, _, err = run(capsys, *arguments)
    assert code == 1 and "was sampled from tiny at sha256:0" in err and "--model" in err


def test_a_dataset_of_an_older_grader_must_be_graded_again_before_labelling(
    tmp_path: Path,
) -> None:
    """Old verdicts and new counts could disagree because of the grader alone."""
    old, sampler = tmp_path / "old", PartlyRightSampler()
    shutil.copytree(Path(__file__).parents[2] / "data/frozen/1.0", old)
    manifest = json.loads((old / "manifest.json").read_text())
    stage_options(manifest, "grade")["grader"] = "math@1"
    (old / "manifest.json").write_text(seal_json(manifest))
    with pytest.raises(SchemaError, match=r"'math@1' .* `fsdpo-data grade`"):
        label_with_rollouts(old, tmp_path / "mc", sampler)
    assert sampler.prompts == [] and not (tmp_path / "mc").exists()
    again = GradeStage(get_grader().version, workers=1)
    derive_dataset(old, tmp_path / "new", [again], progress=LineProgress())
    assert (
        stage_options(label_with_rollouts(tmp_path / "new", tmp_path / "mc"), "grade")["grader"]
        == get_grader().version
    )
