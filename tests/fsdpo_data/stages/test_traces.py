"""The commands of docs/howto/reasoning-traces.md give the numbers on the page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from command_line import run
from helpers import statistics_of
from random_model import save_random_model, save_random_prm

from fsdpo_data.dataset.validate import validate

PAGE = (Path(__file__).parents[3] / "docs/howto/reasoning-traces.md").read_text(encoding="utf-8")


def table_row(name: str) -> list[str]:
    """Return the values of a dataset in the order of the page's table."""
    validate(Path("runs") / name)
    statistics = statistics_of(Path("runs") / name).solutions
    accuracy, solved = statistics.accuracy, statistics.pass_at_k
    low, high = (f"{100 * bound:.1f}" for bound in accuracy.ci95 or ())
    return [
        *(str(statistics.outcomes[outcome]) for outcome in ("correct", "incorrect", "no_answer")),
        f"{100 * (accuracy.value or 0):.1f} % [{low}, {high}]",
        f"{round(solved.n * (solved.value or 0))} of {solved.n}",
        str(statistics.mixed_problems),
    ]


@pytest.mark.proof
def test_the_commands_of_the_page_give_its_numbers(
    shared: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("traces").symlink_to(shared / "data/newer/traces")
    # A model without layers reads long traces quickly; its rewards do not matter in this test.
    policy = save_random_model(tmp_path / "policy", context=200_000, num_hidden_layers=0)
    save_random_prm(tmp_path / "PRM", policy)
    commands = [
        line
        for block in re.findall(r"```bash\n(.*?)```", PAGE, re.S)
        for line in block.splitlines()
    ]
    assert len(commands) == 5
    again = [command.replace("runs/traces", "runs/graded-thinking") for command in commands[-2:]]
    again = [re.sub("runs/(scored|trace-pairs)", r"runs/\1-2", command) for command in again]
    for line in (*commands, *again):
        code, _, err = run(capsys, *shlex.split(line)[1:])
        assert code == 0, (line, err)
    table = [line for line in PAGE.splitlines() if line[:6] in ("| has ", "| may ")]
    rows = [line.strip("| ").split(" | ")[1:] for line in table]
    assert rows == [table_row("traces"), table_row("graded-thinking")]
    tails = statistics_of(Path("runs/tails")).solutions.outcomes
    sentence = (
        "{correct} correct, {incorrect} incorrect, {undecided} undecided, {no_answer} without"
    )
    assert sentence.format_map(tails) in PAGE
    pairs = [validate(Path("runs") / name).rows.pairs for name in ("trace-pairs", "trace-pairs-2")]
    assert pairs == [1, 1] and "result has one pair" in " ".join(PAGE.split())
