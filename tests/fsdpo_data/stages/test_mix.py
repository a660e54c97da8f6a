"""Mixtures of sealed datasets: weights, duplicates across them, and what does not fit together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command_line import run
from fakes import FixedSampler
from hashes import hashes
from helpers import RIGHT, TEXTS, WRONG, build_spec, problem_set, small_build
from paired_data import MadeUpRewards

import fsdpo_data as fd
from fsdpo_data.answers.grader import GRADER_NAME
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import ModelRef, SourceRef
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.dataset.stage import derive_dataset
from fsdpo_data.exchange.step_label_dataset import import_dataset
from fsdpo_data.models.prompts import get_template
from fsdpo_data.problems.load import ProblemSet
from fsdpo_data.selection import write_rows

OTHER_TEXTS = (RIGHT, WRONG, "Think. The answer is: 42", "No. The answer is: 41")


def build(
    out: Path, source: ProblemSet, texts: tuple[str, ...] = TEXTS, **changes: Any
) -> fd.Dataset:
    """Build a dataset with the same texts for each problem."""
    template = get_template("problem")
    prompts = {template.render(problem.question): texts for problem in source.problems}
    spec = build_spec(n=len(texts))
    for name, value in changes.items():
        object.__setattr__(spec, name, value)
    small_build(out, source, spec=spec, make_sampler=lambda: FixedSampler(prompts))
    return fd.open_dataset(out)


@pytest.fixture
def parts(tmp_path: Path) -> list[fd.Dataset]:
    """Return two datasets that share five problems, with other models."""
    small = build(tmp_path / "a", problem_set(5))
    model = ModelRef("other", "1")
    large = build(tmp_path / "b", problem_set(8), OTHER_TEXTS, model=model)
    return [small, large]


def paths(parts: list[fd.Dataset]) -> list[str]:
    return [str(part.path) for part in parts]


def test_paths_may_be_path_objects(parts: list[fd.Dataset], tmp_path: Path) -> None:
    mixture = fd.mix([part.path for part in parts], out=tmp_path / "m")
    assert mixture.manifest.rows.solutions == 42


def test_shared_problems_have_the_solutions_of_both(
    parts: list[fd.Dataset], tmp_path: Path
) -> None:
    mixture = fd.mix(paths(parts), out=tmp_path / "m").validate()
    solutions = mixture.solutions().collect()
    texts = solutions.select("problem_id", text=pl.col("completions").list.join(""))
    assert not texts.is_duplicated().any()
    sizes = texts.group_by("problem_id", maintain_order=True).len()["len"].to_list()
    # The shared problems have four texts of the first dataset, and two new ones of the second.
    assert sorted(sizes) == [4, 4, 4, 6, 6, 6, 6, 6]
    # The solutions of a problem are together, so pairs and rankings see all of them.
    assert len(texts["problem_id"].rle()) == 8
    manifest = mixture.manifest
    assert manifest.mixture is not None
    counts = [
        (part.selected.solutions, [(item.name, item.solutions) for item in part.filters])
        for part in manifest.mixture
    ]
    assert counts == [(20, [("duplicates", 0)]), (22, [("duplicates", 10)])]
    assert manifest.spec.model.name == "unknown"
    assert [part.model.name for part in manifest.mixture] == ["fixed", "other"]
    assert manifest.cost.tokens == sum(int(part.manifest.cost.tokens) for part in parts)
    assert "| mixture | 20 solutions to 5 problems" in (mixture.path / "README.md").read_text()


def test_the_first_dataset_wins_if_golds_differ(tmp_path: Path) -> None:
    first = build(tmp_path / "a", problem_set(2, answer="42"))
    # The same questions in other letters, with another gold answer.
    problems = [
        Problem(problem.question.upper() + " ", "43", "other", "train")
        for problem in problem_set(3).problems
    ]
    second = build(tmp_path / "b", ProblemSet(problems, [SourceRef("other", "1", "train")]))
    mixture = fd.mix(paths([first, second]), out=tmp_path / "m").validate()
    rows = mixture.problems().collect()
    assert rows["answer"].to_list() == ["42", "42", "43"]
    assert mixture.manifest.mixture is not None
    assert mixture.manifest.mixture[1].filters[-1].problems == 2
    complete = fd.mix(
        paths([first, second]), out=tmp_path / "complete", deduplicate=False
    ).validate()
    assert complete.manifest.rows.problems == 5


def test_weights_are_fractions_of_the_problems(parts: list[fd.Dataset], tmp_path: Path) -> None:
    names = [f"{parts[0].path}:0.4", f"{parts[1].path}:0.5"]
    mixture = fd.mix(names, out=tmp_path / "m", deduplicate=False).validate()
    assert mixture.manifest.mixture is not None
    sizes = [part.selected.problems for part in mixture.manifest.mixture]
    assert sizes == [2, 4]
    other = fd.mix(names, out=tmp_path / "n", deduplicate=False, seed=1)
    assert other.manifest.digest != mixture.manifest.digest
    again = fd.mix(names, out=tmp_path / "o", deduplicate=False)
    assert again.manifest.digest == mixture.manifest.digest


def test_other_rewards_are_refused_or_left_out(parts: list[fd.Dataset], tmp_path: Path) -> None:
    scored = []
    for index, part in enumerate(parts):
        out = tmp_path / f"scored-{index}"
        derive_dataset(part.path, out, [MadeUpRewards()], progress=LineProgress())
        scored.append(fd.open_dataset(out))
    scored_mixture = fd.mix(paths(scored), out=tmp_path / "same").validate()
    assert (
        scored_mixture.manifest.rewards is not None and scored_mixture.manifest.rewards.scored == 42
    )
    mixed = [scored[0], parts[1]]
    with pytest.raises(InputError, match=r"step_rewards from different models.*drop=step_rewards"):
        fd.mix(paths(mixed), out=tmp_path / "m")
    assert not (tmp_path / "m").exists()
    dropped = fd.mix(paths(mixed), out=tmp_path / "m", drop=["step_rewards"]).validate()
    assert dropped.manifest.rewards is None and dropped.manifest.spec.score is None
    assert dropped.solutions().collect()["step_rewards"].null_count() == 42


def test_imported_labels_of_two_formats_are_mixed(parts: list[fd.Dataset], tmp_path: Path) -> None:
    rows = {
        "processbench": {"problem": "1 + 1?", "steps": ["2", "so 3"], "label": 1},
        "trl-stepwise": {"prompt": "2 + 2?", "completions": ["4", "5"], "labels": [True, False]},
    }
    for name, row in rows.items():
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
        import_dataset(tmp_path / f"{name}.jsonl", name, tmp_path / name)
    labelled = [str(tmp_path / name) for name in rows]
    mixture = fd.mix(labelled, out=tmp_path / "m").validate()
    stats = mixture.manifest.step_labels
    assert stats is not None and (stats.rows, stats.right, stats.wrong) == (2, 2, 2)
    section = mixture.manifest.spec.step_labels
    assert section is not None and section.format == "processbench + trl-stepwise"
    with pytest.raises(InputError, match=f"the grader is 'none', and '{GRADER_NAME}' in"):
        fd.mix([str(parts[0].path), labelled[0]], out=tmp_path / "n")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a"], "expected two or more"),
        (["a", "a"], "a dataset is given twice"),
        (["a", "b:0"], "a weight above 0 and at most 1"),
        (["a", "b:two"], "a weight above 0 and at most 1"),
        (["a", "m"], "Choose a new one"),
    ],
)
def test_errors_name_the_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        fd.mix(names, out="m")


def test_the_bytes_are_the_same_after_a_kill(
    parts: list[fd.Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_rows, "FILE_SOLUTIONS", 10)
    fd.mix(paths(parts), out=tmp_path / "good")
    good = hashes(tmp_path / "good")
    original = write_rows.write_parquet
    for stop_after in range(len([name for name in good if name.endswith("parquet")])):
        written: list[Path] = []

        def write_and_stop(
            table: Any, target: Path, written: list[Path] = written, limit: int = stop_after
        ) -> None:
            if len(written) == limit:
                raise KeyboardInterrupt
            written.append(target)
            original(table, target)

        out = tmp_path / f"stopped-{stop_after}"
        with monkeypatch.context() as patch:
            patch.setattr(write_rows, "write_parquet", write_and_stop)
            with pytest.raises(KeyboardInterrupt):
                fd.mix(paths(parts), out=out)
        fd.mix(paths(parts), out=out, resume=True)
        assert hashes(out) == good


def test_the_command_prints_each_dataset(
    parts: list[fd.Dataset], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "m")
    code, text, _ = run(capsys, "mix", *paths(parts), "--out", out)
    assert code == 0
    assert f"{parts[1].path}: 8 of 8 problems, 22 of 32 solutions (52.4% of the mixture)" in text
    assert "  duplicates: dropped 0 problems, 10 solutions" in text
