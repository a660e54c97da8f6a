"""Formulas of LaTeX as trees of MathML, worked out when a page is written.

LaTeX here is what models wrote, so it may be anything. What is too long, defines commands, or what
the converter fails on has no tree, and the page shows its text. A tree is plain JSON, of elements
and attributes that do nothing; the page makes nodes of it one by one, and never parses markup.
"""

import json
import re
from collections.abc import Iterable
from html import unescape
from itertools import chain
from typing import Any
from xml.etree.ElementTree import Element

#: Formulas within a text, in what regular expressions of Python and of JavaScript have in common.
#: A dollar before a blank, or before a digit where the formula would end, is money.
PATTERN = (
    r"\$\$[^$]{1,1000}?\$\$"
    r"|\\\[[\s\S]{1,1000}?\\\]"
    r"|\\\([\s\S]{1,1000}?\\\)"
    r"|\\begin\{(?:align|gather)\*?\}[\s\S]{1,1000}?\\end\{(?:align|gather)\*?\}"
    r"|\$(?![\s$])[^$\n]{0,999}?[^\s\\$]\$(?![\d$])"
)

_FORMULA = re.compile(PATTERN)
_LOOKS_IT = re.compile(r"\\[a-zA-Z]|[\^_]")  #: Of an answer, which stands between no dollars.
_LONGEST = 1000  #: Characters of a formula.
_DEEPEST = 40  #: Elements within each other; deeper ones overflow the stack of some browser.
#: Definitions can grow without bound; `\href` and `\style` are no formulas.
_REFUSED = re.compile(
    r"\\(?:def|let|(?:re)?newcommand|providecommand|href|style|class)(?![a-zA-Z])"
)
_KEPT = {"accent", "columnalign", "display", "displaystyle", "fence", "form", "linethickness"}
_KEPT |= {"mathvariant", "movablelimits", "notation", "scriptlevel", "separator", "stretchy"}
_EMS = re.compile(r"-?\d{0,2}(?:\.\d{1,4})?em")  #: Widths of spaces that leave the page whole.

Tree = list[Any]


def formula_trees(texts: Iterable[str], answers: Iterable[str], budget: int) -> dict[str, Tree]:
    """Return the trees of the formulas in texts, and of answers that are one, by what was written.

    Those that come first are there, until their trees have ``budget`` bytes together; what fails
    takes of it too, so that it bounds the time.
    """
    found: dict[str, Tree | None] = {}
    in_texts = (each[0] for text in texts for each in _FORMULA.finditer(text))
    whole = (text for text in answers if len(text) <= _LONGEST and _LOOKS_IT.search(text))
    for written in chain(in_texts, whole):
        if written in found:
            continue
        tree = found[written] = _tree_of(written)
        budget -= 8 * len(written) if tree is None else len(json.dumps(tree))
        if budget < 0:
            break
    return {written: tree for written, tree in found.items() if tree}


def _tree_of(written: str) -> Tree | None:
    from latex2mathml.converter import Converter

    latex = written[2:-2] if written.startswith((r"\[", r"\(")) else written.strip("$")
    display = "block" if written.startswith(("$$", r"\[", r"\begin")) else "inline"
    if _REFUSED.search(latex):
        return None
    try:
        return _plain(Converter(display=display).convert_to_element(latex), _DEEPEST)
    except Exception:  # of many kinds: RecursionError, IndexError, its own
        return None


def _plain(element: Element, depth: int) -> Tree:
    """Return an element as ``[tag, attributes if any, child …]``; rows of one child are that child.

    Raises:
        ValueError: if it is too deep.
    """
    if not depth:
        raise ValueError("too deep")
    while element.tag == "mrow" and len(element) == 1 and not element.text:
        element = element[0]
    attributes = {
        name: value
        for name, value in element.attrib.items()
        if name in _KEPT or (name == "width" and _EMS.fullmatch(value))
    }
    # The converter writes characters as references, which its own output is unescaped into.
    text = [unescape(element.text)] if element.text else []
    inside = (_plain(each, depth - 1) for each in element)
    return [element.tag, *([attributes] if attributes else []), *text, *inside]
