"""Options of the command line to a scoring stage."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

from fsdpo_data.core.errors import Unavailable
from fsdpo_data.engines.options import check_actors
from fsdpo_data.engines.registry import pick_engine
from fsdpo_data.engines.scorers import Scorer
from fsdpo_data.models.resolve import ResolvedModel, resolve


@dataclass(frozen=True, slots=True)
class ScoreOptions:
    """How to score, as typed; see ``fsdpo-data score --help``."""

    prm: str
    engine: str = "auto"
    device: str = "auto"
    dtype: str = "auto"
    batch_tokens: int = 16_384
    actors: int | None = None

    def __post_init__(self) -> None:
        check_actors(self.engine, self.actors)


def resolve_scorer(options: ScoreOptions) -> tuple[str, ResolvedModel]:
    """Return the engine that scores, and the process reward model as resolved.

    Raises:
        InputError: if ``--prm`` is no process reward model.
        Unavailable: if the engine is not installed, or the model cannot be read.
    """
    if find_spec("transformers") is None:
        raise Unavailable("--prm needs transformers. Install with: pip install 'fsdpo[train]'.")
    from fsdpo_data.engines.scorers.heads import resolve_prm

    return pick_engine(options.engine, options.device), resolve_prm(options.prm)


def load_scorer(options: ScoreOptions) -> Scorer:
    """Resolve, check and load a process reward model.

    Raises:
        InputError: if ``--prm`` is no process reward model.
        Unavailable: if a library, a GPU or the weights are not here.
    """
    engine, prm = resolve_scorer(options)
    return make_scorer(engine, prm, options)


def make_scorer(engine: str, prm: ResolvedModel, options: ScoreOptions, models: int = 1) -> Scorer:
    """Load the process reward model, here or as often as a Ray cluster has room for it.

    Args:
        engine: What scores: ``vllm`` or ``transformers``.
        prm: Its weights.
        options: How it runs.
        models: Models that share the cluster.

    Raises:
        InputError: if the cluster has no room for it.
        Unavailable: if a library, a GPU or the weights are not here.
    """
    load = partial(_load, engine, prm, options)
    if options.engine != "ray":
        return load()
    from fsdpo_data.engines.ray import Placement, RayScorer

    gpus = 0 if options.device == "cpu" else None
    return RayScorer(prm.ref, load, Placement(options.actors, gpus, models))


def _load(engine: str, prm: ResolvedModel, options: ScoreOptions) -> Scorer:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if engine == "vllm":
        from fsdpo_data.engines.scorers.vllm import VllmPrmScorer

        return VllmPrmScorer(prm.path, prm.ref, revision=prm.commit, dtype=options.dtype)
    from fsdpo_data.engines.scorers.heads import PrmScorer

    return PrmScorer(
        prm.path,
        prm.ref,
        revision=prm.commit,
        device=options.device,
        dtype=options.dtype,
        batch_tokens=options.batch_tokens,
    )


def load_likelihood(policy: str, device: str = "auto", dtype: str = "auto") -> Scorer:
    """Load a policy to score with its own likelihood.

    Args:
        policy: A model as ``--model`` takes it.
        device: ``auto``, ``cpu`` or ``cuda``.
        dtype: ``auto`` (the checkpoint's own), ``float32``, ``bfloat16`` or ``float16``.

    Raises:
        InputError: if there is no such model.
        Unavailable: if a library, a GPU or the weights are not here.
    """
    # The solutions bring their prompts: the template is named only to need no chat template.
    found = resolve(policy, template="problem")
    from fsdpo_data.engines.scorers.likelihood import LikelihoodScorer

    return LikelihoodScorer(
        found.path, found.ref, revision=found.commit, device=device, dtype=dtype
    )
