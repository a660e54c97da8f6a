"""The grader against math-verify and its former self: kinds, pairs per second, hostile texts.

    python -m venv .venv-math-verify
    .venv-math-verify/bin/pip install 'math-verify[antlr4_13_2]==0.9.0'
    git worktree add ../before COMMIT
    python benchmarks/perf/grade.py --peer .venv-math-verify/bin/python --outputs DIR \
        --before ../before

All grade the same pairs one after the other, in one process each: the hard set of
`tests/data/grader_cases.jsonl` and, with `--outputs` (a directory of published model outputs:
`openai_gsm8k/`, `qwen_math_cot/`, `nemo_skills/`, `abel_gsm8k/`), real responses with their golds.
What each makes of the labelled pairs is a table by kind, with false positives. Every text of
`tests/hostile.py` is then timed alone against several golds. Without `--peer` and `--before` only
our side is measured. Rates are per second of processor time, so that a busy machine does not blur
them; latencies are by the clock.
"""

import json
import random
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import grade_peer
import typer
from fsdpo_bench.recorded.outputs import read_outputs
from typer import Option

TESTS = Path(__file__).parents[2] / "tests"
sys.path.insert(0, str(TESTS / "support"))
from hostile import ANSWERS, RESPONSES, fuzz  # noqa: E402

Pair = tuple[str, str]
#: Published model outputs, as in the directory that ``--outputs`` names.
OUTPUTS = (
    "openai_gsm8k/example_model_solutions.jsonl",
    "qwen_math_cot/math_cot_100.jsonl",
    "nemo_skills/output-rs0.jsonl",
    "nemo_skills/output-rs1.jsonl",
    "abel_gsm8k/7b_first300.jsonl",
)
OURS = grade_peer.checkout(str(TESTS.parent))
GOLDS = ["5", "\\frac{1}{2}", "x^2+1", "[0,1)", "3, 5", "y=2x+3", "\\text{even}"]


@dataclass(frozen=True)
class Timing:
    """Seconds of each pair, whether it was judged correct, processor seconds of all, errors."""

    seconds: list[float]
    correct: list[bool]
    processor: float
    raised: int

    @property
    def rate(self) -> float:
        """Pairs per second of processor time."""
        return len(self.seconds) / self.processor

    def line(self, name: str, labels: list[bool] | None) -> str:
        """One line of the report; ``labels`` are the true verdicts, where they are known."""
        cuts = statistics.quantiles(self.seconds, n=100, method="inclusive")
        late = sum(each > 2 for each in self.seconds)
        text = (
            f"  {name:<12} {self.rate:9,.0f} pairs/s   p50 {cuts[49] * 1e3:7.3f} ms   "
            f"p99 {cuts[98] * 1e3:8.3f} ms   max {max(self.seconds) * 1e3:9.2f} ms   "
            f"over 2 s {late}" + f"   raised {self.raised}" * bool(self.raised)
        )
        if labels:
            right = sum(a == b for a, b in zip(self.correct, labels, strict=True))
            text += f"   right {right} of {len(labels)} ({right / len(labels):.1%})"
        return text


def main(
    peer: Annotated[Path | None, Option(help="Python of an environment with math-verify.")] = None,
    outputs: Annotated[Path | None, Option(help="Directory of published model outputs.")] = None,
    before: Annotated[Path | None, Option(help="Checkout of an earlier commit.")] = None,
    limit: Annotated[int, Option(help="Pairs of each set.")] = 5000,
) -> None:
    """Time the grader on the hard set, on real outputs and on hostile texts."""
    script = str(Path(__file__).with_name("grade_peer.py"))
    others = {"before": [sys.executable, script, str(before)]} if before else {}
    others |= {"math-verify": [str(peer), script]} if peer else {}
    lines = (TESTS / "data/grader_cases.jsonl").read_text(encoding="utf-8").splitlines()
    cases = sample([json.loads(line) for line in lines], limit)
    pairs, labels = box_answers(cases), [case["correct"] for case in cases]
    timings = compare("hard set", pairs, labels, others)
    by_kind(cases, {name: timing.correct for name, timing in timings.items()})
    if outputs:
        real = [each for file in OUTPUTS for each in read_outputs(outputs / file)]
        pairs = sample([(each.gold, each.response) for each in real], limit)
        compare("real model outputs", pairs, None, others)
    hostile()


def box_answers(cases: Sequence[dict[str, Any]]) -> list[Pair]:
    """Return golds with responses; bare answers stand in a box."""
    boxes = [f"$\\boxed{{{case.get('answer', '')}}}$" for case in cases]
    return [(c["gold"], c.get("response", box)) for c, box in zip(cases, boxes, strict=True)]


def by_kind(cases: Sequence[dict[str, Any]], verdicts: dict[str, list[bool]]) -> None:
    """Print how many cases of each kind each grader has right, and its false positives."""
    kinds: dict[str, list[int]] = defaultdict(list)
    for place, case in enumerate(cases):
        kinds[case["kind"]].append(place)
        kinds["all"].append(place)
    print(f"  {'right, false positives':<28}{'cases':>7}" + "".join(f"{n:>18}" for n in verdicts))
    for kind, places in sorted(kinds.items(), key=lambda each: -len(each[1])):
        told = f"  {kind:<28}{len(places):7,}"
        for correct in verdicts.values():
            right = sum(correct[place] == cases[place]["correct"] for place in places)
            fooled = sum(correct[place] and not cases[place]["correct"] for place in places)
            told += f"{right / len(places):12.1%}{fooled:6}"
        print(told)


def sample(items: list[Any], limit: int) -> list[Any]:
    """Return at most ``limit`` items, the same ones every time."""
    return items if len(items) <= limit else random.Random(0).sample(items, limit)


def compare(
    name: str, pairs: list[Pair], labels: list[bool] | None, others: dict[str, list[str]]
) -> dict[str, Timing]:
    """Print our timing and others' on the same pairs, and the ratios of their rates."""
    print(f"{name}: {len(pairs):,} pairs, one process")
    peers = {other: timed_peer(command, pairs) for other, command in others.items()}
    timings = {"fsdpo": time_grader(pairs), **peers}
    for grader, timing in timings.items():
        print(timing.line(grader, labels))
    for other in others:
        ratio = timings["fsdpo"].rate / timings[other].rate
        print(f"  {ratio:.2f} times the pairs per second of {other}")
    return timings


def time_grader(pairs: list[Pair]) -> Timing:
    """Grade pairs one by one with the grader of this checkout."""
    return Timing(**grade_peer.time_grader(OURS, pairs))


def timed_peer(command: list[str], pairs: list[Pair]) -> Timing:
    """Grade the same pairs with another grader, in its own environment."""
    child = subprocess.run(
        command, input=json.dumps(pairs), stdout=subprocess.PIPE, text=True, check=True
    )
    return Timing(**json.loads(child.stdout))


def hostile() -> None:
    """Print the slowest hostile texts; each counts with the fastest of three runs."""
    pairs = [
        *((gold, f"\\boxed{{{answer}}}") for answer in ANSWERS for gold in GOLDS),
        *((answer, f"\\boxed{{{answer} 1}}") for answer in ANSWERS),
        *((gold, response) for response in RESPONSES for gold in GOLDS[:3]),
        *(("x^2+1", f"\\boxed{{{text}}}") for text in fuzz(3, 5000)),
    ]
    spent = sorted(((best(pair), pair) for pair in pairs), reverse=True, key=lambda each: each[0])
    over = sum(seconds > 0.05 for seconds, _ in spent)
    print(f"hostile texts: {len(pairs):,} pairs, {over} over 50 ms; the slowest:")
    for seconds, (gold, response) in spent[:5]:
        print(f"  {seconds * 1e3:8.2f} ms  gold {gold[:20]!a}, response {response[:50]!a}")


def best(pair: Pair) -> float:
    """Processor seconds of one pair; of three runs the fastest, where one is slow."""
    seconds = time_grader([pair]).processor
    return min(
        [seconds, *(time_grader([pair]).processor for _ in range(2 if seconds > 0.01 else 0))]
    )


if __name__ == "__main__":
    typer.run(main)
