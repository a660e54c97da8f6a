"""Without ``--model``, a training starts from the model that the dataset names, or is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import run
from helpers import sample_settings, small_build
from paired_data import paired_dataset
from prm_data import stepwise_rows, write_rows

pytest.importorskip("torch")
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.models.resolve import resolve_weights
from fsdpo_train import DpoConfig, PrmConfig, train_dpo, train_prm
from fsdpo_train.cli.app import main

TINY = resolve_weights("tiny").ref


def dataset(out: Path, model: ModelRef, **options: Any) -> Path:
    """Build a dataset whose manifest names a model."""
    settings = sample_settings().model_copy(update={"model": model, **options})
    small_build(out, sampling=settings)
    return out


def test_the_model_of_the_dataset_is_the_start_model(tmp_path: Path, caplog: Any) -> None:
    data = dataset(tmp_path / "data", TINY)
    caplog.set_level("INFO")
    config = PrmConfig(data=data, out=tmp_path / "out", max_steps=1, held_out=0)
    assert train_prm(config).steps == 1
    assert f"training starts from tiny, the model of the solutions in {data}" in caplog.text
    assert f"tiny@{TINY.revision}" in (tmp_path / "out/prm.json").read_text()


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (ModelRef("Our GPT", "unknown"), {}, "does not name the model"),
        (ModelRef("policy-7b", "sha256:0"), {}, "names the model policy-7b, which cannot be found"),
        (
            ModelRef("tiny", "sha256:0"),
            {},
            "names the model tiny .* but this name now has the revision",
        ),
        (ModelRef("served-7b", "served"), {}, "names the model served-7b, which cannot be found"),
    ],
)
def test_a_dataset_without_a_usable_model_is_refused(
    model: ModelRef, options: Any, message: str, tmp_path: Path
) -> None:
    data = dataset(tmp_path / "data", model, **options)
    with pytest.raises(InputError, match=f"{message}.*set `model=MODEL`"):
        train_prm(PrmConfig(data=data, out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_file_names_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", stepwise_rows())
    code, _, err = run(capsys, "prm", str(rows), "--out", str(tmp_path / "out"), main=main)
    assert code == 1
    assert f"{rows} does not name the model of its solutions" in err
    assert "set --model MODEL" in err


def test_pairs_without_a_usable_model_are_refused(tmp_path: Path) -> None:
    data = paired_dataset(tmp_path)
    with pytest.raises(InputError, match="names the model fixed, which cannot be found"):
        train_dpo(DpoConfig(data=data, out=tmp_path / "out"))
