"""Progress of a run by finished prompt, and Ctrl-C: the count of what is kept, and how to go on."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from bench_runs import written
from command_line import interrupted
from fakes import Judge, Writer
from fsdpo_bench.decode.beam import BeamSpec
from fsdpo_bench.decode.plan import DecodingPlan
from fsdpo_bench.runs.run import BenchJob, RunSpec, decode_tasks, limit_problems
from fsdpo_bench.tasks.load import load_task
from fsdpo_bench.tasks.table import builtin_tasks

from fsdpo_data.core.progress import Progress
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.engines.samplers import PromptResult, StreamingSampler
from fsdpo_data.models.prompts import get_template

#: Runs the command line with a sampler that takes its time, and does not get to the end: however
#: late Ctrl-C comes, there is something left to do.
SLOW = """
import itertools, time
from fsdpo_data.engines.samplers.replay import ReplaySampler
replay, count = ReplaySampler._replay, itertools.count()
def slow(self, *asked):
    time.sleep(0.2 if next(count) < 20 else 600)
    return replay(self, *asked)
ReplaySampler._replay = slow
from fsdpo_bench.cli.app import main
main()
"""


def test_a_ctrl_c_counts_what_is_kept(tmp_path: Path) -> None:
    questions = [f"What is 20 + 22, the {index}th time?" for index in range(40)]
    task = written(tmp_path / "sums.jsonl", [{"question": q, "answer": "42"} for q in questions])
    said = [{"text": "The answer is 42.", "finish_reason": "stop", "n_tokens": 9}]
    template = get_template("problem")
    rows = [{"prompt": template.render(q), "completions": said} for q in questions]
    line = [sys.executable, "-c", SLOW, "run", "--engine", "replay", "--task", str(task)]
    line += ["--replay", str(written(tmp_path / "said.jsonl", rows)), "--template", "problem"]
    line += ["--batch-size", "5", "--workers", "1", "--out", str(tmp_path / "run")]
    log = tmp_path / "run/records/sums.jsonl"
    told = interrupted(line, log, wait=0.5)  # in the middle of the next batch
    kept = len(log.read_bytes().splitlines())
    assert 0 < kept < 40 and kept % 5 == 0
    assert f"sums: {kept} of 40 are done" in told
    assert f"--out {tmp_path / 'run'} --resume\n" in told


class Bar(Progress):
    def __init__(self) -> None:
        self.done = [0]

    def advance(self, units: int, tokens: int = 0) -> None:
        self.done.append(self.done[-1] + units)


class Streaming(StreamingSampler):
    """Finishes one prompt after the other; stops before the prompt of a number."""

    model = Writer.model

    def __init__(self, stop: int = sys.maxsize) -> None:
        self._writer, self._left = Writer(0), stop

    def stream(self, prompts: Sequence[str], spec: SamplingSpec) -> Iterator[PromptResult]:
        for place, prompt in enumerate(prompts):
            if not self._left:
                raise KeyboardInterrupt
            self._left -= 1
            yield PromptResult(place, self._writer.sample([prompt], spec)[0])


def watched(out: Path, plan: DecodingPlan, sampler: Streaming) -> list[int]:
    """Run seven problems in batches of four, and return what the bar showed."""
    parts, bar = [limit_problems(load_task(builtin_tasks()["embedded"]), 7)], Bar()
    sampling, prm = SamplingSpec(n=max(1, plan.n_samples)), {"name": "judge", "revision": "0"}
    spec = RunSpec(
        sampler.model, get_template("problem"), sampling, {"name": "x"}, "newline@1", plan, prm
    )
    try:
        job = BenchJob(spec, parts, lambda: sampler, lambda: Judge(0), batch_size=4, workers=1)
        decode_tasks(job, out, progress=bar)
    except KeyboardInterrupt:
        bar.done.append(-1)
    return bar.done


def test_the_bar_moves_by_finished_prompt(tmp_path: Path) -> None:
    assert watched(tmp_path / "run", DecodingPlan(("greedy",)), Streaming()) == list(range(8))


@pytest.mark.parametrize("decoders", [("greedy", "sc"), ("greedy", "sc", "sbs")])
def test_several_decoders_share_the_bar(tmp_path: Path, decoders: tuple[str, ...]) -> None:
    beams = (BeamSpec(b1=2, b2=1), BeamSpec(b1=2, b2=2)) if "sbs" in decoders else ()
    done = watched(tmp_path / "run", DecodingPlan(decoders, (2,), "min", beams), Streaming())
    assert done == sorted(done) and done[-1] == 7 and {1, 2, 3, 4} <= {*done}


def test_a_batch_that_is_broken_off_is_not_counted(tmp_path: Path) -> None:
    assert watched(tmp_path / "run", DecodingPlan(("greedy",)), Streaming(6)) == [*range(7), 4, -1]
