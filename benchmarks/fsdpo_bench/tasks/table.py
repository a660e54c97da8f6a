"""Benchmarks are data: a TOML file each, on the shelf beside this module or of the user's own."""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from runpy import run_path
from typing import Any

from fsdpo_bench.tasks.fetch import PublicFile
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError, suggest_names
from fsdpo_data.core.row_files import DATA_SUFFIXES, SourceRow, read_records
from fsdpo_data.problems.hub_datasets import HubDataset
from fsdpo_data.problems.row_formats import (
    ProblemFormat,
    UnusableRowError,
    gold_text,
    parse_boxed_gold,
    parse_gsm8k_gold,
)

BUILTIN_TASKS = (
    Path(__file__).parent / "builtin"
)  #: Where the benchmarks that come with the harness stand.
#: Decimal places of numeric golds: AddSub's original has binary noise (0.6666666666666666), the
#: form of the MAWPS collection has it rounded.
GOLD_PLACES = 10
#: Metadata with a meaning to grading and statistics, by which nothing is broken down.
RESERVED_METADATA = ("cluster", "alternative_golds", "gold_tolerance")

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GoldCorrection:
    """What is known better of one gold."""

    reason: str
    gold: str = ""  #: The gold to use; empty to keep the source's.
    alternative_golds: Sequence[str] = ()
    tolerance: float | None = None  #: Relative error that the source allows for this gold alone.


@dataclass(frozen=True, slots=True)
class Task:
    """One benchmark; all but its name stand in its TOML file under these words."""

    name: str  #: Its name on the command line, and its folder in a data directory.
    title: str
    count: int | None = None  #: Problems it has; None if that is not known.
    digest: str = ""  #: ``problems_digest``, golds as the source has them; empty if not known.
    formats: Sequence[ProblemFormat] = ()  #: The ways its rows are written, tried in this order.
    order: int = 1000
    suites: Sequence[str] = ()
    licence: str = ""
    source: str = ""
    data: Path | None = None  #: Its own file of rows; None where a directory or the Hub has them.
    files: Sequence[str] = ()  #: Its files in a data directory that have other names than its own.
    #: Its dataset on the Hub; None if no repository there is known to hold these rows.
    hub: HubDataset | None = None
    hub_split: str = "test"
    hub_task: str = "default"  #: What the ``eval.yaml`` of that dataset calls it.
    fetch: PublicFile | None = None  #: Its file in a public repository, where the Hub has none.
    #: Brings a row to what the forms read; None says that it is no part of the benchmark.
    row: Callable[[Fields], Fields | None] = dict
    read: Callable[[Path], Iterator[SourceRow]] = read_records
    make: Callable[[], list[Problem]] | None = None
    remove_text: Sequence[
        str
    ] = ()  #: Texts that copies have inside the question and that are none of it.
    hint: str = ""  #: What every question ends on, such as how the answer has to look.
    missing_golds: int = 0  #: Problems without a gold; they are never counted.
    #: What is known better of single golds, by problem id.
    notes: Mapping[str, GoldCorrection] = field(default_factory=dict)
    defects: Sequence[str] = ()  #: What else is known to be odd in public copies.
    #: Relative error that a numeric answer may have, beside what the digits of a gold leave open; 0
    #: for golds that are rounded. Both numbers are reported, the tolerant one first. None for none.
    tolerance: float | None = None
    metric: str = "greedy"  #: What it is reported by: ``greedy``, or ``avg@8`` for few problems.
    cluster: str = ""  #: The field that problems on one base problem share; statistics need it.
    base_task: str = ""  #: The benchmark whose questions name its clusters; reports say the drop.
    spread_group: str = (
        ""  #: The group over whose parts, e.g. instances of templates, accuracy spreads.
    )
    #: What reports break numbers down by, and the fields that say it in some form.
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    version: int = 1  #: Raised whenever the problems or their grading change.

    def question(self, text: str) -> str:
        """Return a question as it is asked."""
        for each in self.remove_text:
            text = text.replace(each, "")
        return text.strip() + (f"\n{self.hint}" if self.hint else "")

    def record_metadata(self, metadata: Fields) -> dict[str, Any]:
        """Return what of a problem's metadata its record keeps: groups, cluster, other golds."""
        found: dict[str, Any] = {}
        for group, names in self.groups.items():
            value = next((metadata[name] for name in names if name in metadata), None)
            if value is not None:
                found[group] = str(value).removeprefix("Level ")
        return found | {
            key: metadata[key]
            for key in RESERVED_METADATA
            if metadata.get(key) not in (None, "", [])
        }


_HOOKS = ("row", "read", "make")


def read_task(file: Path) -> Task:
    """Read a benchmark's TOML file; ``hook`` in it names Python beside it: row, read or make.

    Raises:
        InputError: if it is none, saying why.
    """
    try:
        told = tomllib.loads(file.read_text(encoding="utf-8"))
        hook = run_path(str(file.parent / told.pop("hook"))) if "hook" in told else {}
        known = {each.name for each in fields(Task)} - {*_HOOKS, "notes"} | {"note"}
        for odd in told.keys() - known:
            raise ValueError(f"no key {odd!r}.{suggest_names(odd, known)}".rstrip("."))
        notes = {each.pop("id"): GoldCorrection(**each) for each in told.pop("note", ())}
        forms = tuple(
            _form(told.get("missing_golds", 0), **each) for each in told.pop("formats", ())
        )
        if "hub" in told:
            told["hub"] = HubDataset(**told["hub"])
        if "fetch" in told:
            told["fetch"] = PublicFile(**told["fetch"])
        if "data" in told:
            told["data"] = file.parent / told["data"]
        if not re.fullmatch(r"(greedy|(avg|maj)@[1-9]\d*)", told.get("metric", "greedy")):
            raise ValueError(f"metric {told['metric']!r}: expected greedy, avg@K or maj@K")
        told = {"name": file.stem, **told}
        if not re.fullmatch(r"\w[\w.-]*", name := told["name"]):
            raise ValueError(f"name {name!r}: expected letters, digits, dots, hyphens, underscores")
        # What it defines, not what it imports.
        own = {k for k, v in hook.items() if getattr(v, "__module__", "") == hook["__name__"]}
        made = {key: hook[key] for key in _HOOKS if key in own}
        return Task(
            **{"title": name, "formats": forms or PLAIN_FORMATS, **told, **made}, notes=notes
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"{file} is not a benchmark: {error}. Compare it with those in {BUILTIN_TASKS}."
        ) from None


def normalize_number(value: Any) -> str:
    """Take a gold that is a number, or one as text (``27.0``, ``025``), so that all forms agree."""
    text = gold_text(value)
    try:
        return gold_text(round(float(text), GOLD_PLACES))
    except ValueError:
        raise UnusableRowError(f"the answer {text!r} is no number") from None


#: How a field of a row becomes a gold: the words of ``gold = …``.
GOLD_PARSERS: Mapping[str, Callable[[Any], str]] = {
    "text": gold_text,
    "boxed": parse_boxed_gold,
    "hashes": parse_gsm8k_gold,
    # A problem whose gold is missing is kept, and is nobody's failure.
    "maybe": lambda value: gold_text(value).strip() if value else "",
    "number": normalize_number,
}


def _form(missing: int, question: Sequence[str], answer: str, gold: str = "") -> ProblemFormat:
    kind = gold or ("maybe" if missing else "text")
    if kind not in GOLD_PARSERS:
        raise ValueError(f"gold {kind!r}: expected one of {', '.join(GOLD_PARSERS)}")
    says = " + ".join((*question, answer)) + " with a \\boxed answer" * (kind == "boxed")
    return ProblemFormat(tuple(question), answer, GOLD_PARSERS[kind], says)


PLAIN_FORMATS = (
    _form(0, ["question"], "answer"),
)  #: The rows of a benchmark that says nothing of them.


@cache
def builtin_tasks() -> Mapping[str, Task]:
    """Return the benchmarks that come with the harness, by name, in their order."""
    tasks = sorted(map(read_task, BUILTIN_TASKS.glob("*.toml")), key=lambda task: task.order)
    return {task.name: task for task in tasks}


@cache
def suites() -> Mapping[str, tuple[str, ...]]:
    """Return the names of the benchmarks of each suite."""
    tasks = builtin_tasks().values()
    names = dict.fromkeys(suite for task in tasks for suite in task.suites)
    return {name: tuple(task.name for task in tasks if name in task.suites) for name in names}


def get_task(name: str) -> Task:
    """Return a benchmark by its name, or out of a file: its TOML, or bare rows.

    ``GSM-IC2`` and ``gsm_ic2`` are the same.

    Raises:
        InputError: if there is none, with the nearest names.
    """
    file = Path(name)
    if file.suffix == ".toml":
        return read_task(file)
    if file.suffix in DATA_SUFFIXES:
        return Task(file.stem, file.stem, formats=PLAIN_FORMATS, data=file)
    found = next((task for task in builtin_tasks().values() if is_spelling(name, task.name)), None)
    if found is None:
        raise _unknown("task", name, builtin_tasks())
    return found


def is_spelling(name: str, of: str) -> bool:
    """Whether a name is another's, case and hyphens aside."""
    one, other = (each.lower().replace("-", "").replace("_", "") for each in (name, of))
    return one == other


def select_tasks(suite: str | None, names: Sequence[str] | None) -> list[Task]:
    """Return the tasks of a suite and of names, ``all`` if neither; InputError if unknown."""
    suite = suite or (None if names else "all")
    if suite is not None and suite not in suites():
        raise _unknown("suite", suite, suites())
    tasks = [builtin_tasks()[name] for name in (suites()[suite] if suite else ())]
    tasks += [get_task(name) for name in names or ()]
    return list({task.name: task for task in tasks}.values())


def _unknown(kind: str, name: str, known: Mapping[str, object]) -> InputError:
    return InputError(
        f"expected one of {', '.join(known)}.{suggest_names(name.lower(), known)} `fsdpo-bench tasks` "
        "shows them all.",
        field=kind,
        value=name,
    )
