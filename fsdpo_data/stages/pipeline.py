"""The whole way in one run: sample, grade, label, score, pair, sealed once at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fsdpo_data.core.progress import Progress
from fsdpo_data.dataset.derive import Stage, plain_specs, write_derived
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.run import claim
from fsdpo_data.engines.samplers import Sampler, release
from fsdpo_data.problems.load import ProblemSet
from fsdpo_data.stages.sample import BuildSpec, build

#: Folder of the sampled dataset, and of its raw completions, inside the run directory.
BUILD = "build"


def build_and_derive(
    spec: BuildSpec,
    source: ProblemSet,
    make_sampler: Callable[[], Sampler],
    out: Path,
    stages: Sequence[Stage],
    *,
    resume: bool = False,
    batch: int = 64,
    workers: int | None = None,
    progress: Progress,
) -> Manifest:
    """Build a dataset in ``out/build`` and seal in ``out`` what ``stages`` make of it.

    The directory belongs to the whole way from the first sample on: a run that is stopped at any
    stage goes on there, and one that asks for something else is refused before it samples.

    Args:
        spec: What to sample.
        source: The problems.
        make_sampler: Called only if samples are owed.
        out: Run directory.
        stages: What to make of the samples.
        resume: Whether to go on with a run that is there.
        batch: Problems per durable batch.
        workers: Processes for grading; the cores at hand if None.
        progress: Told of every batch.

    Returns:
        The manifest of the dataset in ``out``.

    Raises:
        InputError: if there is no problem to solve, or nothing to make of the solutions.
        RunMismatch: if ``out`` holds another run.
        StoreError: if the disk fails; what was written stays valid.
    """
    samplers: list[Sampler] = []

    def remembered() -> Sampler:
        samplers.append(make_sampler())
        return samplers[-1]

    config = {"build": spec.config(source.problems), "stages": plain_specs(stages)}
    with claim(out, config, resume=resume):
        build(
            spec,
            source,
            remembered,
            out / BUILD,
            resume=True,  # the directory is claimed: whatever is in it is of this run
            batch=batch,
            workers=workers,
            progress=progress,
        )
        for sampler in samplers:
            release(sampler)  # the next model may need the memory
        return write_derived(out / BUILD, out, stages, progress)
