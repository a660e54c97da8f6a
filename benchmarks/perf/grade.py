"""Compare the grader with math-verify and with an earlier commit of itself.

    python -m venv .venv-math-verify
    .venv-math-verify/bin/pip install 'math-verify[antlr4_13_2]==0.9.0'
    git worktree add ../before COMMIT
    python benchmarks/perf/grade.py --peer .venv-math-verify/bin/python --outputs DIR \
        --before ../before

All graders grade the same pairs one after the other, each in one process. The pairs are:

- the hard set, `tests/data/grader_cases.jsonl`;
- with `--outputs`, real responses with their golds. DIR is a directory of published model outputs
  (`openai_gsm8k/`, `qwen_math_cot/`, `nemo_skills/`, `abel_gsm8k/`).

For real outputs, the time of one call of `fsdpo_data.grade` per answer is compared with a batch.
For the hard set, a table shows the right verdicts and the false positives of each kind of case.
Then our grader grades every text of `tests/support/hostile.py` against several golds, and the
slowest pairs are printed. Without `--peer` and `--before` only our grader is measured. Rates are
per second of processor time, so other processes do not disturb them. Latencies are clock times.
"""

import json
import random
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import grade_peer
import typer
from typer import Option

import fsdpo_data
from fsdpo_data.answers import GradingRequest
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.exchange.outputs import read_outputs

TESTS = Path(__file__).parents[2] / "tests"
sys.path.insert(0, str(TESTS / "support"))
from hostile import ANSWERS, RESPONSES, fuzz  # noqa: E402

#: A gold answer and a response.
Pair = tuple[str, str]
#: Published model outputs, relative to the directory of ``--outputs``.
OUTPUTS = (
    "openai_gsm8k/example_model_solutions.jsonl",
    "qwen_math_cot/math_cot_100.jsonl",
    "nemo_skills/output-rs0.jsonl",
    "nemo_skills/output-rs1.jsonl",
    "abel_gsm8k/7b_first300.jsonl",
)
OWN_GRADER = grade_peer.load_checkout(str(TESTS.parent))
#: Golds that the hostile texts are compared with.
GOLDS = ["5", "\\frac{1}{2}", "x^2+1", "[0,1)", "3, 5", "y=2x+3", "\\text{even}"]


@dataclass(frozen=True)
class Timing:
    """Timing and verdicts of one grader on a list of pairs."""

    seconds: list[float]  #: Clock seconds of each pair.
    correct: list[bool]  #: Whether the grader accepts each response.
    processor: float  #: Processor seconds of all pairs together.
    raised: int  #: Pairs on which the grader raised an exception.

    @property
    def rate(self) -> float:
        """Pairs per second of processor time."""
        return len(self.seconds) / self.processor

    def format_line(self, name: str, labels: list[bool] | None) -> str:
        """Return one line of the report; ``labels`` are the true verdicts, if there are any."""
        percentiles = statistics.quantiles(self.seconds, n=100, method="inclusive")
        over_limit = sum(seconds > 2 for seconds in self.seconds)
        line = (
            f"  {name:<12} {self.rate:9,.0f} pairs/s   p50 {percentiles[49] * 1e3:7.3f} ms   "
            f"p99 {percentiles[98] * 1e3:8.3f} ms   max {max(self.seconds) * 1e3:9.2f} ms   "
            f"over 2 s {over_limit}"
        )
        if self.raised:
            line += f"   raised {self.raised}"
        if labels:
            right = sum(a == b for a, b in zip(self.correct, labels, strict=True))
            line += f"   right {right} of {len(labels)} ({right / len(labels):.1%})"
        return line


def main(
    peer: Annotated[Path | None, Option(help="Python of an environment with math-verify.")] = None,
    outputs: Annotated[Path | None, Option(help="Directory of published model outputs.")] = None,
    earlier: Annotated[
        Path | None, Option("--before", help="Checkout of an earlier commit.")
    ] = None,
    limit: Annotated[int, Option(help="Pairs of each set.")] = 5000,
) -> None:
    """Time the grader on the hard set, on real outputs and on hostile texts."""
    script = str(Path(__file__).with_name("grade_peer.py"))
    peer_commands: dict[str, list[str]] = {}
    if earlier:
        peer_commands["before"] = [sys.executable, script, str(earlier)]
    if peer:
        peer_commands["math-verify"] = [str(peer), script]
    lines = (TESTS / "data/grader_cases.jsonl").read_text(encoding="utf-8").splitlines()
    cases = draw_sample([json.loads(line) for line in lines], limit)
    labels = [case["correct"] for case in cases]
    timings = compare("hard set", box_answers(cases), labels, peer_commands)
    print_by_kind(cases, {name: timing.correct for name, timing in timings.items()})
    if outputs:
        responses = [output for file in OUTPUTS for output in read_outputs(outputs / file)]
        pairs = draw_sample([(output.gold, output.completion.text) for output in responses], limit)
        compare("real model outputs", pairs, None, peer_commands)
        time_single_calls(pairs)
    time_hostile_texts()


def box_answers(cases: Sequence[dict[str, Any]]) -> list[Pair]:
    """Return each case's gold and response; a case without a response gives a boxed answer."""
    return [
        (case["gold"], case.get("response", f"$\\boxed{{{case.get('answer', '')}}}$"))
        for case in cases
    ]


def print_by_kind(cases: Sequence[dict[str, Any]], verdicts: dict[str, list[bool]]) -> None:
    """Print each grader's right verdicts and false positives for each kind of case."""
    indices_by_kind: dict[str, list[int]] = defaultdict(list)
    for index, case in enumerate(cases):
        indices_by_kind[case["kind"]].append(index)
        indices_by_kind["all"].append(index)
    header = f"  {'right, false positives':<28}{'cases':>7}"
    print(header + "".join(f"{name:>18}" for name in verdicts))
    for kind, indices in sorted(indices_by_kind.items(), key=lambda entry: -len(entry[1])):
        line = f"  {kind:<28}{len(indices):7,}"
        for correct in verdicts.values():
            right = sum(correct[index] == cases[index]["correct"] for index in indices)
            false_positives = sum(
                correct[index] and not cases[index]["correct"] for index in indices
            )
            line += f"{right / len(indices):12.1%}{false_positives:6}"
        print(line)


def draw_sample(items: list[Any], limit: int) -> list[Any]:
    """Return at most ``limit`` items, the same items in every run."""
    return items if len(items) <= limit else random.Random(0).sample(items, limit)


def compare(
    name: str,
    pairs: list[Pair],
    labels: list[bool] | None,
    peer_commands: dict[str, list[str]],
) -> dict[str, Timing]:
    """Time our grader and the peers on the same pairs, and print the ratios of their rates."""
    print(f"{name}: {len(pairs):,} pairs, one process")
    peer_timings = {peer: time_peer(command, pairs) for peer, command in peer_commands.items()}
    timings = {"fsdpo": time_own_grader(pairs), **peer_timings}
    for grader, timing in timings.items():
        print(timing.format_line(grader, labels))
    for peer in peer_commands:
        ratio = timings["fsdpo"].rate / timings[peer].rate
        print(f"  {ratio:.2f} times the pairs per second of {peer}")
    return timings


def time_own_grader(pairs: list[Pair]) -> Timing:
    """Grade pairs one by one with the grader of this checkout."""
    return Timing(**grade_peer.time_grader(OWN_GRADER, pairs))


def time_peer(command: list[str], pairs: list[Pair]) -> Timing:
    """Grade the same pairs with another grader, in its own environment."""
    completed = subprocess.run(
        command, input=json.dumps(pairs), stdout=subprocess.PIPE, text=True, check=True
    )
    return Timing(**json.loads(completed.stdout))


def time_single_calls(pairs: list[Pair]) -> None:
    """Print the time per answer of single calls of ``fsdpo_data.grade``, and of one batch.

    The two grade different halves of the pairs, because repeated answers are cached.
    """
    fsdpo_data.grade(*pairs[0])  # the first call imports modules
    single_pairs = pairs[1::2]
    requests = [GradingRequest(gold, response) for gold, response in pairs[2::2]]
    start = time.process_time()
    for gold, response in single_pairs:
        fsdpo_data.grade(gold, response)
    single = (time.process_time() - start) / len(single_pairs)
    start = time.process_time()
    MathGrader().grade(requests)
    batch = (time.process_time() - start) / len(requests)
    print(
        f"  one call per answer: {single * 1e6:,.0f} µs, in one batch: {batch * 1e6:,.0f} µs, "
        f"{single / batch:.2f} times"
    )


def time_hostile_texts() -> None:
    """Grade the hostile texts and print the five slowest pairs."""
    pairs = [
        *((gold, f"\\boxed{{{answer}}}") for answer in ANSWERS for gold in GOLDS),
        *((answer, f"\\boxed{{{answer} 1}}") for answer in ANSWERS),
        *((gold, response) for response in RESPONSES for gold in GOLDS[:3]),
        *(("x^2+1", f"\\boxed{{{text}}}") for text in fuzz(3, 5000)),
    ]
    timed_pairs = [(fastest_seconds(pair), pair) for pair in pairs]
    timed_pairs.sort(key=lambda timed_pair: timed_pair[0], reverse=True)
    over_limit = sum(seconds > 0.05 for seconds, _ in timed_pairs)
    print(f"hostile texts: {len(pairs):,} pairs, {over_limit} over 50 ms; the slowest:")
    for seconds, (gold, response) in timed_pairs[:5]:
        print(f"  {seconds * 1e3:8.2f} ms  gold {gold[:20]!a}, response {response[:50]!a}")


def fastest_seconds(pair: Pair) -> float:
    """Return the processor seconds of one pair: if it is slow, the minimum of three runs."""
    seconds = time_own_grader([pair]).processor
    if seconds <= 0.01:
        return seconds
    return min(seconds, time_own_grader([pair]).processor, time_own_grader([pair]).processor)


if __name__ == "__main__":
    typer.run(main)
