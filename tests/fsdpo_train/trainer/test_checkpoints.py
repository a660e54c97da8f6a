"""Checkpoints are complete or absent. Damage, full disks and kills cost steps, never the run."""

from __future__ import annotations

import errno
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prm_data import stepwise_rows, write_rows
from random_model import save_random_model

torch = pytest.importorskip("torch")
import transformers  # noqa: E402
from safetensors import SafetensorError  # noqa: E402

from fsdpo_data.core.errors import StoreError  # noqa: E402
from fsdpo_train import PrmConfig, train_prm  # noqa: E402
from fsdpo_train.trainer import checkpoints  # noqa: E402
from fsdpo_train.trainer import trainer as training  # noqa: E402
from fsdpo_train.trainer.checkpoints import staging_directory  # noqa: E402

STEPS = 8


class Killed(BaseException):
    """Stand-in for SIGKILL: no handler for ``Exception`` catches it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a policy and rows, and train one uninterrupted run."""
    folder = tmp_path_factory.mktemp("checkpoints")
    save_random_model(folder / "policy")
    write_rows(folder / "rows.jsonl", stepwise_rows())
    train_prm(config(folder, folder / "whole"))
    return folder


def config(folder: Path, out: Path, **options: Any) -> PrmConfig:
    settings: dict[str, Any] = dict(
        batch_size=8, grad_accum=1, lr=1e-3, max_steps=STEPS, held_out=0
    )
    settings |= dict(save_every=2, save_limit=2, log_every=1)
    return PrmConfig(
        data=folder / "rows.jsonl",
        out=out,
        model=str(folder / "policy"),
        **(settings | options),
    )


def weights(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


def names(out: Path) -> list[str]:
    return sorted(checkpoint.name for checkpoint in (out / "checkpoints").iterdir())


def train_until_killed(folder: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Train all steps, then stop before the model is saved."""

    def stop(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(training, "commit_model", stop)
        train_prm(config(folder, out))
    assert names(out) == ["checkpoint-6", "checkpoint-8"] and not (out / "config.json").exists()
    return out


@pytest.fixture(scope="module")
def interrupted_run(folder: Path) -> Path:
    """Return a run that was stopped after its last step, with the checkpoints 6 and 8."""
    with pytest.MonkeyPatch.context() as patch:
        return train_until_killed(folder, folder / "interrupted", patch)


def truncate(name: str) -> Callable[[Path], Any]:
    """Return a function that keeps the first bytes of a file of a checkpoint."""

    def truncate_file(checkpoint: Path) -> None:
        file = checkpoint / name
        file.write_bytes(file.read_bytes()[:100])

    return truncate_file


def remove(name: str) -> Callable[[Path], Any]:
    """Return a function that removes a file of a checkpoint."""
    return lambda checkpoint: (checkpoint / name).unlink()


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "no schedule": remove("scheduler.pt"),
    "no optimizer": remove("optimizer.pt"),
    "no random state": remove("rng_state.pth"),
    "no weights": remove("model.safetensors"),
    "a truncated optimizer": truncate("optimizer.pt"),
    "truncated weights": truncate("model.safetensors"),
    "empty": lambda checkpoint: [file.unlink() for file in checkpoint.iterdir()],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_training_resumes_from_the_newest_checkpoint_that_can_be_loaded(
    damage: str, folder: Path, tmp_path: Path, interrupted_run: Path, caplog: Any
) -> None:
    out = Path(shutil.copytree(interrupted_run, tmp_path / "out"))
    DAMAGES[damage](out / "checkpoints/checkpoint-8")
    caplog.set_level("INFO")
    train_prm(config(folder, out, resume=True))
    assert "resuming from" in caplog.text and "checkpoints/checkpoint-6" in caplog.text
    assert "checkpoint-8 is damaged" in caplog.text
    assert weights(out) == weights(folder / "whole")
    assert names(out) == ["checkpoint-6", "checkpoint-8", "checkpoint-8.damaged"]


def edit_state(**fields: Any) -> Callable[[Path], bytes]:
    """Return a function that changes fields of the trainer's state."""
    return lambda file: json.dumps(json.loads(file.read_text()) | fields).encode()


def save_tensors(value: Any) -> Callable[[Path], bytes]:
    """Return a function that returns the bytes of a file of torch."""

    def save(file: Path) -> bytes:
        stream = io.BytesIO()
        torch.save(value, stream)
        return stream.getvalue()

    return save


#: Contents that the run has not written, by file.
MISMATCHES: dict[str, tuple[str, Callable[[Path], bytes]]] = {
    "torn": ("trainer_state.json", lambda file: file.read_bytes()[:40]),
    "no bytes": ("trainer_state.json", lambda file: b""),
    "not UTF-8": ("trainer_state.json", lambda file: b'{"a": "\xff"}'),
    "nested": ("trainer_state.json", lambda file: b"[" * 100_000),
    "a list": ("trainer_state.json", lambda file: b"[1]"),
    "another step": ("trainer_state.json", edit_state(global_step=3)),
    "step as text": ("trainer_state.json", edit_state(global_step="8")),
    "foreign schedule": ("scheduler.pt", save_tensors([1])),
    "negative schedule": ("scheduler.pt", save_tensors({"last_epoch": -3, "base_lrs": []})),
    "another rate": ("scheduler.pt", save_tensors({"last_epoch": 8, "base_lrs": [0.5]})),
    "no optimizer": ("optimizer.pt", lambda file: b"PK"),
    "foreign random state": ("rng_state.pth", save_tensors([1])),
}


@pytest.mark.parametrize("mismatch", MISMATCHES)
def test_a_state_that_does_not_fit_the_run_is_set_aside(
    mismatch: str, folder: Path, tmp_path: Path, interrupted_run: Path, caplog: Any
) -> None:
    out = Path(shutil.copytree(interrupted_run, tmp_path / "out"))
    name, content = MISMATCHES[mismatch]
    file = out / "checkpoints/checkpoint-8" / name
    file.write_bytes(content(file))
    train_prm(config(folder, out, resume=True))
    assert f"checkpoint-8 is damaged: {name}" in caplog.text
    assert weights(out) == weights(folder / "whole")
    assert names(out) == ["checkpoint-6", "checkpoint-8", "checkpoint-8.damaged"]


@pytest.mark.parametrize(
    "state", [{"a": 1}, {"state": {0: {"exp_avg": torch.ones(3, 5)}}, "param_groups": []}]
)
def test_a_checkpoint_of_another_model_is_an_error_with_the_next_step(
    state: Any, folder: Path, tmp_path: Path, interrupted_run: Path
) -> None:
    out = Path(shutil.copytree(interrupted_run, tmp_path / "out"))
    (out / "checkpoints/checkpoint-8/optimizer.pt").write_bytes(save_tensors(state)(out))
    with pytest.raises(StoreError, match=r"checkpoint-8 does not fit this run .* Move it away"):
        train_prm(config(folder, out, resume=True))


def test_other_entries_of_the_folder_are_ignored(
    folder: Path, tmp_path: Path, interrupted_run: Path
) -> None:
    out = Path(shutil.copytree(interrupted_run, tmp_path / "out"))
    foreign_names = {"checkpoint-x", "checkpoint-99.bak", "checkpoint-99 (copy)", "checkpoint--3"}
    for name in foreign_names:
        shutil.copytree(out / "checkpoints/checkpoint-6", out / "checkpoints" / name)
    (out / "checkpoints/checkpoint-99").write_text("a file")
    assert train_prm(config(folder, out, resume=True)).steps == STEPS
    assert weights(out) == weights(folder / "whole")
    assert set(names(out)) == {"checkpoint-6", "checkpoint-8", "checkpoint-99"} | foreign_names


def test_a_damaged_checkpoint_does_not_count_as_a_kept_checkpoint(
    folder: Path, tmp_path: Path, interrupted_run: Path
) -> None:
    out = Path(shutil.copytree(interrupted_run, tmp_path / "out"))
    (out / "checkpoints/checkpoint-8/optimizer.pt").write_bytes(b"")
    train_prm(config(folder, out, resume=True, save_every=1, save_limit=1))
    assert names(out) == ["checkpoint-8", "checkpoint-8.damaged"]


def test_training_starts_again_if_no_checkpoint_is_complete(
    folder: Path, tmp_path: Path, interrupted_run: Path, caplog: Any
) -> None:
    out = Path(shutil.copytree(interrupted_run, tmp_path / "out"))
    for checkpoint in (out / "checkpoints").iterdir():
        truncate("optimizer.pt")(checkpoint)
    caplog.set_level("INFO")
    train_prm(config(folder, out, resume=True))
    assert "there is no complete checkpoint" in caplog.text
    assert weights(out) == weights(folder / "whole")


@pytest.mark.parametrize("function_name", ["_sync", "rename_durably"])
def test_a_kill_while_a_checkpoint_is_written_leaves_no_partial_checkpoint(
    function_name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    commit_checkpoint = checkpoints.commit_checkpoint

    def commit_and_break(run_folder: Path, name: str, limit: int) -> None:
        if name == "checkpoint-4":
            patch.setattr(checkpoints, function_name, raise_killed)
        commit_checkpoint(run_folder, name, limit)

    def raise_killed(*_: Any) -> None:
        # A killed process does not clean up, so the partial folder stays.
        patch.setattr(checkpoints.shutil, "rmtree", lambda *_, **__: None)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(training, "commit_checkpoint", commit_and_break)
        train_prm(config(folder, out))
    assert names(out) == ["checkpoint-2", "writing"]
    train_prm(config(folder, out, resume=True))
    assert weights(out) == weights(folder / "whole")
    assert names(out) == ["checkpoint-6", "checkpoint-8"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        SafetensorError("I/O error: No space left on device (os error 28)"),
    ],
    ids=["torch", "safetensors"],
)
def test_a_full_disk_raises_an_error_and_costs_one_checkpoint(
    error: Exception, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    save = transformers.Trainer._save_optimizer_and_scheduler

    def fail_at_step_4(self: Any, checkpoint: str) -> None:
        if checkpoint.endswith("checkpoint-4"):
            raise error
        save(self, checkpoint)

    with monkeypatch.context() as patch:
        patch.setattr(transformers.Trainer, "_save_optimizer_and_scheduler", fail_at_step_4)
        with pytest.raises(StoreError, match="the disk is full; free some space"):
            train_prm(config(folder, out))
    assert names(out) == ["checkpoint-2"]
    train_prm(config(folder, out, resume=True))
    assert weights(out) == weights(folder / "whole")


def test_a_run_stopped_after_its_last_step_trains_no_further_step(
    folder: Path, tmp_path: Path, interrupted_run: Path
) -> None:
    out = Path(shutil.copytree(interrupted_run, tmp_path / "out"))
    assert train_prm(config(folder, out, resume=True)).steps == STEPS
    assert weights(out) == weights(folder / "whole")
    assert names(out) == ["checkpoint-6", "checkpoint-8"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Exception("No space left on device (os error 28)"), "the disk is full"),
        (Exception("Read-only file system (os error 30)"), "read-only"),
        (RuntimeError("[enforce fail] . unexpected pos 64 vs 0"), "Cannot write"),
    ],
)
def test_failed_writes_of_libraries_are_messages(
    error: Exception, message: str, tmp_path: Path
) -> None:
    """The tokenizers raise a plain Exception if a disk is full."""
    with pytest.raises(StoreError, match=message), staging_directory(tmp_path):
        raise error
    with pytest.raises(KeyError), staging_directory(tmp_path):
        raise KeyError("not a write")
