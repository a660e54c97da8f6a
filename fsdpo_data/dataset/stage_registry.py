"""The registered stages: one entry per stage, with everything that the program asks about it.

The module of a stage registers its entry. Each entry becomes a command of the command line, and a
method of :class:`~fsdpo_data.api.Dataset`. ``merge`` reads whether the stage has shards, and cards
show the stage's row.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fsdpo_cards.render import code_span, render_text

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.registry import Registry

if TYPE_CHECKING:
    from fsdpo_data.core.progress import Progress
    from fsdpo_data.dataset.manifest import Manifest
    from fsdpo_data.dataset.stage import Stage, StageOptions

StageOptionsT = TypeVar("StageOptionsT", bound="StageOptions")

#: The new dataset in the command that comes after a stage.
NEW_DATASET = "DATASET"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEntry(Generic[StageOptionsT]):
    """A registered stage."""

    name: str  #: Name of the command, of the method of ``Dataset``, and ``Stage.spec_key``.
    #: Class of the options. Its docstring is the help; a field ``shard`` means that it has shards.
    options_class: type[StageOptionsT]
    #: Function that checks the options against the dataset, resolves models and returns the stage.
    make_stage: Callable[[StageOptionsT], Stage]
    #: Columns and configs that the stage replaces, such as ``step_rewards`` or ``pairs``. The spec
    #: of the new dataset has no section of another stage that wrote one of them.
    writes: Sequence[str] = ()
    #: Row of the card's table, as a Jinja template. Its variables are the values of ``Stage.spec``.
    card_row: str = ""
    #: Function that returns a text for the terminal from the new manifest; None for no text.
    describe_result: Callable[[Manifest], str] | None = None
    #: Function that returns the stage of each new dataset, by directory; the directory ``out`` is
    #: the last one. None for stages that create one dataset.
    make_stages: Callable[[StageOptionsT, Progress], Mapping[Path, Stage]] | None = None
    #: Function that describes the new dataset without writing it, for a field ``dry_run`` of the
    #: options; None for stages without this field.
    describe_plan: Callable[[StageOptionsT, Progress], str] | None = None
    #: Words of the command that usually comes next; ``name=value`` stands for an option.
    next_command: Sequence[str] = ("fsdpo-data", "inspect", NEW_DATASET)

    def stages(self, options: StageOptionsT, progress: Progress) -> Mapping[Path, Stage]:
        """Return the stage of each new dataset, by directory; the directory ``out`` is the last."""
        if self.make_stages is not None:
            return self.make_stages(options, progress)
        return {Path(options.out): self.make_stage(options)}

    @property
    def has_shards(self) -> bool:
        """Whether several jobs can share the work of the stage."""
        return "shard" in self.options_class.model_fields


#: All stages. Each module of ``fsdpo_data.stages`` registers its own.
STAGES: Registry[StageEntry[Any]] = Registry(
    "stage", StageEntry, group="fsdpo.stages", package="fsdpo_data.stages"
)


def stage_entry(options: StageOptionsT) -> StageEntry[StageOptionsT]:
    """Return the entry of the stage that options belong to.

    Raises:
        TypeError: if no stage has this class of options.
    """
    for entry in STAGES.loaded_entries():
        if entry.options_class is type(options):
            return entry
    raise TypeError(f"{type(options).__name__}: no stage is registered with these options.")


def replaced_keys(spec_key: str, keys: Iterable[str]) -> list[str]:
    """Return the keys of a spec whose results the stage ``spec_key`` replaces.

    The results of a stage that is not registered are unknown, so its key stays.
    """
    entry = _importable_entry(spec_key)
    if entry is None:
        return []
    replaced = []
    for key in keys:
        other_entry = None if key == spec_key else _importable_entry(key)
        if other_entry is not None and set(other_entry.writes) & set(entry.writes):
            replaced.append(key)
    return replaced


def card_rows(manifest: Manifest) -> list[str]:
    """Return the rows of a card's table that describe the stages of a dataset, in their order.

    The row of a stage that is not registered, such as one of an absent plug-in, lists its values.
    """
    other_keys = manifest.spec.model_extra or {}
    rows = []
    for key, value in manifest.spec.to_dict().items():
        entry = _importable_entry(key)
        if entry is not None:
            rows.append(render_text(entry.card_row, value))
        elif key in other_keys and isinstance(value, dict):
            rows.append(f"| {key} | {code_span(json.dumps(value, ensure_ascii=False))} |")
    return [row for row in rows if row]


def _importable_entry(name: str) -> StageEntry[Any] | None:
    """Return the entry of a stage; None if it is not registered or its plug-in is broken."""
    with contextlib.suppress(InputError):
        return STAGES.get(name)
    return None
