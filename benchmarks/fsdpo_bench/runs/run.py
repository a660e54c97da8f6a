"""The runner: decode every problem of some benchmarks, durably, and keep what came out.

The unit that survives a stop is a problem with everything decoded of it. Problems are decoded in
batches that begin at fixed places; one that was broken off is decoded again whole, so that its
make-up, and with it the last bit of every number, is what it would have been.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from fsdpo_bench.decode.beam import beam_search
from fsdpo_bench.decode.plan import DecodingPlan, beam_name
from fsdpo_bench.decode.solution import (
    DecodedSolution,
    DecodingCost,
    OnFinished,
    add_rewards,
    greedy_sampling,
    sample_solutions,
)
from fsdpo_bench.decode.vote import cost_row, solution_row
from fsdpo_bench.runs.records import open_records, record_key
from fsdpo_bench.runs.regrade import grade_records
from fsdpo_bench.tasks.load import LoadedTask
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.core.identity import ModelRef, to_json_values
from fsdpo_data.core.jsonl_log import encode_line
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.sampling import UNKNOWN, SamplingSpec
from fsdpo_data.dataset.run import lock_run_directory
from fsdpo_data.engines.samplers import Sampler
from fsdpo_data.engines.scorers import Scorer
from fsdpo_data.models.prompts import Template
from fsdpo_data.problems.load import draw_positions, problems_digest

RUN_VERSION = 1  #: Raised when the meaning of a run's config or records changes.


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Everything that decides what a run contains; its digest is the run's identity."""

    model: ModelRef
    template: Template
    sampling: SamplingSpec  #: How it samples; ``n`` is ``max(1, plan.samples)``.
    engine: Mapping[str, str]
    segmenter: str  #: What a step is; full name.
    plan: DecodingPlan
    prm: Mapping[str, Any] | None = None  #: The reward model with what runs it; None without one.
    unknown: tuple[str, ...] = ()  #: Of a replay, fields of ``sampling`` that nobody has stated.

    def config(self, parts: Sequence[LoadedTask]) -> dict[str, Any]:
        """Return the spec as plain JSON, with the benchmarks it is run on."""
        config = {
            "kind": "bench",
            "version": RUN_VERSION,
            "model": self.model,
            "template": {"name": self.template.name, "digest": self.template.digest},
            "sampling": self.sampling.to_json_values() | dict.fromkeys(self.unknown, UNKNOWN),
            "engine": dict(self.engine),
            "segmenter": self.segmenter,
            "grader": MathGrader().version,
            "prm": None if self.prm is None else dict(self.prm),
            "decoders": self.plan.names,
            "beam": self.plan.beam_config(),
            "tasks": {part.task.name: _task_config(part) for part in parts},
        }
        return to_json_values(config)


def _task_config(part: LoadedTask) -> dict[str, Any]:
    return {
        "title": part.task.title,
        "version": part.task.version,
        "rows": part.task.count,
        "digest": part.digest,
        "problems": len(part.problems),
        "decoded": problems_digest(part.ids),
        "tolerance": part.task.tolerance,
        **{key: told for key in ("base_task", "spread_group") if (told := getattr(part.task, key))},
        "source": part.ref,
    }


def limit_problems(loaded: LoadedTask, limit: int | None, seed: int = 0) -> LoadedTask:
    """Return ``limit`` problems of a benchmark, drawn as a dataset's are; all if None."""
    return loaded if limit is None else loaded.part(draw_positions(loaded.ids, limit, seed))


@dataclass(frozen=True, slots=True)
class BenchJob:
    """A run that is ready to start; models are made only if something is owed."""

    spec: RunSpec
    parts: Sequence[LoadedTask]
    make_sampler: Callable[[], Sampler]
    make_scorer: Callable[[], Scorer]
    batch_size: int = 32
    workers: int | None = None  #: Processes that grade; the cores at hand if None.

    @property
    def config(self) -> dict[str, Any]:
        """What the run is, as plain JSON."""
        return self.spec.config(self.parts)


def run(job: BenchJob, out: Path, *, resume: bool = False, progress: Progress) -> None:
    """Decode every problem that is owed, and keep the records.

    Raises:
        RunMismatchError: if ``out`` holds another run.
        StoreError: if the disk fails; what was written stays valid.
    """
    passes = job.spec.plan.passes
    job = replace(job, make_sampler=cache(job.make_sampler), make_scorer=cache(job.make_scorer))
    with lock_run_directory(out, job.config, resume=resume):
        for part in job.parts:
            with open_records(out, part.task.name) as records:
                done = len(records.line_spans)
                progress.phase(part.task.name, len(part.problems), done=done)
                for rows, keys in _missing_batches(part, records.line_spans.keys(), job.batch_size):
                    with _batch_progress(progress, len(keys), len(rows) * passes) as finished:
                        decoding = _BatchDecoder(job, finished)
                        found = {record_key(each): each for each in decoding.records(part, rows)}
                        records.append(
                            {key: encode_line(found[key]) for key in found if key in keys}
                        )


@contextmanager
def _batch_progress(progress: Progress, problems: int, steps: int) -> Iterator[OnFinished]:
    """Tell of the problems of a batch while decoders finish ``steps`` prompts in all.

    A batch that is broken off is decoded again whole, so none of it is done.
    """
    taken = told = 0

    def on_finished(prompts: int, tokens: int) -> None:
        nonlocal taken, told
        taken += prompts
        done = problems * taken // steps
        progress.advance(done - told, tokens)
        told = done

    try:
        yield on_finished
    except BaseException:
        progress.advance(-told)
        raise


def _missing_batches(
    part: LoadedTask, there: Set[str], batch: int
) -> Iterator[tuple[range, Set[str]]]:
    """Yield the rows of every batch that is not whole yet, and the keys that it lacks."""
    for start in range(0, len(part.ids), batch):
        rows = range(start, min(start + batch, len(part.ids)))
        if keys := {f"{part.ids[row]}/{row}" for row in rows} - there:
            yield rows, keys


@dataclass(frozen=True, slots=True)
class _BatchDecoder:
    """Runs the decoders of a plan on batches of problems."""

    job: BenchJob
    on_finished: OnFinished

    def records(self, part: LoadedTask, rows: range) -> list[dict[str, Any]]:
        """Decode the problems in some rows of a benchmark, grade, and return their records."""
        questions = [part.problems[row].question for row in rows]
        spec = self.job.spec
        prompts = [spec.template.render(question) for question in questions]
        samples, own = self._samples(prompts, questions), self._own(prompts, questions)
        records = []
        for place, row in enumerate(rows):
            problem = part.problems[row]
            made = {name: found[place] for name, found in own.items()}
            record = {
                "task": part.task.name,
                "row": row,
                "problem_id": part.ids[row],
                "question": problem.question,
                "gold": problem.answer,
                "metadata": part.task.record_metadata(problem.metadata),
                "prompt": prompts[place],
                "samples": list(map(solution_row, samples[place])),
                "decoded": {
                    name: {"solution": solution_row(each)} for name, (each, _) in made.items()
                },
                "cost": {name: cost_row(cost) for name, (_, cost) in made.items()},
            }
            records.append(record)
        return grade_records(part.task, records, spec.plan, spec.plan.names, self.job.workers)

    def _samples(
        self, prompts: Sequence[str], questions: Sequence[str]
    ) -> list[list[DecodedSolution]]:
        """Draw the samples that several decoders share, with rewards if any of them needs them."""
        spec = self.job.spec
        if not spec.plan.samples:
            return [[] for _ in prompts]
        drawn = sample_solutions(
            prompts, self.job.make_sampler(), spec.sampling, spec.segmenter, self.on_finished
        )
        if not {"weighted", "bon"} & set(spec.plan.decoders):
            return drawn
        return add_rewards(prompts, drawn, self.job.make_scorer(), questions)

    def _own(
        self, prompts: Sequence[str], questions: Sequence[str]
    ) -> dict[str, list[tuple[DecodedSolution, DecodingCost]]]:
        """Return the solutions of decoders that make their own, by the name of the result."""
        spec = self.job.spec
        found = {}
        if "greedy" in spec.plan.decoders:
            how = greedy_sampling(spec.sampling)
            alone = sample_solutions(
                prompts, self.job.make_sampler(), how, spec.segmenter, self.on_finished
            )
            if spec.prm is not None:  # for readers; it decides nothing, so nothing is charged
                alone = add_rewards(prompts, alone, self.job.make_scorer(), questions)
            found["greedy"] = [
                (each, DecodingCost(each.n_tokens, 0, each.seconds)) for [each] in alone
            ]
        for beam in spec.plan.beams:
            engines = self.job.make_sampler(), self.job.make_scorer()
            found[beam_name(beam)] = beam_search(
                prompts, *engines, spec.sampling, spec.segmenter, beam, self.on_finished, questions
            )
        return found
