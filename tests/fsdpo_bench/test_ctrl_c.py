"""Progress of a run by finished prompt, and the message after Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from bench_runs import written
from command_line import press_ctrl_c
from fakes import Judge, Writer
from fsdpo_bench.decode.plan import DecodingPlan
from fsdpo_bench.runs.run import BenchJob, RunSpec, decode_tasks, limit_problems
from fsdpo_bench.tasks.load import load_task
from fsdpo_bench.tasks.table import builtin_tasks

from fsdpo_data.core.progress import Progress
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.engines.beam_search import BeamSpec
from fsdpo_data.engines.samplers import PromptResult, StreamingSampler
from fsdpo_data.models.prompts import get_template

#: Runs the command line with a slow sampler that never finishes, so Ctrl-C always interrupts it.
SLOW_PROGRAM = """
import itertools, time
from fsdpo_data.engines.samplers.replay import ReplaySampler
replay, count = ReplaySampler._replay, itertools.count()
def slow(self, *arguments):
    time.sleep(0.2 if next(count) < 20 else 600)
    return replay(self, *arguments)
ReplaySampler._replay = slow
from fsdpo_bench.cli.app import main
main()
"""


def test_ctrl_c_prints_the_number_of_saved_records(tmp_path: Path) -> None:
    questions = [f"What is 20 + 22, the {index}th time?" for index in range(40)]
    task = written(tmp_path / "sums.jsonl", [{"question": q, "answer": "42"} for q in questions])
    completions = [{"text": "The answer is 42.", "finish_reason": "stop", "n_tokens": 9}]
    template = get_template("problem")
    rows = [{"prompt": template.render(q), "completions": completions} for q in questions]
    line = [sys.executable, "-c", SLOW_PROGRAM, "run", "--engine", "replay", "--task", str(task)]
    line += ["--replay", str(written(tmp_path / "said.jsonl", rows)), "--template", "problem"]
    line += ["--batch-size", "5", "--workers", "1", "--out", str(tmp_path / "run")]
    log = tmp_path / "run/records/sums.jsonl"
    output = press_ctrl_c(line, log, wait=0.5)  # in the middle of the next batch
    n_records = len(log.read_bytes().splitlines())
    assert 0 < n_records < 40 and n_records % 5 == 0
    assert f"sums: {n_records} of 40 are done" in output
    assert f"--out {tmp_path / 'run'} --resume\n" in output


class Bar(Progress):
    def __init__(self) -> None:
        self.done = [0]

    def advance(self, units: int, tokens: int = 0) -> None:
        self.done.append(self.done[-1] + units)


class Streaming(StreamingSampler):
    """Sampler that finishes prompts in order and is interrupted after ``stop`` prompts."""

    model = Writer.model

    def __init__(self, stop: int = sys.maxsize) -> None:
        self._writer = Writer(0)
        self._left = stop

    def stream(self, prompts: Sequence[str], spec: SamplingSpec) -> Iterator[PromptResult]:
        for index, prompt in enumerate(prompts):
            if not self._left:
                raise KeyboardInterrupt
            self._left -= 1
            yield PromptResult(index, self._writer.sample([prompt], spec)[0])


def run_and_record_progress(out: Path, plan: DecodingPlan, sampler: Streaming) -> list[int]:
    """Run seven problems in batches of four and return the progress values."""
    parts = [limit_problems(load_task(builtin_tasks()["embedded"]), 7)]
    bar = Bar()
    sampling = SamplingSpec(n=max(1, plan.n_samples))
    prm = {"name": "judge", "revision": "0"}
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
    assert run_and_record_progress(
        tmp_path / "run", DecodingPlan(("greedy",)), Streaming()
    ) == list(range(8))


@pytest.mark.parametrize("decoders", [("greedy", "sc"), ("greedy", "sc", "sbs")])
def test_several_decoders_share_the_bar(tmp_path: Path, decoders: tuple[str, ...]) -> None:
    beams = (BeamSpec(b1=2, b2=1), BeamSpec(b1=2, b2=2)) if "sbs" in decoders else ()
    done = run_and_record_progress(
        tmp_path / "run", DecodingPlan(decoders, (2,), "min", beams), Streaming()
    )
    assert done == sorted(done) and done[-1] == 7 and {1, 2, 3, 4} <= {*done}


def test_an_interrupted_batch_is_removed_from_the_progress_count(tmp_path: Path) -> None:
    assert run_and_record_progress(tmp_path / "run", DecodingPlan(("greedy",)), Streaming(6)) == [
        *range(7),
        4,
        -1,
    ]
