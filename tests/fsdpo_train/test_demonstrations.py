"""Solutions with slips and mistakes for SFT."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fsdpo_data.core.errors import InputError
from fsdpo_data.problems.embedded.generator import make_problems
from fsdpo_data.problems.embedded.solutions import first_wrong_step
from fsdpo_data.steps.segment import split_at_step_markers
from fsdpo_train.demonstrations import FIRST_PROBLEM_SEED, parse_rates, write_demonstrations

ROWS = 200


def wrong_relations(out: Path, seed: int = 0) -> list[str | None]:
    """Return the relation of the first wrong step of each row; None without one."""
    relations: list[str | None] = []
    problems = make_problems("train", ROWS, FIRST_PROBLEM_SEED + seed)
    for problem, line in zip(problems, out.read_text().splitlines(), strict=True):
        row = json.loads(line)
        assert problem.question in row["prompt"]
        error = first_wrong_step(problem, split_at_step_markers(row["completion"]))
        relations.append(None if error is None else problem.metadata["nodes"][error][0])
    return relations


def test_without_rates_every_solution_is_right(tmp_path: Path) -> None:
    write_demonstrations(tmp_path / "rows.jsonl", ROWS)
    assert set(wrong_relations(tmp_path / "rows.jsonl")) == {None}


def test_mistakes_are_only_in_the_steps_of_their_relations(tmp_path: Path) -> None:
    out = tmp_path / "new" / "rows.jsonl"
    write_demonstrations(out, ROWS, relation_error_rates={"grow": 1, "half": 1})
    relations = wrong_relations(out)
    assert set(relations) == {None, "grow", "half"}
    problems = make_problems("train", ROWS, FIRST_PROBLEM_SEED)
    for problem, relation in zip(problems, relations, strict=True):
        has_mistake = {"grow", "half"} & {node[0] for node in problem.metadata["nodes"]}
        assert bool(has_mistake) == (relation is not None)


def test_slips_are_in_any_step_and_the_seed_decides_the_file(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_demonstrations(tmp_path / name, ROWS, error_rate=0.3, seed=seed)
    assert len(set(wrong_relations(tmp_path / "a"))) > 8
    texts = [(tmp_path / name).read_text() for name in "abc"]
    assert texts[0] == texts[1] != texts[2]


def test_unknown_relations_and_rates_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected one of .*grow"):
        write_demonstrations(tmp_path / "rows", 1, relation_error_rates={"doubled": 0.5})
    with pytest.raises(InputError, match="expected a probability"):
        write_demonstrations(tmp_path / "rows", 1, error_rate=1.5)
    with pytest.raises(InputError, match="expected RELATION=PROBABILITY"):
        parse_rates(["grow"])
    assert parse_rates(["grow=0.5", "half=1"]) == {"grow": 0.5, "half": 1.0}
