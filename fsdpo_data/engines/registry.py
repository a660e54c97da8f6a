"""The table of engines: which class samples or scores, and which packages it needs.

To add an engine, write a module in ``samplers`` or ``scorers`` and add a table to
``registry.toml``. The engine's class takes the arguments ``(weights, options)``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from fsdpo_data.core.errors import UnavailableError
from fsdpo_data.core.toml_tables import TomlTable

EngineRole = Literal["sampler", "scorer"]  #: The two components that an engine can provide.


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEntry:
    """One engine of ``registry.toml``."""

    sampler: str = ""  #: ``module:class`` of the sampler; empty if the engine does not sample.
    scorer: str = ""  #: ``module:class`` of the scorer; empty if the engine does not score.
    packages: Sequence[str] = ()  #: Packages that the engine imports.
    extra: str = ""  #: The extra of ``fsdpo`` that installs these packages.
    alternative: str = ""  #: End of the error message: an alternative to installing the extra.
    #: Whether the sampler can continue a text that it has started, to limit thinking.
    continues_text: bool = True
    is_remote: bool = False  #: Whether a server runs the model.
    batch_size: int = 256  #: Prompts per batch. vLLM is fastest with thousands of sequences.

    def can_continue(self, api: str) -> bool:
        """Return whether the sampler can continue a text through an API of its server."""
        return self.continues_text and not (self.is_remote and api == "chat")

    def load_class(self, role: EngineRole) -> Any:
        """Import the class that samples or scores."""
        module, _, name = getattr(self, role).partition(":")
        return getattr(import_module(f"fsdpo_data.engines.{role}s.{module}"), name)


ENGINES = TomlTable(__file__, lambda _, **fields: EngineEntry(**fields))


def engine_error(name: str, message: str) -> UnavailableError:
    """Return the error for an engine that cannot run."""
    return UnavailableError(message, field="engine", value=name)


if TYPE_CHECKING:
    EngineName: TypeAlias = str
    ScorerName: TypeAlias = str
else:  # registry.toml alone lists the engines, so the choices of `--engine` come from there
    EngineName = Literal["auto", "ray", *ENGINES]
    ScorerName = Literal["auto", "ray", *(name for name in ENGINES if ENGINES[name].scorer)]


def scorer_engine_for(sampler_engine: str) -> ScorerName:
    """Return the engine that runs a reward model next to a policy.

    A second vLLM would compete with the first for GPU memory. On a Ray cluster each model has its
    own GPUs.
    """
    return {"ray": "ray", "replay": "auto"}.get(sampler_engine, "transformers")
