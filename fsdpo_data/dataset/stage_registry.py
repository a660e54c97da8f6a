"""The registered stages: one entry per stage, with everything that the program asks about it.

The module of a stage registers its entry. An entry with options becomes a command of the command
line, and a method of :class:`~fsdpo_data.api.Dataset`. ``merge`` reads whether the stage has
shards, and cards show the stage's row.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from fsdpo_cards.render import describe_options, render_text

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.registry import Registry
from fsdpo_data.dataset.manifest import RawRecord, StageRecord

if TYPE_CHECKING:
    from fsdpo_data.core.progress import Progress
    from fsdpo_data.dataset.manifest import Manifest
    from fsdpo_data.dataset.stage import Stage, StageOptions
    from fsdpo_data.dataset.statistics import DatasetStatistics

RecordT = TypeVar("RecordT", bound=StageRecord[Any, Any])
StageOptionsT = TypeVar("StageOptionsT", bound="StageOptions")

#: The new dataset in the command that comes after a stage.
NEW_DATASET = "DATASET"


Row: TypeAlias = tuple[str, str]  #: Name and value of a row of the summary.
#: The counts of a distribution, as (label, count).
Distribution: TypeAlias = list[tuple[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEntry(Generic[StageOptionsT, RecordT]):
    """A registered stage.

    A stage without a command, such as the sampling of a build, has no class of options.
    """

    name: str  #: Name of the stage's entry in the manifest, and of its command.
    record: type[RecordT] = RawRecord  # type: ignore[assignment]  #: Model of the entry.
    #: Row of the card's table, as a Jinja template. Its variables are the options of the entry.
    #: None lists the options. An empty text is no row, for stages that the template of the card
    #: describes.
    card_row: str | None = None
    failed_items: str = "items"  #: What the engine of the stage can refuse, for messages.
    #: Function that returns the rows of the summary; None for no rows.
    summarize: Callable[[RecordT, DatasetStatistics], Sequence[Row]] | None = None
    #: Function that returns a sentence for each number that suggests a mistake; None for none.
    warn: Callable[[RecordT, DatasetStatistics], Sequence[str]] | None = None
    #: Function that returns the distributions of the card by title; None for no distribution.
    plot: Callable[[RecordT, DatasetStatistics], Mapping[str, Distribution]] | None = None
    #: Class of the options; None for a stage without a command. Its docstring is the help; a field
    #: ``shard`` means that the stage has shards.
    options_class: type[StageOptionsT] | None = None
    #: Function that checks the options against the dataset, resolves models and returns the stage;
    #: None for a stage without a command.
    make_stage: Callable[[StageOptionsT], Stage] | None = None
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

    def __post_init__(self) -> None:
        if (self.options_class is None) != (self.make_stage is None):
            raise TypeError(
                f"the stage {self.name!r} has only one of options_class and make_stage. A command "
                "needs both."
            )

    def stages(self, options: StageOptionsT, progress: Progress) -> Mapping[Path, Stage]:
        """Return the stage of each new dataset, by directory; the directory ``out`` is the last."""
        if self.make_stages is not None:
            return self.make_stages(options, progress)
        if self.make_stage is None:
            raise TypeError(f"the stage {self.name!r} has no command.")
        return {Path(options.out): self.make_stage(options)}

    @property
    def has_shards(self) -> bool:
        """Whether several jobs can share the work of the stage."""
        return self.options_class is not None and "shard" in self.options_class.model_fields


#: The stages. Each module of ``fsdpo_data.stages`` registers its own.
STAGES: Registry[StageEntry[Any, Any]] = Registry(
    "stage", StageEntry, group="fsdpo.stages", package="fsdpo_data.stages"
)


def command_names() -> list[str]:
    """Return the names of the stages with a command, without importing more plug-ins."""
    other_names = {entry.name for entry in STAGES.loaded_entries() if entry.options_class is None}
    return [name for name in STAGES if name not in other_names]


def stage_entry(options: StageOptionsT) -> StageEntry[StageOptionsT, Any]:
    """Return the entry of the stage that options belong to.

    Raises:
        TypeError: if no stage has this class of options.
    """
    for entry in STAGES.loaded_entries():
        if entry.options_class is type(options):
            return entry
    raise TypeError(f"{type(options).__name__}: no stage is registered with these options.")


def known_stages(manifest: Manifest) -> Iterator[tuple[StageEntry[Any, Any], Any]]:
    """Yield each registered stage of a dataset with its record in the manifest, in their order."""
    for record in manifest.stages:
        stage = find_stage(record.name)
        if stage is not None:
            yield stage, manifest.get(record.name, stage.record)


def plot_stages(statistics: DatasetStatistics) -> dict[str, Distribution]:
    """Return the distributions of the stages' results, by title."""
    plots: dict[str, Distribution] = {}
    for stage, record in known_stages(statistics.manifest):
        if stage.plot is not None:
            plots |= stage.plot(record, statistics)
    return plots


def describe_failures(failed: Mapping[str, int]) -> str:
    """Return the number of failed items of each stage."""
    texts = []
    for name, count in failed.items():
        stage = find_stage(name)
        items = stage.failed_items if stage else f"items of {name}"
        texts.append(f"{count:,} {items}")
    return ", ".join(texts)


def card_rows(manifest: Manifest) -> list[str]:
    """Return the rows of a card's table that describe the stages of a dataset, in their order.

    The row of a stage that is not registered, such as one of an absent plug-in, lists its options.
    """
    rows = []
    for record in manifest.stages:
        stage = find_stage(record.name)
        template = stage.card_row if stage else None
        if template is None:
            rows.append(f"| {record.name} | {describe_options(record.options)} |")
        elif template:
            rows.append(render_text(template, record.options))
    return rows


def stage_rows(statistics: DatasetStatistics) -> list[Row]:
    """Return the rows of the summary that describe the stages of a dataset, in their order.

    A stage without rows of its own lists its options.
    """
    rows: list[Row] = []
    for record in statistics.manifest.stages:
        stage = find_stage(record.name)
        if stage is not None and stage.summarize is not None:
            rows += stage.summarize(statistics.manifest.get(stage.name, stage.record), statistics)
        elif stage is None or stage.card_row is None:
            rows.append((record.name, describe_options(record.options, code=str)))
    return rows


def find_stage(name: str) -> StageEntry[Any, Any] | None:
    """Return the entry of a stage; None if it is not registered, or its plug-in is broken."""
    with contextlib.suppress(InputError):
        return STAGES.get(name)
    return None
