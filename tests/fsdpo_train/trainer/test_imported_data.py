"""Training on imported data that a reward model has scored, from the files to the policy."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from command_line import run
from prm_data import write_rows
from random_model import save_random_model, save_random_prm
from step_dpo_rows import STEP_DPO_ROWS

pytest.importorskip("torch")
from fsdpo_data.core.errors import InputError
from fsdpo_train.cli.app import main as train_main
from fsdpo_train.losses.preference_losses import PREFERENCE_LOSSES
from fsdpo_train.preference.pairs import group_by_prompt, open_pairs
from fsdpo_train.trainer.row_formats import pair_rows
from fsdpo_train.trainer.row_source import open_data

FULL_STEP = PREFERENCE_LOSSES["full-step"]
#: Four responses with steps, of which the first and the third are correct.
RESPONSES = [
    "Step 1: 20 + 22 = 42.\nThe answer is: 42",
    "Step 1: 20 + 22 = 43.\nThe answer is: 43",
    "Step 1: Take 20.\nStep 2: 20 + 22 = 42.\nThe answer is: 42",
    "The answer is: 7",
]

Run = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def run_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Return a function that runs a command line in a folder with a policy and a reward model."""
    save_random_prm(tmp_path / "prm", save_random_model(tmp_path / "policy"))
    monkeypatch.chdir(tmp_path)

    def run_words(line: str) -> tuple[int, str, str]:
        program, *words = shlex.split(line)
        if program == "fsdpo-train":
            return run(capsys, *words, main=train_main)
        return run(capsys, *words)

    return run_words


def rewards_by_text(root: Path) -> dict[str, list[float]]:
    """Return the step rewards of the solutions of a dataset."""
    solutions = pl.read_parquet(root / "solutions/*.parquet")
    texts = solutions["completions"].list.join("")
    return dict(zip(texts, solutions["step_rewards"].to_list(), strict=True))


def trained_rewards(root: Path) -> dict[str, list[float]]:
    """Return the rewards that a loss with step weights reads from the pairs of a dataset."""
    groups = group_by_prompt(open_data([root], pair_rows(FULL_STEP)).rows(), FULL_STEP)
    return {
        "".join(solution.steps): list(solution.rewards)
        for group in groups
        for solution in group.solutions
    }


def train(run_line: Run, data: str, loss: str) -> tuple[int, str]:
    """Train for one step; return the exit code and the message."""
    line = f"fsdpo-train dpo {data} --loss {loss} --model policy --max-steps 1 --batch-size 4"
    code, _, err = run_line(f"{line} --lr 1e-3 --out trained")
    return code, " ".join(err.split())


def test_imported_pairs_are_trained_after_scoring(run_line: Run) -> None:
    write_rows(Path("step_dpo.jsonl"), STEP_DPO_ROWS)
    assert run_line("fsdpo-data import step_dpo.jsonl --from step-dpo-10k --out imported")[0] == 0
    code, out, err = run_line("fsdpo-data score imported --prm prm --out scored")
    assert code == 0 and "4 of 3 problems" in out, err
    rewards = rewards_by_text(Path("scored"))
    assert len(rewards) == 8 and trained_rewards(Path("scored")) == rewards
    code, message = train(run_line, "scored", "step-dpo")
    assert code == 0, message
    # The pairs still end with the step that differs, so losses of whole solutions refuse them.
    code, message = train(run_line, "scored", "full-step")
    assert code == 1 and "full-step would teach the policy to stop there" in message


def test_texts_become_pairs_with_rewards_as_the_message_says(run_line: Run) -> None:
    texts = {"prompt": "20 + 22?\n", "chosen": RESPONSES[0], "rejected": RESPONSES[1]}
    write_rows(Path("texts.jsonl"), [texts])
    code, message = train(run_line, "texts.jsonl", "full-step")
    assert code == 1 and "write rows of question, answer and responses" in message
    row = {"question": "What is 20 + 22?", "answer": "42", "responses": RESPONSES}
    write_rows(Path("rows.jsonl"), [row])
    commands = re.findall(r"fsdpo-data \w+ [A-Z]+ [^`]*", message)
    assert [command.split()[1] for command in commands] == ["import", "score", "pair"]
    for command in commands:
        line = command.replace("ROWS", "rows.jsonl").replace("PRM", "prm")
        code, _, err = run_line(line)
        assert code == 0, err
    assert trained_rewards(Path("PAIRS")) == rewards_by_text(Path("SCORED"))
    code, message = train(run_line, "PAIRS", "full-step")
    assert code == 0, message


def test_pairs_that_other_rewards_chose_are_not_trained(run_line: Run) -> None:
    row = {"question": "What is 20 + 22?", "answer": "42", "responses": RESPONSES}
    write_rows(Path("rows.jsonl"), [row])
    for line in (
        "fsdpo-data import rows.jsonl --from outputs --out data",
        "fsdpo-data score data --prm prm --out scored",
        "fsdpo-data pair scored --out pairs",
        "fsdpo-data score pairs --prm prm --out again",
    ):
        code, _, err = run_line(line)
        assert code == 0, err
    with pytest.raises(InputError, match="has no pairs"):
        open_pairs(["again"], FULL_STEP)
