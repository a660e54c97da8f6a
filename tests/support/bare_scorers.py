"""Time scoring in several processes without Ray, which is the upper limit for replicas."""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier

from fsdpo_data.engines.load import load_scorer
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.scorers import ScorerInput

#: One replica on the CPU.
SCORER_OPTIONS = ScorerOptions(engine="transformers", device="cpu", dtype="float32")


def time_processes(prm: str, problems: Sequence[list[ScorerInput]], count: int) -> float:
    """Return the seconds of ``count`` processes, each with its part of the problems."""
    context = get_context("spawn")
    barrier = context.Barrier(count + 1, timeout=600)
    for index in range(count):
        part = [item for problem_items in problems[index::count] for item in problem_items]
        process = context.Process(target=score_part, args=(prm, part, barrier), daemon=True)
        process.start()
    barrier.wait()
    started = time.perf_counter()
    barrier.wait()
    return time.perf_counter() - started


def score_part(prm: str, items: Sequence[ScorerInput], barrier: Barrier) -> None:
    """Score twice, and wait for the other processes after each time; the first time warms up."""
    score = load_scorer(prm, SCORER_OPTIONS).score
    for _ in range(2):
        score(items)
        barrier.wait()
