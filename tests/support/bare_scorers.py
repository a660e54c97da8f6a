"""Scoring by processes of one's own, without Ray: what copies of a scorer can gain on a machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier

from fsdpo_data.engines.load import load_scorer
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.scorers import ScorerInput

ALONE = ScorerOptions(engine="transformers", device="cpu", dtype="float32")


def bare(prm: str, problems: Sequence[list[ScorerInput]], count: int) -> float:
    """Seconds that so many processes take, each for its part: nothing can be faster here."""
    context = get_context("spawn")
    ready = context.Barrier(count + 1, timeout=600)
    for place in range(count):
        part = [item for some in problems[place::count] for item in some]
        context.Process(target=score_part, args=(prm, part, ready), daemon=True).start()
    ready.wait()
    started = time.perf_counter()
    ready.wait()
    return time.perf_counter() - started


def score_part(prm: str, items: Sequence[ScorerInput], ready: Barrier) -> None:
    score = load_scorer(prm, ALONE).score
    for _ in range(2):  # the first time warms up
        score(items)
        ready.wait()
