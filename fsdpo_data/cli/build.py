"""``fsdpo-data build``: options to a spec, engines and problems."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import digest
from fsdpo_data.core.progress import progress
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.dataset.derive import Stage, plain_specs
from fsdpo_data.engines.load import Host
from fsdpo_data.models.resolve import ResolvedModel, resolve
from fsdpo_data.problems.load import ProblemSet, load_problems
from fsdpo_data.stages.pipeline import build_and_derive
from fsdpo_data.stages.sample import BuildOptions, BuildSpec, build
from fsdpo_data.steps.segment import get_segmenter

if TYPE_CHECKING:
    pass


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
    host = Host.pick(options)
    spec = make_spec(model, source, sampling, segmenter, host.engine, options)
    stages = _stages(options)
    out = options.out or _default_out(spec, source, stages)
    with progress() as shown:
        how: dict[str, Any] = {
            "resume": options.resume,
            "batch": options.batch or host.batch_size,
            "workers": options.workers,
            "progress": shown,
        }
        if stages:
            manifest = build_and_derive(
                spec, source, lambda: host.load("sampler", model), out, stages, **how
            )
        else:
            manifest = build(spec, source, lambda: host.load("sampler", model), out, **how)
    print_summary(manifest, f"sealed {out}")
    print(f"\nnext: fsdpo-data inspect {out}")


def _check(options: BuildOptions) -> None:
    if options.limit is not None and options.limit < 1:
        raise InputError(f"--limit {options.limit}: expected at least 1.")
    if options.device == "cpu" and options.engine == "vllm":
        raise InputError("--device cpu: vLLM runs on what it was built for. Leave --device out.")
    here = not options.on_cluster and options.replay is None
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
    from fsdpo_data.answers.grader import get_grader

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


def _stages(options: BuildOptions) -> list[Stage]:
    """Return what follows the samples: with ``--prm``, rewards and pairs."""
    if options.prm is None:
        return []
    from fsdpo_data.engines.options import ScorerOptions
    from fsdpo_data.pairs.best_worst import PairSpec
    from fsdpo_data.stages.pair import PairStage
    from fsdpo_data.stages.score import make_score_stage

    engine = "auto" if options.engine == "scripted" else options.engine
    score = ScorerOptions(
        engine=engine, device=options.device, dtype=options.dtype, actors=options.actors
    )
    return [make_score_stage(options.prm, score), PairStage(PairSpec(top=options.top))]


def _default_out(spec: BuildSpec, source: ProblemSet, stages: Sequence[Stage]) -> Path:
    name = re.sub(r"[^\w.-]+", "-", spec.model.name).strip("-.") or "model"
    config = spec.config(source.problems)
    key = digest(config, plain_specs(stages)) if stages else digest(config)
    return Path("runs") / f"{name}-{key[:8]}"
