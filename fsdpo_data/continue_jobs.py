"""Options of the command line to a stage that continues solutions: labels, and pairs of steps."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsdpo_data.continuations import Continuer, continuation_sampling
from fsdpo_data.errors import InputError
from fsdpo_data.jobs import BATCH, make_sampler, pick_engine
from fsdpo_data.manifest import Manifest, read_manifest
from fsdpo_data.models import ResolvedModel, resolve


@dataclass(frozen=True, slots=True)
class ContinueOptions:
    """The options that ``fsdpo-data label`` and ``pair`` share, as typed; see their ``--help``.

    Attributes:
        source: The dataset whose solutions are continued.
        n: Continuations of each beginning.
        model: Who continues; the model that sampled if None.
        temperature: As the solutions were sampled if None, like the next two.
        top_p: Nucleus mass.
        max_tokens: Tokens per continuation.
        engine: ``auto``, ``vllm``, ``transformers`` or ``scripted``.
        replay: Recorded continuations, for ``scripted``.
        device: Where the transformers engine runs.
        dtype: Precision of the weights.
        engine_args: Passed on to vLLM.
        batch: Beginnings per durable batch; by engine if None.
        seed: Continuation i depends on seed, beginning, i.
    """

    source: Path
    n: int
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
    seed: int


def make_continuer(options: ContinueOptions) -> Continuer:
    """Check the options and resolve the model; its weights are loaded when they are needed.

    Raises:
        InputError: if options do not go together, or the model is not the one that sampled.
        Unavailable: if the engine is not installed, or there is no such model.
    """
    if (options.engine == "scripted") != (options.replay is not None):
        raise InputError("--engine scripted and --replay FILE go together; give both or neither.")
    manifest = read_manifest(options.source)
    model = _who_continues(options, manifest)
    engine = pick_engine(options.engine, options.device)
    sampling = continuation_sampling(
        manifest,
        options.n,
        temperature=options.temperature,
        top_p=options.top_p,
        max_tokens=options.max_tokens,
        seed=options.seed,
    )
    return Continuer(
        model.ref,
        sampling,
        {"name": engine, "dtype": options.dtype},
        lambda: make_sampler(engine, model, options),
        batch=options.batch or BATCH[engine],
    )


def _who_continues(options: ContinueOptions, manifest: Manifest) -> ResolvedModel:
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
