"""Tests of the public API: fast to import, listed and typed."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from helpers import small_build

import fsdpo_data as fd


@pytest.fixture
def data(tmp_path: Path) -> fd.Dataset:
    small_build(tmp_path / "run")
    return fd.open_dataset(tmp_path / "run")


def test_the_names_are_listed() -> None:
    assert {"build", "Dataset", "load_scorer", "__version__"} <= set(dir(fd))
    assert all(hasattr(fd, name) for name in dir(fd))
    with pytest.raises(AttributeError, match="no attribute 'bild'"):
        _ = fd.bild  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "out"), [("o/r@v1.0", "r-v1.0"), ("o/r@refs/pr/1", "r-refs-pr-1"), ("o/r", "r")]
)
def test_where_a_pull_goes_by_itself(monkeypatch: pytest.MonkeyPatch, name: str, out: str) -> None:
    monkeypatch.setattr("fsdpo_data.api.pull_dataset", lambda *_, **__: None)
    assert fd.pull(name).path == Path("runs") / out


def test_options_are_keywords_with_their_help() -> None:
    assert "limit" in inspect.signature(fd.build).parameters
    assert "limit: Maximum number of problems" in (fd.build.__doc__ or "")
    assert next(iter(inspect.signature(fd.Dataset.score).parameters)) == "data"
    with pytest.raises(fd.FsdpoError, match=r"SamplingSpec\.n = 0"):
        fd.build(sampling=fd.SamplingSpec(n=0))
    with pytest.raises(fd.FsdpoError, match=r"BuildOptions\.engine = 'auto': expected Sampler"):
        fd.build(engine="auto")  # type: ignore[arg-type]


def test_build_from_recorded_completions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sampling = fd.SamplingSpec(n=2, max_tokens=32)
    first = fd.build(
        limit=2,
        sampling=sampling,
        engine=fd.SamplerOptions(engine="transformers", device="cpu"),
        out=tmp_path / "a",
    )
    again = fd.build(
        problems="embedded",
        limit=2,
        sampling=sampling,
        engine=fd.SamplerOptions(engine="replay", replay=first.path / "completions.jsonl"),
        out=str(tmp_path / "b"),
    )
    assert again.path == tmp_path / "b" and again.solutions().collect().height == 4
    assert not capsys.readouterr().out, "the library prints nothing"


def test_a_dataset(data: fd.Dataset, tmp_path: Path) -> None:
    assert data.validate() is data
    assert data.problems().collect().height == 3
    assert set(data.solutions().collect_schema()) == set(fd.Solution.__dataclass_fields__)
    with pytest.raises(fd.FsdpoError, match="has no pairs"):
        data.pairs()
    graded = data.grade(out=tmp_path / "graded")
    assert graded.manifest.parent == data.manifest.digest
    assert not any(data.diff(graded).values())
    assert data.export("trl-sft", tmp_path / "sft").rows > 0
    with pytest.raises(fd.FsdpoError, match=r"PairOptions\.top = 0: expected at least 1"):
        data.pair(top=0, out=tmp_path / "pairs")


def test_one_answer_and_one_text() -> None:
    assert fd.grade("1/2", r"so \boxed{0.5}").status == "correct"
    assert fd.segment("Step 1: a.\nStep 2: b.") == ["Step 1: a.\n", "Step 2: b."]


def test_a_sampler_by_name() -> None:
    pytest.importorskip("transformers")
    sampler = fd.load_sampler("tiny", engine="transformers", device="cpu")
    spec = fd.SamplingSpec(n=2, max_tokens=8)
    (completions,) = sampler.sample(["Problem: 1 + 1?\nSolution:\n"], spec)
    assert len(completions) == 2
