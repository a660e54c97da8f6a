"""Names of options in other tools lead to ours, on the command line and in Python."""

from __future__ import annotations

import pytest
from command_line import run

from fsdpo_data.core.errors import InputError
from fsdpo_train.cli.app import main
from fsdpo_train.config import DpoConfig


@pytest.mark.parametrize(
    ("flag", "own_flag"),
    [
        ("--per-device-train-batch-size", "--batch-size"),
        ("--per_device_train_batch_size", "--batch-size"),
        ("--gradient-accumulation-steps", "--grad-accum"),
        ("--num-train-epochs", "--epochs"),
        ("--warmup-ratio", "--warmup"),
        ("--bf16", "--dtype bfloat16"),
        ("--output-dir", "--out"),
        ("--batch_size", "--batch-size"),
    ],
)
def test_a_flag_of_another_tool_gets_ours(
    flag: str, own_flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "dpo", "runs/pairs", "--out", "o", flag, "1", main=main)
    message = " ".join(err.replace("│", " ").split())
    assert code == 2
    assert f"No such option: {flag} (Possible options: {own_flag})" in message


def test_learning_rate_is_a_name_of_lr(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["dpo", "runs/pairs", "--out", "o", "--learning-rate", "0"]
    assert "--lr 0: expected more than 0" in run(capsys, *line, main=main)[2]


def test_an_argument_of_another_tool_gets_ours() -> None:
    with pytest.raises(InputError, match=r"num_train_epochs = 3: .* Here it is `epochs`"):
        DpoConfig(data="d", out="o", num_train_epochs=3)
    with pytest.raises(InputError, match="max_new_tokens = 3: DpoConfig has no parameter with"):
        DpoConfig(data="d", out="o", max_new_tokens=3)
