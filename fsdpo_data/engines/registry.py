"""The registries of samplers and scorers, with the properties of each engine.

``registry.toml`` has the built-in engines. A plug-in adds others with
``SAMPLERS.register(SamplerEntry(name="parrot", loader=ParrotSampler))``.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pkgutil import resolve_name
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from fsdpo_data.core.errors import UnavailableError
from fsdpo_data.core.options import Option
from fsdpo_data.core.registry import Registry
from fsdpo_data.core.toml_tables import read_module_table

EngineRole = Literal["sampler", "scorer"]  #: The two components that an engine can provide.

#: Engine of options that name none; the machine that runs the model chooses.
AUTOMATIC_ENGINE = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEntry:
    """The properties that samplers and scorers have in common."""

    name: str  #: Name on the command line and in manifests.
    #: Class or function with the arguments of :meth:`load`, or its ``module:name``. Empty for an
    #: automatic engine.
    loader: str | Callable[[Any, Any], Any] = ""
    packages: Sequence[str] = ()  #: Packages that the engine imports.
    extra: str = ""  #: The extra of ``fsdpo`` that installs these packages.
    alternative: str = ""  #: End of the error message: an alternative to installing the extra.
    batch_size: int = 256  #: Prompts per batch. vLLM is fastest with thousands of sequences.
    is_automatic: bool = False  #: Whether the machine that runs the model chooses the engine.
    is_cluster: bool = False  #: Whether replicas of the model run on a Ray cluster.
    #: Function that says whether an automatic choice takes this engine, as ``module:name``. Empty
    #: if no automatic choice takes it.
    automatic_check: str = ""
    is_fallback: bool = False  #: Whether an automatic choice takes this engine if no check is true.
    has_fixed_device: bool = False  #: Whether the installation supports only one kind of device.
    #: Options that it reads, of those that not all engines read, such as ``seed`` and ``device``.
    #: Others are refused.
    options: Sequence[str] = ()
    is_remote: bool = False  #: Whether a server runs the model.
    #: Option without which the engine cannot run, and that no other engine takes, with its value.
    own_option: str = ""
    #: Engine argument with the fraction of the GPU memory to use; empty if there is none.
    memory_argument: str = ""

    def load(self, *arguments: Any) -> Any:
        """Load the sampler or scorer.

        Args:
            arguments: The weights and the options of an engine. For a beam search: the sampler,
                the scorer, the full name of the segmenter, and the ``BeamSpec``.

        Raises:
            UnavailableError: if a library, a GPU or the weights are missing.
        """
        loader = resolve_name(self.loader) if isinstance(self.loader, str) else self.loader
        return loader(*arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerEntry(EngineEntry):
    """The registration of a sampler."""

    #: Whether the sampler can continue a text that it has started, to limit thinking.
    continues_text: bool = True
    needs_model: bool = True  #: Whether a model runs, in this process or elsewhere.
    #: Whether the sampler is a step-wise beam search: it samples with the sampler of an engine,
    #: ranks by the step rewards of a scorer, and has the settings and limits of a ``BeamSpec``.
    is_beam_search: bool = False
    #: Whether a sample depends on its batch, so that a resumed run samples complete batches again.
    keeps_batches: bool = False

    def can_continue(self, api: str) -> bool:
        """Return whether the sampler can continue a text through an API of its server."""
        return self.continues_text and not (self.is_remote and api == "chat")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerEntry(EngineEntry):
    """The registration of a scorer."""

    #: Architectures of the checkpoints that the scorer reads, with ``*`` for any characters. Empty
    #: if the PRM formats recognise the checkpoint.
    architectures: Sequence[str] = ()
    #: Whether an automatic choice takes the scorer for a published reward model.
    is_automatic_for_published: bool = True
    computes_log_ratios: bool = True  #: Whether the scorer can run a reference model too.

    def reads(self, architecture: str) -> bool:
        """Return whether the scorer reads checkpoints of an architecture without a PRM format."""
        return any(fnmatch(architecture, pattern) for pattern in self.architectures)


SAMPLERS: Registry[SamplerEntry] = Registry("sampler", SamplerEntry, group="fsdpo.samplers")
SCORERS: Registry[ScorerEntry] = Registry("scorer", ScorerEntry, group="fsdpo.scorers")


@dataclass(frozen=True, slots=True)
class SamplerNames(Collection[str]):
    """The names of the beam searches or of the engines in ``SAMPLERS``, read when they are used.

    A plug-in that is not imported counts as an engine.
    """

    are_searches: bool  #: Whether the names are those of beam searches.
    first: Sequence[str] = ()  #: Names without a registration, before the others.

    @property
    def source_of_names(self) -> str:
        """Sentence for errors about unknown names: how to load plug-ins that add names."""
        return SAMPLERS.source_of_names

    def __contains__(self, name: object) -> bool:
        if name in self.first:
            return True
        return name in SAMPLERS and SAMPLERS[str(name)].is_beam_search == self.are_searches

    def __iter__(self) -> Iterator[str]:
        yield from self.first
        searches = {entry.name for entry in SAMPLERS.loaded_entries() if entry.is_beam_search}
        yield from (name for name in SAMPLERS if (name in searches) == self.are_searches)

    def __len__(self) -> int:
        return sum(1 for _ in self)


EngineName: TypeAlias = Annotated[
    str, Option(panel="Engine", choices=SamplerNames(are_searches=False))
]
ScorerName: TypeAlias = Annotated[str, Option(panel="Engine", choices=SCORERS)]

EntryT = TypeVar("EntryT", bound=EngineEntry)


for _name, _row in read_module_table(__file__).items():
    _fields = {key: value for key, value in _row.items() if key not in ("sampler", "scorer")}
    if "sampler" in _row:
        SAMPLERS.register(SamplerEntry(name=_name, **_fields, **_row["sampler"]))
    if "scorer" in _row:
        SCORERS.register(ScorerEntry(name=_name, **_fields, **_row["scorer"]))


def choose_engine(registry: Registry[EntryT], device: str) -> EntryT:
    """Return the engine that an automatic choice takes on this machine.

    It imports no plug-in; users name plug-ins.
    """
    for entry in registry.loaded_entries():
        supports_device = device != "cpu" or not entry.has_fixed_device
        if supports_device and entry.automatic_check and resolve_name(entry.automatic_check)():
            return entry
    return fallback_engine(registry)


def fallback_engine(registry: Registry[EntryT]) -> EntryT:
    """Return the engine that an automatic choice takes if no other engine can run."""
    return next(entry for entry in registry.loaded_entries() if entry.is_fallback)


def scorer_engine_for(sampler_engine: str, *, shares_memory: bool = True) -> str:
    """Return the engine of a reward model for the solutions of a sampler.

    Args:
        sampler_engine: Name of the sampler.
        shares_memory: Whether both models are loaded at the same time. A second vLLM would compete
            with the first for GPU memory. On a Ray cluster each model has its own GPUs.
    """
    sampler = SAMPLERS[sampler_engine]
    if not sampler.needs_model:
        return AUTOMATIC_ENGINE
    if shares_memory and not sampler.is_cluster:  # a server may run on the same GPU
        return fallback_engine(SCORERS).name
    is_local = sampler_engine in SCORERS and not sampler.is_remote
    return sampler_engine if is_local else AUTOMATIC_ENGINE


def engine_error(name: str, message: str) -> UnavailableError:
    """Return the error for an engine that cannot run."""
    return UnavailableError(message, field="engine", value=name)
