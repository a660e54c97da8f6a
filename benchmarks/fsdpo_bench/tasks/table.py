"""The table of benchmarks: where each is found, how its rows read, how many there must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fsdpo_bench.tasks import rows
from fsdpo_bench.tasks.golds import GK2023_GOLDS, MATH_GOLDS, OCW_GOLDS, GoldNote
from fsdpo_data.core.errors import InputError, nearest
from fsdpo_data.core.nouns import Problem
from fsdpo_data.problems.embedded import make_problems
from fsdpo_data.problems.forms import Form
from fsdpo_data.problems.hub_datasets import DATASETS, HubDataset

#: Held-out problems of the embedded world that make its benchmark.
EMBEDDED_PROBLEMS = 500


@dataclass(frozen=True, slots=True)
class Task:
    """One benchmark.

    Attributes:
        name: Its name on the command line, and its folder in a data directory.
        title: Its name in tables.
        count: Problems it has.
        digest: ``problems_digest`` of these problems, golds as the source has them.
        forms: The ways its rows are written, tried in this order.
        hub: Its dataset on the Hub; None if no repository there is known to hold these rows.
        hub_split: Split of that dataset.
        belongs: Whether a row is part of it; ASDiv's original file holds more.
        question: Brings the question to one spelling over all forms.
        missing_golds: Problems without a gold; they are never counted.
        notes: What is known better of single golds, by problem id.
        tolerant: Whether a numeric answer may also be right within the tolerance that
            ``judge.TOLERANT`` states; both numbers are reported, the tolerant one first.
        cluster: The field that problems on one base problem share; statistics need it.
        groups: What reports break numbers down by, and the fields that say it in some form.
        make: Makes the problems, where they are not read from anywhere.
        version: Raised whenever the problems or their grading change.
    """

    name: str
    title: str
    count: int
    digest: str
    forms: Sequence[Form]
    hub: HubDataset | None = None
    hub_split: str = "test"
    belongs: Callable[[Mapping[str, Any]], bool] = rows.every_row
    question: Callable[[str], str] = rows.same
    missing_golds: int = 0
    notes: Mapping[str, GoldNote] = field(default_factory=dict)
    tolerant: bool = False
    cluster: str = ""
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    make: Callable[[], list[Problem]] | None = None
    version: int = 1

    def facets(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return what of a problem's metadata its record keeps: groups, cluster, other golds."""
        found: dict[str, Any] = {}
        for group, names in self.groups.items():
            value = next((metadata[name] for name in names if name in metadata), None)
            if value is not None:
                found[group] = str(value).removeprefix("Level ")
        kept = {key: metadata[key] for key in ("cluster", "also") if metadata.get(key)}
        return found | kept


def _held_out() -> list[Problem]:
    """Make problems whose numbers occur in no training problem; their level is their steps."""
    return [
        replace(each, metadata={**each.metadata, "level": len(each.metadata["nodes"])})
        for each in make_problems("test", EMBEDDED_PROBLEMS)
    ]


_MATH_GROUPS = {"subject": ("subject", "type"), "level": ("level",)}

_TABLE = (
    Task("gsm8k", "GSM8K", 1319, "ac4ab61d99b193507c1d", rows.GSM8K_FORMS, DATASETS["gsm8k"]),
    Task(
        "math",
        "MATH",
        5000,
        "664df077193c2375e43f",
        rows.MATH_FORMS,
        DATASETS["math"],
        notes=MATH_GOLDS,
        groups=_MATH_GROUPS,
    ),
    Task(
        "math500",
        "MATH-500",
        500,
        "2d82dbd6fcb53b8b451a",
        rows.MATH_FORMS,
        HubDataset("HuggingFaceH4/MATH-500"),
        groups=_MATH_GROUPS,
    ),
    Task(
        "ocw",
        "OCWCourses",
        272,
        "0791f0c3f9e6cf1e3a4c",
        rows.MATH_FORMS,
        HubDataset("math-ai/minervamath"),
        question=rows.without_lone_label,
        notes=OCW_GOLDS,
        tolerant=True,
    ),
    Task(
        "gk2023",
        "GaoKao2023-En",
        385,
        "819a2fc4dc734a044e08",
        rows.GK2023_FORMS,
        HubDataset("MARIO-Math-Reasoning/Gaokao2023-Math-En"),
        hub_split="train",
        missing_golds=2,
        notes=GK2023_GOLDS,
    ),
    Task(
        "svamp",
        "SVAMP",
        1000,
        "b2778fe5265243906e36",
        rows.SVAMP_FORMS,
        HubDataset("ChilleD/SVAMP"),
        hub_split="train+test",
    ),
    Task("addsub", "AddSub", 395, "b15447886ae8f1e68e74", rows.ADDSUB_FORMS),
    Task(
        "asdiv",
        "ASDiv",
        2215,
        "1f269e0db3ebeccb5e18",
        rows.ASDIV_FORMS,
        HubDataset("EleutherAI/asdiv"),
        hub_split="validation",
        belongs=rows.one_answer,
        question=rows.single_spaced,
    ),
    Task("gsm_ic2", "GSM-IC2", 1000, "ee0a064ff2a2100e6773", rows.GSM_IC_FORMS, cluster="question"),
    Task("gsm_icm", "GSM-ICM", 1000, "f4d4f2d37f3a5bc13f82", rows.GSM_IC_FORMS, cluster="question"),
    Task(
        "embedded",
        "Embedded world",
        EMBEDDED_PROBLEMS,
        "54dbed7171c13c044537",
        (),
        groups={"level": ("level",)},
        make=_held_out,
    ),
)

TASKS = {task.name: task for task in _TABLE}

SUITES: Mapping[str, tuple[str, ...]] = {
    "in-domain": ("gsm8k", "math"),
    "ood": ("ocw", "gk2023", "svamp", "addsub", "asdiv", "gsm_ic2", "gsm_icm"),
    "all": (
        "gsm8k",
        "math",
        "ocw",
        "gk2023",
        "svamp",
        "addsub",
        "asdiv",
        "gsm_ic2",
        "gsm_icm",
    ),
    "smoke": ("embedded",),
}


def get_task(name: str) -> Task:
    """Return the task of that name; ``GSM-IC2`` and ``gsm_ic2`` are the same.

    Raises:
        InputError: if there is none, with the nearest names.
    """
    key = name.lower().replace("-", "_")
    found = TASKS.get(key) or TASKS.get(key.replace("_", ""))
    if found is None:
        raise _unknown("task", name, TASKS)
    return found


def get_suite(name: str) -> list[Task]:
    """Return the tasks of a suite.

    Raises:
        InputError: if there is none of that name, with the nearest names.
    """
    if name not in SUITES:
        raise _unknown("suite", name, SUITES)
    return [TASKS[each] for each in SUITES[name]]


def select_tasks(suite: str | None, names: Sequence[str] | None) -> list[Task]:
    """Return the tasks that a suite and single names stand for; all if there is neither.

    Raises:
        InputError: if one of them is unknown.
    """
    tasks = get_suite(suite) if suite else []
    tasks += [get_task(name) for name in names or ()]
    return list({task.name: task for task in tasks or get_suite("all")}.values())


def _unknown(kind: str, name: str, known: Mapping[str, object]) -> InputError:
    return InputError(
        f"no {kind} {name!r}: expected one of {', '.join(known)}.{nearest(name.lower(), known)}"
        " `fsdpo-bench list` shows them all."
    )
