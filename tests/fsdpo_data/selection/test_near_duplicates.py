"""Near-duplicates agree with the definition, computed pair by pair."""

from __future__ import annotations

import random
import re
from pathlib import Path

import polars as pl
import pytest
from helpers import build_spec, fixed_sampler, problem_set, small_build

from fsdpo_data.core.progress import NO_PROGRESS
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.selection import near_duplicates as module
from fsdpo_data.selection.near_duplicates import near_duplicates
from fsdpo_data.selection.row_index import IndexRequest, RowIndex, SourceDataset, build_index


def sequences(steps: list[str]) -> set[tuple[str, ...]]:
    token_sequences = set()
    for step in steps:
        tokens = re.findall(r"[^\W\d_]+|\d+|[^\w\s]|_", step.lower())
        token_sequences |= {tuple(tokens[index : index + 3]) for index in range(len(tokens))}
    return token_sequences


def naive(solutions: list[list[str]], threshold: float) -> list[bool]:
    originals: list[set[tuple[str, ...]]] = []
    flags = []
    for steps in solutions:
        solution = sequences(steps)
        flags.append(
            any(
                solution == other or len(solution & other) >= threshold * len(solution | other)
                for other in originals
            )
        )
        if not flags[-1]:
            originals.append(solution)
    return flags


def made_up_texts(rng: random.Random) -> tuple[str, ...]:
    words = ["Add", "twelve", "2 + 3 = 5", "x^2", "so", "the", "sum", "is", "Ümlaut", "3.5"]
    base = [" ".join(rng.choices(words, k=8)) for _ in range(3)]
    texts = ["", "  "]
    for _ in range(14):
        steps = [step if rng.random() < 0.7 else step + rng.choice([" a", "!"]) for step in base]
        texts.append("\n".join(steps[: rng.randint(1, 3)]))
    return tuple(texts)


def built_index(tmp_path: Path, texts: tuple[str, ...]) -> RowIndex:
    source = problem_set(4)
    spec = build_spec(n=len(texts))
    small_build(
        tmp_path / "run", source, spec=spec, make_sampler=lambda: fixed_sampler(source, texts)
    )
    dataset = SourceDataset(tmp_path / "run", read_manifest(tmp_path / "run"))
    return build_index([dataset], IndexRequest(), NO_PROGRESS)


@pytest.mark.parametrize(("chunk", "block"), [(8192, 512), (5, 3), (40, 4)])
def test_near_duplicates_agree_with_the_definition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, block: int
) -> None:
    monkeypatch.setattr(module, "CHUNK_SOLUTIONS", chunk)
    monkeypatch.setattr(module, "BLOCK_SOLUTIONS", block)
    index = built_index(tmp_path, made_up_texts(random.Random(chunk)))
    steps = pl.read_parquet(index.files)["completions"].to_list()
    for threshold in (0.3, 0.6, 1.0):
        flags = near_duplicates(index.files, index.solutions, threshold, NO_PROGRESS).to_list()
        expected = [
            flag
            for start in range(0, len(steps), 16)
            for flag in naive(steps[start : start + 16], threshold)
        ]
        assert flags == expected
        assert any(flags) and not all(flags)
