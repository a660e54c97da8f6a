"""The number of tokens whose logits a training computes at once: chosen once, and recorded."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from random_model import save_random_model
from training import kill_at_step

torch = pytest.importorskip("torch")

from fsdpo_data.core.errors import RunMismatchError  # noqa: E402
from fsdpo_data.engines import logprobs  # noqa: E402
from fsdpo_train import SftConfig, train_sft  # noqa: E402
from fsdpo_train.sft import train as sft  # noqa: E402
from fsdpo_train.trainer import head_chunk  # noqa: E402

GIGABYTE = 10**9


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("head")
    save_random_model(folder / "policy")
    rows = [
        {"prompt": f"What is {i} + 1?\n", "completion": f"It is {i} and 1, so it is {i + 1}."}
        for i in range(8)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def config(folder: Path, out: str, **options: Any) -> SftConfig:
    settings = dict(batch_size=4, max_steps=4, lr=1e-2, save_every=2, log_every=1, save_limit=9)
    return SftConfig(
        data=folder / "rows.jsonl",
        out=folder / out,
        model=str(folder / "policy"),
        **(settings | options),
    )


def weights(folder: Path, out: str) -> bytes:
    return (folder / out / "model.safetensors").read_bytes()


def recorded_chunk(folder: Path, out: str) -> int:
    chunk: int = json.loads((folder / out / "sft.json").read_text())["head_chunk_tokens"]
    return chunk


@pytest.mark.parametrize(
    ("gigabytes", "vocabulary", "chunk"),
    [(0, 32_000, 16), (1, 32_000, 512), (16, 32_000, 8192), (16, 152_000, 2048)],
)
def test_a_chunk_takes_at_most_a_quarter_of_the_free_memory(
    gigabytes: int, vocabulary: int, chunk: int
) -> None:
    free_bytes = gigabytes * GIGABYTE
    assert logprobs.largest_chunk(vocabulary, free_bytes) == chunk
    assert chunk == 16 or 12 * chunk * vocabulary <= free_bytes / 4 < 2 * 12 * chunk * vocabulary


def fake_trainer(
    device: str, trainable: int, choices: list[int], option: int | None = None
) -> SimpleNamespace:
    """Return what the choice needs of a trainer; ``choices`` are those of the other processes."""
    parameter = SimpleNamespace(requires_grad=True, numel=lambda: trainable)
    module = SimpleNamespace(
        head_chunk_tokens=0,
        get_input_embeddings=lambda: SimpleNamespace(num_embeddings=32_000),
    )
    model = SimpleNamespace(modules=lambda: [module], parameters=lambda: [parameter])
    gather = lambda chosen: torch.cat([chosen.cpu(), torch.tensor(choices)])  # noqa: E731
    return SimpleNamespace(
        model=model,
        module=module,
        models_with_head=lambda: [model],
        stage_config=SimpleNamespace(head_chunk=option),
        accelerator=SimpleNamespace(gather=gather),
        args=SimpleNamespace(device=torch.device(device)),
        is_world_process_zero=lambda: True,
    )


@pytest.mark.parametrize(
    ("options", "stored", "chunk"),
    [
        (dict(trainable=0, choices=[]), {}, 8192),
        (dict(trainable=10**9, choices=[]), {}, 2048),  # 12 GB for gradients and moments
        (dict(trainable=2 * 10**9, choices=[]), {}, 16),
        (dict(trainable=0, choices=[4096, 9000]), {}, 4096),  # all processes take the least
        (dict(trainable=0, choices=[], option=77), {}, 77),
        (dict(trainable=0, choices=[]), {"head_chunk_tokens": 256}, 256),
    ],
)
def test_the_choice(
    options: dict[str, Any],
    stored: dict[str, int],
    chunk: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(head_chunk, "available_memory", lambda: 16 * GIGABYTE)
    trainer = fake_trainer("cpu", **options)
    assert head_chunk.set_head_chunk(trainer, stored) == {"head_chunk_tokens": chunk}
    assert trainer.module.head_chunk_tokens == chunk


@pytest.mark.parametrize(
    ("gigabytes", "chunk"), [(1, 512), (4, 2048), (16, 2048), (64, 2048), (0, 16)]
)
def test_the_choice_on_a_gpu_leaves_the_memory_to_activations(
    gigabytes: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_chunk, "free_gpu_memory", lambda _: gigabytes * GIGABYTE)
    trainer = fake_trainer("cpu", 0, [])
    monkeypatch.setattr(trainer.args, "device", SimpleNamespace(type="cuda"))
    models = list(logprobs.logprob_models(trainer.models_with_head()))
    assert head_chunk._choose_chunk(trainer, models) == chunk


def test_processes_of_a_machine_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_chunk, "available_memory", lambda: 16 * GIGABYTE)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    entry = head_chunk.set_head_chunk(fake_trainer("cpu", 0, []), {})
    assert entry == {"head_chunk_tokens": 2048}


def test_a_resumed_run_keeps_the_choice_of_its_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The memory is scarce at the first start, and plentiful when the run is resumed."""
    monkeypatch.setattr(head_chunk, "available_memory", lambda: 0)
    train_sft(config(folder, "scarce"))
    assert recorded_chunk(folder, "scarce") == 16
    kill_at_step(3, sft, lambda: train_sft(config(folder, "killed")))
    assert recorded_chunk(folder, "killed") == 16
    monkeypatch.setattr(head_chunk, "available_memory", lambda: 64 * GIGABYTE)
    caplog.set_level(logging.INFO, logger="fsdpo_train")
    train_sft(config(folder, "killed", resume=True))
    assert "the logits of up to 16 tokens are computed at once" in caplog.text
    assert weights(folder, "killed") == weights(folder, "scarce")
    train_sft(config(folder, "plentiful"))
    assert recorded_chunk(folder, "plentiful") > 1024
    scarce, plentiful = (
        torch.cat([tensor.flatten() for tensor in load_weights(folder, out)])
        for out in ("scarce", "plentiful")
    )
    assert (scarce - plentiful).abs().max() < 1e-5


def load_weights(folder: Path, out: str) -> list[Any]:
    from safetensors.torch import load_file

    return [tensor for _, tensor in sorted(load_file(folder / out / "model.safetensors").items())]


def test_the_option_has_priority_and_belongs_to_the_run(folder: Path) -> None:
    train_sft(config(folder, "option", head_chunk=8, max_steps=2))
    assert recorded_chunk(folder, "option") == 8
    with pytest.raises(RunMismatchError, match="head_chunk"):
        train_sft(config(folder, "option", head_chunk=16, max_steps=2, resume=True))


#: `fsdpo-train`, but the second process sees little free memory.
LAUNCHER = """
import os

from fsdpo_train.cli.app import main
from fsdpo_train.trainer import head_chunk

if os.environ["RANK"] == "1":
    head_chunk.available_memory = lambda: 2**28
main()
"""


@pytest.mark.proof
def test_all_processes_use_the_choice_of_the_smallest_memory(folder: Path, tmp_path: Path) -> None:
    """The first process writes the record; the second one has little memory."""
    script = tmp_path / "launcher.py"
    script.write_text(LAUNCHER)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    for processes in ("1", "2"):
        out = folder / f"{processes}-processes"
        command = [sys.executable, *torchrun, processes, script, "sft", folder / "rows.jsonl"]
        command += ["--model", folder / "policy", "--out", out, "--batch-size", "4"]
        command += ["--max-steps", "1", "--log-every", "1", "--save-every", "0"]
        process = subprocess.run(
            [str(argument) for argument in command],
            capture_output=True,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        assert process.returncode == 0, process.stderr[-9000:]
    # Two processes share the memory of the machine; without the limit, each would have half.
    chunk, smallest_chunk = (recorded_chunk(folder, f"{n}-processes") for n in ("1", "2"))
    assert 16 < smallest_chunk < chunk // 4
