"""Shards of a job array: the merged dataset equals that of a run without shards, byte for byte."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import orjson
import pytest
from command_line import run
from hashes import hashes
from helpers import build_job, fixed_sampler, problem_set, small_build
from random_model import save_random_model, save_random_prm
from replayed_build import PROBLEMS, build_line, write_recording

from fsdpo_data.core.errors import InputError, RunMismatchError
from fsdpo_data.core.identity import digest
from fsdpo_data.core.job_shard import JobShard
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.core.sampling import Completion
from fsdpo_data.models.prompts import get_template
from fsdpo_data.stages.sample import build, build_shard


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recording(tmp_path_factory.mktemp("shards"))


def run_in_shards(
    capsys: pytest.CaptureFixture[str], line: list[str], folder: Path, count: int
) -> dict[str, str]:
    """Run a command once and in shards; compare the file hashes and return them."""
    unsharded, merged = folder / "whole", folder / "merged"
    code, _, err = run(capsys, *line, "--out", str(unsharded))
    assert code == 0, err
    parts = [folder / f"shard-{index}" for index in range(1, count + 1)]
    for index, part in enumerate(parts, 1):
        code, _, err = run(capsys, *line, "--shard", f"{index}/{count}", "--out", str(part))
        assert code == 0, err
        assert not (part / "manifest.json").exists()
    code, _, err = run(capsys, "merge", *map(str, reversed(parts)), "--out", str(merged))
    assert code == 0, err
    assert "load" not in err
    assert hashes(merged) == hashes(unsharded)
    return hashes(unsharded)


@pytest.mark.parametrize("count", [1, 3, 9])
def test_merged_samples_are_those_of_one_build(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path, count: int
) -> None:
    file_hashes = run_in_shards(capsys, build_line(folder), tmp_path, count)
    assert {"completions.jsonl", "manifest.json", "quarantine.jsonl"} <= file_hashes.keys()


def test_merged_labels_are_those_of_one_stage(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    run(capsys, *build_line(folder), "--out", str(tmp_path / "built"))
    replay = ["--engine", "replay", "--replay", str(folder / "recorded.jsonl")]
    line = ["label", str(tmp_path / "built"), "--rollouts", "4", *replay, "--model", "tiny"]
    assert "rollouts/completions.jsonl" in run_in_shards(capsys, line, tmp_path, 4)


def test_merged_searches_are_those_of_one_stage(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    template = get_template("problem")
    names = "abcdef"
    problems, recorded = tmp_path / "problems.jsonl", tmp_path / "recorded.jsonl"
    records = {}
    for index in range(PROBLEMS):
        prompt = template.render(f"What is 20 + 22, the {index}th time?")
        texts = []
        for first_error in range(4):
            steps = [f"Step {i}: {names[first_error]}\n" for i in range(1, 7)]
            texts.append("".join(steps) + "The answer is: 7")
            for length in range(1, 7):
                answers = ["7", "42" if length <= first_error + index % 3 else "7"]
                prefix = prompt + "".join(steps[:length])
                records[prefix] = [f"The answer is: {answer}" for answer in answers]
        records[prompt] = texts
    with problems.open("w") as file:
        for index in range(PROBLEMS):
            row = {"question": f"What is 20 + 22, the {index}th time?", "answer": "42"}
            file.write(json.dumps(row) + "\n")
    with recorded.open("wb") as file:
        for prompt, texts in records.items():
            completions = [asdict(Completion(text, "stop", 9, seconds=0.1)) for text in texts]
            file.write(orjson.dumps({"prompt": prompt, "completions": completions}) + b"\n")
    replay = ["--engine", "replay", "--replay", str(recorded), "--batch-size", "3"]
    options = ["--problems", str(problems), "--samples", "4", "--template", "problem"]
    built, unsharded, merged = (str(tmp_path / name) for name in ("built", "whole", "merged"))
    assert run(capsys, "build", *options, *replay, "--out", built)[0] == 0
    line = ["label", built, "--rollouts", "2", "--search", "first-error", *replay]
    line += ["--model", "tiny"]
    code, out, err = run(capsys, *line, "--out", unsharded)
    assert code == 0 and "the search saved" in out, err
    parts = [str(tmp_path / f"shard-{index}") for index in (1, 2, 3)]
    for index, part in enumerate(parts, 1):
        assert run(capsys, *line, "--shard", f"{index}/3", "--out", part)[0] == 0
    code, _, err = run(capsys, "merge", *parts, "--out", merged)
    assert code == 0 and "load" not in err, err
    log = "rollouts/completions.jsonl"
    whole_hashes, merged_hashes = hashes(Path(unsharded)), hashes(Path(merged))
    assert whole_hashes.keys() == merged_hashes.keys()
    assert [name for name in whole_hashes if whole_hashes[name] != merged_hashes[name]] == [log]
    # A search has rounds, and each shard has its own.
    whole_lines, merged_lines = (
        sorted((Path(folder) / log).read_text().splitlines()) for folder in (unsharded, merged)
    )
    assert whole_lines == merged_lines


def test_merged_scores_are_those_of_one_stage(
    capsys: pytest.CaptureFixture[str],
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("fsdpo_data.stages.sample.SHARD_SOLUTIONS", 8)
    run(capsys, *build_line(folder), "--out", str(tmp_path / "built"))
    prm = save_random_prm(tmp_path / "prm", save_random_model(tmp_path / "policy"))
    line = ["score", str(tmp_path / "built"), "--prm", str(prm), "--device", "cpu"]
    assert (
        len([name for name in run_in_shards(capsys, line, tmp_path, 3) if "solutions" in name]) == 4
    )
    code, _, err = run(capsys, *line, "--shard", "5/5", "--out", str(tmp_path / "more"))
    assert code == 1 and "--shard 5/5" in err and "4 files of solutions" in err


def test_incomplete_or_mixed_shards_are_refused(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    parts = [str(tmp_path / f"{index}") for index in (1, 2, 3)]
    for index in (1, 2):
        run(capsys, *build_line(folder), "--shard", f"{index}/3", "--out", parts[index - 1])
    run(capsys, *build_line(folder), "--temperature", "1", "--shard", "3/3", "--out", parts[2])
    merge, out = ("merge", *parts[:2]), ("--out", str(tmp_path / "merged"))
    assert "shard 3 is missing" in run(capsys, *merge, *out)[2]
    assert "not of the same run" in run(capsys, *merge, parts[2], *out)[2]
    shutil.rmtree(parts[2])
    run(capsys, *build_line(folder), "--shard", "3/3", "--out", parts[2])
    assert "given twice" in run(capsys, *merge, parts[2], parts[1], *out)[2]
    file = Path(parts[0]) / "shard.json"
    file.write_text(file.read_text().replace('"problems"', '"probleems"'))
    code, _, err = run(capsys, *merge, parts[2], *out)
    assert code == 1 and "expected a finished shard" in err
    shard_fields = json.loads(file.read_text())
    shard_fields.pop("digest")
    file.write_text(json.dumps({**shard_fields, "digest": digest(shard_fields)}))
    code, _, err = run(capsys, *merge, parts[2], *out)
    assert code == 1 and "the options of this shard differ from this release" in err
    assert "probleems" in err and "Merge with the release that wrote it" in err
    file.unlink()
    code, _, err = run(capsys, *merge, *out)
    assert code == 1 and "expected a finished shard" in err and "--resume" in err
    assert not (tmp_path / "merged").exists()


def test_an_interrupted_merge_can_be_repeated(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    parts = [str(tmp_path / f"{index}") for index in (1, 2)]
    for index, part in enumerate(parts, 1):
        run(capsys, *build_line(folder), "--shard", f"{index}/2", "--out", part)
    merge = ("merge", *parts, "--out", str(tmp_path / "merged"))
    assert run(capsys, *merge)[0] == 0
    expected_hashes = hashes(tmp_path / "merged")
    for name in ("manifest.json", "solutions", "README.md"):
        path = tmp_path / "merged" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    lines = (tmp_path / "merged" / "completions.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "merged" / "completions.jsonl").write_bytes(b"".join(lines[:3]) + lines[3][:9])
    assert run(capsys, *merge)[0] == 0
    assert hashes(tmp_path / "merged") == expected_hashes


def test_another_shard_cannot_resume_in_the_directory(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    out = ("--out", str(tmp_path / "part"), "--resume")
    assert run(capsys, *build_line(folder), "--shard", "1/2", *out)[0] == 0
    code, _, err = run(capsys, *build_line(folder), "--shard", "2/2", *out)
    assert code == 1 and "shard: '1/2' in the run, '2/2' now" in err
    code, _, err = run(capsys, *build_line(folder), *out)
    assert code == 1 and "shard: '1/2' in the run, None now" in err


def test_only_the_directory_of_a_shard_names_the_shard(tmp_path: Path) -> None:
    source = problem_set()
    job = build_job(source, lambda: fixed_sampler(source))
    first_shard = JobShard(1, 2)

    def sample(out: Path, shard: JobShard, *, is_part: bool) -> None:
        build_shard(job, out, (), shard, resume=True, is_part=is_part, progress=LineProgress())

    sample(tmp_path / "shard", first_shard, is_part=False)
    with pytest.raises(RunMismatchError, match="shard: '1/2' in the run, '2/2' now"):
        sample(tmp_path / "shard", JobShard(2, 2), is_part=False)
    sample(tmp_path / "part", first_shard, is_part=True)
    completions = [(tmp_path / name / "completions.jsonl") for name in ("shard", "part")]
    n_lines = [len(file.read_bytes().splitlines()) for file in completions]
    assert n_lines == [len(first_shard.select(source.problems))] * 2
    # The part is a run of the complete build, which samples the other problems there.
    assert build(job, tmp_path / "part", resume=True, progress=LineProgress()).rows.problems == 3


@pytest.mark.parametrize("text", ["0/4", "5/4", "1/0", "1", "a/b", "-1/4", "1/4/4", "1.5/4", ""])
def test_invalid_shards_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="i/N"):
        JobShard.parse(text)


@pytest.mark.parametrize(("items", "count"), [(0, 3), (1, 3), (7, 3), (9, 3), (10, 1)])
def test_shards_are_consecutive_and_complete(items: int, count: int) -> None:
    parts = [list(JobShard(i, count).select(range(items))) for i in range(1, count + 1)]
    assert [item for part in parts for item in part] == list(range(items))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_datasets_are_not_shards(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    small_build(tmp_path / "a")
    small_build(tmp_path / "b")
    datasets = [str(tmp_path / "a"), str(tmp_path / "b")]
    code, _, err = run(capsys, "merge", *datasets, "--out", str(tmp_path / "c"))
    assert code == 1
    assert f"SHARDS {tmp_path / 'a'}: this directory is a complete dataset" in err
    assert "`fsdpo-train` takes several datasets" in err
    code, _, err = run(capsys, "merge", str(tmp_path / "none"), "--out", str(tmp_path / "c"))
    assert code == 1 and "there is no such directory" in err
