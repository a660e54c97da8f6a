"""Trainings read sealed datasets behind URLs, with the results of the local dataset."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from paired_data import paired_dataset
from random_model import save_random_model

pytest.importorskip("torch")
from fsdpo_data.core.errors import InputError, SchemaError
from fsdpo_train import DpoConfig, PrmConfig, SftConfig, train_dpo, train_prm


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write a dataset with pairs to a folder whose name is a pattern elsewhere."""
    return paired_dataset(tmp_path / "run [1]")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model") / "model"
    save_random_model(folder)
    return str(folder)


def test_a_url_trains_to_the_bytes_of_the_local_dataset(
    data: Path, model: str, tmp_path: Path
) -> None:
    url = f"file://{data}/"
    for out, source in (("local", data), ("remote", url)):
        options = {"data": source, "model": model, "max_steps": 2}
        train_dpo(DpoConfig(out=tmp_path / out / "policy", batch_size=1, **options))
        train_prm(PrmConfig(out=tmp_path / out / "prm", labels="outcome", held_out=0, **options))
    for stage in ("policy", "prm"):
        local, remote = (
            (tmp_path / out / stage / "model.safetensors").read_bytes()
            for out in ("local", "remote")
        )
        assert local == remote
    card = (tmp_path / "remote/policy/README.md").read_text()
    assert f"fsdpo-train dpo {shlex.quote(url.rstrip('/'))} " in card
    assert str(tmp_path / "cache") not in card


def test_a_damaged_dataset_is_named_by_its_url(data: Path, model: str, tmp_path: Path) -> None:
    [file] = (data / "pairs").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(SchemaError, match=r"(?s)file://.*differs"):
        train_dpo(DpoConfig(data=f"file://{data}", model=model, out=tmp_path / "policy"))
    assert not (tmp_path / "policy").exists()


def test_rows_of_a_fine_tuning_are_a_local_file(model: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="takes no URL"):
        SftConfig(data="s3://bucket/rows.jsonl", model=model, out=tmp_path / "out")
