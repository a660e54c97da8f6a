"""From options to who continues solutions, for labels and for pairs of steps."""

from __future__ import annotations

import logging
from pathlib import Path

from fsdpo_data.core.errors import InputError
from fsdpo_data.dataset.manifest import Manifest, read_manifest
from fsdpo_data.engines.load import Host
from fsdpo_data.models.resolve import Weights, resolve_weights
from fsdpo_data.stages.continuations import ContinueOptions, Continuer, continuation_sampling

log = logging.getLogger(__name__)


def make_continuer(options: ContinueOptions, n: int) -> Continuer:
    """Resolve the model that gives ``n`` continuations; its weights are loaded when needed.

    Raises:
        InputError: if the model is not the one that sampled.
        Unavailable: if the engine is not installed, or there is no such model.
    """
    manifest = read_manifest(Path(options.data))
    model = _who_continues(options, manifest)
    host = Host.pick(options)
    sampling = continuation_sampling(
        manifest,
        n,
        temperature=options.temperature,
        top_p=options.top_p,
        max_tokens=options.max_tokens,
        seed=options.seed,
    )
    return Continuer(
        model.ref,
        sampling,
        {"name": host.engine, "dtype": options.dtype},
        lambda: host.load("sampler", model),
        batch=options.batch_size or host.batch_size,
    )


def _who_continues(options: ContinueOptions, manifest: Manifest) -> Weights:
    """Resolve the model; unless it is named, it must be the one that sampled the solutions."""
    sampled = manifest.spec.model
    model = resolve_weights(options.model or sampled.name)
    if model.ref.revision != sampled.revision:
        found = f"{model.ref.name} at {model.ref.revision}"
        if options.model is None:
            raise InputError(
                f"{options.data} was sampled from {sampled.name} at {sampled.revision}; "
                f"that name is now {found}. Name the model that continues: `model`."
            )
        log.warning("the solutions are not of %s, which continues them", found)
    return model
