"""Options of the command line to a labelling stage."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsdpo_data.console import progress
from fsdpo_data.derive import derive
from fsdpo_data.errors import InputError
from fsdpo_data.jobs import BATCH, make_sampler, pick_engine
from fsdpo_data.manifest import Manifest, read_manifest
from fsdpo_data.models import ResolvedModel, resolve
from fsdpo_data.rollouts import LabelStage, check_rollouts, cost_line, rollout_sampling


@dataclass(frozen=True, slots=True)
class LabelOptions:
    """The options of ``fsdpo-data label``, as typed; see its ``--help``."""

    source: Path
    out: Path
    rollouts: int
    model: str | None
    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    engine: str
    replay: Path | None
    device: str
    dtype: str
    engine_args: Mapping[str, Any]
    batch: int | None
    workers: int | None
    seed: int
    resume: bool


def run_label(options: LabelOptions) -> None:
    """Check the options, label, and say what came out and what it cost."""
    from fsdpo_data.summary import print_summary

    check_rollouts(options.rollouts)
    if (options.engine == "scripted") != (options.replay is not None):
        raise InputError("--engine scripted and --replay FILE go together; give both or neither.")
    manifest = read_manifest(options.source)
    model = _who_continues(options, manifest)
    engine = pick_engine(options.engine, options.device)
    sampling = rollout_sampling(
        manifest,
        options.rollouts,
        temperature=options.temperature,
        top_p=options.top_p,
        max_tokens=options.max_tokens,
        seed=options.seed,
    )
    stage = LabelStage(
        model.ref,
        sampling,
        {"name": engine, "dtype": options.dtype},
        lambda: make_sampler(engine, model, options),
        batch=options.batch or BATCH[engine],
        workers=options.workers,
    )
    with progress() as shown:
        labelled = derive(
            options.source, options.out, [stage], resume=options.resume, progress=shown
        )
    print_summary(labelled, f"sealed {options.out}")
    print(f"\n{cost_line(labelled['rollouts'])}")
    print(f"next: fsdpo-train prm --data {options.out} --labels rollouts --out NEW")


def _who_continues(options: LabelOptions, manifest: Manifest) -> ResolvedModel:
    """Resolve the model; without ``--model``, it must be the one that sampled the solutions."""
    sampled = manifest["spec"]["model"]
    # The prompts are in the dataset: the template is named only to need no chat template.
    model = resolve(options.model or sampled["name"], template="problem")
    if model.ref.revision != sampled["revision"]:
        found = f"{model.ref.name} at {model.ref.revision}"
        if options.model is None:
            raise InputError(
                f"{options.source} was sampled from {sampled['name']} at {sampled['revision']}; "
                f"that name is now {found}. Name the model that continues with --model."
            )
        print(f"warning: the solutions are not of {found}, which continues them", file=sys.stderr)
    return model
