"""The golds of all benchmarks and labelled sets, and the reasons why a change may be correct."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from benchmark_golds import all_golds
from changed_values import keeps_value
from gold_changes import Change

CASES = Path(__file__).parents[1] / "data/grader_cases.jsonl"
#: Columns with the gold of a newer benchmark.
_GOLD_COLUMNS = ("answer", "expected_answer", "final_answer", "target")
_INTEGERS = re.compile(
    r"\\in\s*\\?(?:mathbb\s*\{?\s*)?Z|any integer|for all integers|, ?n \\in|, ?k \\in"
)
_JOINED = re.compile(r"\s*\b(?:and|or)\b\s*")


def changed_sets(shared: Path) -> list[str]:
    """Return every different gold once: of all benchmarks, and of the labelled sets."""
    golds = [gold for group in all_golds(shared).values() for gold in group]
    golds += [row["answer"] for row in _rows(shared / "data/benchmarks/math500/test.jsonl")]
    golds += _newer_golds(shared / "data/newer/benchmarks")
    for file in (*sorted((shared / "data/grading").glob("*.jsonl")), CASES):
        golds += [row["gold"] for row in _rows(file)]
    return list(dict.fromkeys(gold for gold in golds if gold.strip()))


def _newer_golds(root: Path) -> list[str]:
    golds = []
    for file in sorted(root.glob("*/*.jsonl")):
        for row in _rows(file):
            gold = next(row[column] for column in _GOLD_COLUMNS if column in row)
            golds += map(str, gold) if isinstance(gold, list) else [str(gold)]
    table = json.loads((root / "tabmwp/problems_test1k.json").read_text(encoding="utf-8"))
    return golds + [str(row["answer"]) for row in table.values()]


def _rows(file: Path) -> Iterator[dict[str, object]]:
    with file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def reason_to_accept(change: Change) -> str:
    """Return why a changed gold may be correct, or "" if it must not be."""
    gold, text = change.gold, change.text
    if keeps_value(gold, text):
        return "the value is the same"
    for reason, starts in EXCEPTIONS.items():
        if any(change.kind == kind and gold.startswith(start) for kind, start in starts):
            return reason
    return _reason_by_form(change)


def _reason_by_form(change: Change) -> str:
    """Return the reason that holds for all changes of a form, or ""."""
    gold, text = change.gold, change.text
    if change.kind == "relation" and _JOINED.sub(",", gold) == _JOINED.sub(",", text):
        return "models write “and” and “or” between the values of one unknown alike"
    pairs = enumerate(zip(gold, text, strict=False))
    start = next((index for index, (old, new) in pairs if old != new), len(text))
    is_by_cases = "\\begin{cases}" in gold or "\\begin{array}{rll}" in gold
    is_start = re.search(r"&\s*-?[\d.]+\s*$", gold[:start])  # of the domain: 0 <= x <= 5
    if change.kind == "relation" and is_by_cases and "neq" not in text and not is_start:
        return "the function is continuous where its cases meet"
    if change.kind == "sign" and re.match(r"[+-][^-+,=]*[kn]", gold[start:]):
        return "an integer parameter runs over both signs"
    if change.kind == "dropped part" and _INTEGERS.search(gold) and not _INTEGERS.search(text):
        return "a parameter runs over the integers if nothing else is said"
    if change.kind == "digit" and re.match(r"\\textbf\{\([A-E]\)\}", gold):
        return "the letter of a choice decides"
    return ""


#: Changes that may be correct: the kinds and the starts of their golds, by the reason.
EXCEPTIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "a way to the result is wrong, but the result is stated and right": (
        ("digit", r"$9.8\left("), ("swapped numbers", r"$9.8\left("), ("sign", r"$9.8\left("),
        ("digit", r"$i^{"), ("swapped numbers", r"$i^{"), ("dropped part", r"$9.8\left("),
    ),
    "a remainder, limit, product or determinant has the same value": (
        ("digit", r"$\lim"), ("sign", r"$\lim"), ("swapped numbers", r"$\lim"),
        ("digit", r"17 \bmod 5"), ("digit", r"P = \prod"), ("digit", r"\prod_{k=1}^n k"),
        ("swapped numbers", r"\begin{vmatrix}"), ("sign", r"\sum_{k=1}^{4}(-1)"),
        ("sign", r"$\sum_{k=1}^{4}(-1)"), ("sign", r"$y=a_{0} \sum_{m=0}^{\infty}(-1)^{m+1}"),
        ("sign", r"$\cos (-2.01)"), ("digit", "C_"), ("sign", "0 <"),
    ),
    "factors, terms, arguments or sides in another order": (
        ("swapped numbers", r"\gcd"), ("swapped names", r"N=\gcd"), ("swapped names", "p ∧ q"),
        ("swapped numbers", r"$\sum"), ("swapped numbers", r"$C+\sum"),
        ("swapped numbers", r"$A(3)="), ("swapped numbers", r"$P=\frac{2000}"),
        ("swapped numbers", r"$\mathbf{u}_{1} \perp"), ("swapped numbers", r"$f_{1} \perp"),
        ("swapped names", r"$\Delta y="), ("swapped names", r"$d=\sqrt"),
        ("swapped names", r"$m n-"), ("swapped names", r"m l \ddot"), ("swapped names", "x^2+y^2="),
        ("swapped names", "Yes"), ("swapped names", "No."), ("swapped names", "domain: "),
        ("swapped names", "We look at"), ("swapped names", r"From $a(\mathbf{u}"),
        ("swapped names", r"$\int_{0}"), ("swapped names", r"$X$ and $Y$"),
    ),
    "equal numbers change places": (
        ("swapped names", r"$(x, y, z)="), ("swapped names", "Solution is: $["),
    ),
    "the equation is the same, solved for another name": (("swapped names", r"$h=\frac"),),
    "items of a set, of a list without order, or residues": (
        ("swapped numbers", r"\{\{"), ("swapped numbers", "{{"), ("swapped numbers", r"x \in \{"),
        ("swapped numbers", r"\mathbb{R}\setminus"), ("swapped numbers", r"n \equiv"),
        ("swapped numbers", r"x \equiv"), ("swapped numbers", r"\lambda = "),
        ("swapped numbers", "."), ("swapped numbers", "12 and"), ("swapped numbers", "15 and"),
        ("swapped numbers", r"$p_{Y}(y)"), ("swapped numbers", r"$\mathbf{u}_{2}$ and"),
    ),
    "an answer may leave it out: a year, a domain, the words after yes, a term before dots": (
        ("dropped part", "April"), ("dropped part", "March"), ("dropped part", r"\frac{1}{x}, x"),
        ("dropped part", "Yes, "), ("dropped part", "1, 3, 5, 7"), ("dropped part", "In this case"),
    ),
    "the argument of a constant function, or a name that the formula does not have": (
        ("name", "$f(x)=1$"), ("name", r"$p_{Y}(y)=1 / 2$"), ("name", r"f(x)=cx \text{ for any"),
    ),
    "the imaginary unit is a letter in the question": (("sign", "We look at"),),
    "a hyphen between words": (("sign", r"$\mathrm{P}$-value"),),
    "a density at the end of its domain": (("relation", r"$f_{Y}(y)=y^{-1 / 2}"),),
}  # fmt: skip
