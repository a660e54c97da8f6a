"""The registered stages: one entry per stage, with everything that the program asks about it.

The module of a stage registers its entry. Each entry becomes a command of the command line, and a
method of :class:`~fsdpo_data.api.Dataset`. ``merge`` reads whether the stage has shards, and cards
show the stage's row.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from fsdpo_cards.render import code_span, render_text

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.registry import Registry
from fsdpo_data.dataset.manifest import RawRecord, StageRecord

if TYPE_CHECKING:
    from fsdpo_data.core.progress import Progress
    from fsdpo_data.dataset.manifest import Manifest
    from fsdpo_data.dataset.stage import Stage, StageOptions

RecordT = TypeVar("RecordT", bound=StageRecord[Any, Any])
StageOptionsT = TypeVar("StageOptionsT", bound="StageOptions")

#: The new dataset in the command that comes after a stage.
NEW_DATASET = "DATASET"


Row: TypeAlias = tuple[str, str]  #: Name and value of a row of the summary.
#: The counts of a distribution, as (label, count).
Distribution: TypeAlias = list[tuple[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageDescription(Generic[RecordT]):
    """What cards and summaries say about the entry of a stage in a manifest."""

    name: str  #: Name of the entry in the manifest.
    record: type[RecordT] = RawRecord  # type: ignore[assignment]  #: Model of the entry.
    #: Row of the card's table, as a Jinja template. Its variables are the options of the entry.
    card_row: str = ""
    failed_items: str = "items"  #: What the engine of the stage can refuse, for messages.
    #: Function that returns the rows of the summary; None for no rows.
    summarize: Callable[[RecordT, Manifest], Sequence[Row]] | None = None
    #: Function that returns a sentence for each number that suggests a mistake; None for none.
    warn: Callable[[RecordT], Sequence[str]] | None = None
    #: Function that returns the distributions of the card by title, from the entry, the directory
    #: and the manifest; None for no distribution.
    plot: Callable[[RecordT, Path, Manifest], Mapping[str, Distribution]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEntry(StageDescription[RecordT], Generic[StageOptionsT, RecordT]):
    """A registered stage with a command. Its ``name`` is also the name of the command."""

    #: Class of the options. Its docstring is the help; a field ``shard`` means that it has shards.
    options_class: type[StageOptionsT]
    #: Function that checks the options against the dataset, resolves models and returns the stage.
    make_stage: Callable[[StageOptionsT], Stage]
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


#: The stages without a command of their own, such as the sampling of a build.
STAGES_WITHOUT_COMMAND: Registry[StageDescription[Any]] = Registry(
    "stage", StageDescription, package="fsdpo_data.stages"
)
#: The stages with a command. Each module of ``fsdpo_data.stages`` registers its own.
STAGES: Registry[StageEntry[Any, Any]] = Registry(
    "stage", StageEntry, group="fsdpo.stages", package="fsdpo_data.stages"
)


def stage_entry(options: StageOptionsT) -> StageEntry[StageOptionsT, Any]:
    """Return the entry of the stage that options belong to.

    Raises:
        TypeError: if no stage has this class of options.
    """
    for entry in STAGES.loaded_entries():
        if entry.options_class is type(options):
            return entry
    raise TypeError(f"{type(options).__name__}: no stage is registered with these options.")


def describe_stages(manifest: Manifest) -> Iterator[tuple[StageDescription[Any], Any]]:
    """Yield the description and the entry of each known stage of a dataset, in their order."""
    for record in manifest.stages:
        description = find_description(record.name)
        if description is not None:
            yield description, manifest.get(record.name, description.record)


def plot_stages(root: Path, manifest: Manifest) -> dict[str, Distribution]:
    """Return the distributions of the stages' results, by title."""
    plots: dict[str, Distribution] = {}
    for description, record in describe_stages(manifest):
        if description.plot is not None:
            plots |= description.plot(record, root, manifest)
    return plots


def describe_failures(failed: Mapping[str, int]) -> str:
    """Return the number of failed items of each stage."""
    texts = []
    for name, count in failed.items():
        description = find_description(name)
        items = description.failed_items if description else f"items of {name}"
        texts.append(f"{count:,} {items}")
    return ", ".join(texts)


def card_rows(manifest: Manifest) -> list[str]:
    """Return the rows of a card's table that describe the stages of a dataset, in their order.

    The row of a stage that is not registered, such as one of an absent plug-in, lists its options.
    """
    rows = []
    for record in manifest.stages:
        description = find_description(record.name)
        if description is None:
            options = json.dumps(record.options, ensure_ascii=False)
            rows.append(f"| {record.name} | {code_span(options)} |")
        elif description.card_row:
            rows.append(render_text(description.card_row, record.options))
    return rows


def find_description(name: str) -> StageDescription[Any] | None:
    """Return the description of a stage; None if it is not registered, or its plug-in is broken."""
    if name in STAGES_WITHOUT_COMMAND:
        return STAGES_WITHOUT_COMMAND[name]
    with contextlib.suppress(InputError):
        return STAGES.get(name)
    return None
