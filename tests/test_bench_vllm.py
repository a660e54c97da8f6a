"""Benchmarks by vLLM: greedy as by transformers, and a beam search beside a reward model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fsdpo_bench.jobs import run_job
from fsdpo_bench.records import read_records
from fsdpo_bench.run_options import RunOptions
from random_model import save_random_prm

from fsdpo_data.models import EMBEDDED

# vLLM's own imports warn.
pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]


def decoded(out: Path, engine: str, **options: Any) -> list[dict[str, Any]]:
    run_job(
        RunOptions(out=out, task=("embedded",), model="tiny", engine=engine, workers=1, **options)
    )
    return list(read_records(out))


def test_greedy_by_both_engines(tmp_path: Path) -> None:
    """Whether each differing text is a tie of logits is for tests/test_vllm.py to say."""
    ours, theirs = (
        decoded(tmp_path / engine, engine, limit=100, max_tokens=256)
        for engine in ("transformers", "vllm")
    )
    texts = [
        [each["decoded"]["greedy"]["solution"]["text"] for each in run] for run in (ours, theirs)
    ]
    differing = [i for i, (a, b) in enumerate(zip(*texts, strict=True)) if a != b]
    print(f"problems whose greedy texts differ: {differing} of {len(ours)}")
    assert len(ours) == 100 and len(differing) <= 2


def test_every_decoder_beside_a_reward_model(tmp_path: Path) -> None:
    prm = save_random_prm(tmp_path / "prm", EMBEDDED)
    plan = {"decode": ("greedy,sc,weighted,bon,sbs",), "k": (2,), "b1": 2, "prm": str(prm)}
    found = decoded(tmp_path / "run", "vllm", limit=4, max_tokens=128, **plan)
    for record in found:
        search = record["decoded"]["sbs@2,1"]["solution"]
        assert search["finish_reason"] == "stop" and len(search["steps"]) >= 2
        assert len(search["rewards"]) == len(search["steps"])
