"""Engines by name: what each is made of, needs and takes at a time.

A new sampler or scorer is a file and its row in the table. Its class takes (weights, options).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from fsdpo_data.core.errors import UnavailableError
from fsdpo_data.core.toml_tables import TomlTable

EngineRole = Literal["sampler", "scorer"]  #: What an engine may be asked to do.


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEntry:
    """A row of the table beside this module."""

    sampler: str = ""  #: ``module:class`` of its sampler; empty if it does not sample.
    scorer: str = ""  #: The same of its scorer; empty if it does not score.
    packages: Sequence[str] = ()  #: Packages that it imports.
    extra: str = ""  #: Ours that brings them.
    alternative: str = ""  #: What to do instead of installing that.
    batch_size: int = 256  #: Prompts sampled at a time; vLLM is at its best with thousands.

    def load_class(self, role: EngineRole) -> Any:
        """Import the class that samples or scores."""
        module, _, name = getattr(self, role).partition(":")
        return getattr(import_module(f"fsdpo_data.engines.{role}s.{module}"), name)


ENGINES = TomlTable(__file__, lambda _, **told: EngineEntry(**told))


def engine_error(name: str, message: str) -> UnavailableError:
    """Say why an engine cannot run."""
    return UnavailableError(message, field="engine", value=name)


if TYPE_CHECKING:
    EngineName: TypeAlias = str
    ScorerName: TypeAlias = str
else:  # what can be asked for is said once, by the table
    EngineName = Literal["auto", "ray", *ENGINES]
    ScorerName = Literal["auto", "ray", *(name for name in ENGINES if ENGINES[name].scorer)]


def scorer_engine_for(sampler: str) -> ScorerName:
    """Name what runs a reward model beside a policy.

    A second vLLM would claim the memory of the first; on a cluster each has GPUs of its own.
    """
    return {"ray": "ray", "replay": "auto"}.get(sampler, "transformers")
