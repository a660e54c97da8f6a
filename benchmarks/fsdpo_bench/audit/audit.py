"""Compare the verdicts of two graders on the same responses."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fsdpo_bench.audit.families import Disagreement, Family, find_disagreements, group_families
from fsdpo_bench.audit.fields import FAMILY_FIELDS
from fsdpo_bench.audit.responses import (
    AuditedSet,
    FileSettings,
    read_audited_files,
    read_audited_runs,
)
from fsdpo_bench.audit.scores import GroupScores, ModelOrder, order_models, score_groups
from fsdpo_bench.report.tables import check_names, split_names
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.progress import Progress


@dataclass(frozen=True, slots=True)
class Audit:
    """The disagreements of two graders, and their effect."""

    audited: AuditedSet  #: The responses.
    disagreements: Sequence[Disagreement]  #: The disagreements, in the order of the files.
    families: Sequence[Family]  #: The disagreements by family; the largest family is first.
    scores: Sequence[GroupScores]  #: The scores of each file, model or benchmark.
    orders: Sequence[ModelOrder]  #: The order of each pair of models with the same problems.

    @property
    def changed_orders(self) -> list[ModelOrder]:
        """The pairs of models that the graders order differently."""
        return [order for order in self.orders if order.has_changed]


def make_audit(
    data: Sequence[Path],
    family_fields: Sequence[str],
    settings: FileSettings,
    progress: Progress,
) -> Audit:
    """Compare the verdicts of another grader with ours.

    Args:
        data: Files of responses with verdicts, or two runs. The first run has the verdicts of the
            other grader.
        family_fields: Fields in ``FAMILY_FIELDS`` that form a family, some with commas.
        settings: How to read and grade files; without effect on runs.
        progress: Progress bar.

    Raises:
        InputError: if the data cannot be read, or mixes runs and files, or a field is unknown.
    """
    names = split_names(family_fields)
    check_names(names, FAMILY_FIELDS, field="by")
    n_runs = sum(path.is_dir() for path in data)
    if n_runs == 0:
        audited = read_audited_files(data, settings, progress)
    elif n_runs == len(data) == 2:
        audited = read_audited_runs(data[1], data[0])
    else:
        raise InputError(
            f"{len(data)} paths, of which {n_runs} are runs. Expected files of responses, or two "
            "runs.",
            field="data",
        )
    disagreements = find_disagreements(audited.responses)
    scores = score_groups(audited.responses)
    return Audit(
        audited=audited,
        disagreements=disagreements,
        families=group_families(disagreements, names),
        scores=scores,
        orders=order_models(audited.responses, scores),
    )
