r"""Convert LaTeX formulas to MathML trees when a page is rendered.

Models write the LaTeX, so it can be anything. A formula gets no tree if it is too long, contains
definitions, or makes the converter fail. The page then shows its text. A tree is plain JSON, with
harmless elements and attributes only. The page creates its nodes one by one and never parses
markup.
"""

import json
import re
from collections.abc import Iterable
from html import unescape
from itertools import chain
from typing import Any
from xml.etree.ElementTree import Element

#: Formulas within a text. The expression means the same in Python and in JavaScript.
#: A dollar sign is money before a space, or if a digit follows the end of the formula.
FORMULA_PATTERN = (
    r"\$\$[^$]{1,1000}?\$\$"
    r"|\\\[[\s\S]{1,1000}?\\\]"
    r"|\\\([\s\S]{1,1000}?\\\)"
    r"|\\begin\{(?:align|gather)\*?\}[\s\S]{1,1000}?\\end\{(?:align|gather)\*?\}"
    r"|\$(?![\s$])[^$\n]{0,999}?[^\s\\$]\$(?![\d$])"
)

_FORMULA = re.compile(FORMULA_PATTERN)
_LATEX_MARKUP = re.compile(r"\\[a-zA-Z]|[\^_]")  #: Marks an answer as LaTeX without dollar signs.
_MAX_FORMULA_CHARS = 1000
_MAX_DEPTH = 40  #: Levels of nested elements; more overflow the stack of some browsers.
#: Commands without a tree: definitions can grow without bound, `\href` and `\style` have effects.
_FORBIDDEN_COMMAND = re.compile(
    r"\\(?:def|let|(?:re)?newcommand|providecommand|href|style|class)(?![a-zA-Z])"
)
_ALLOWED_ATTRIBUTES = {
    "accent",
    "columnalign",
    "display",
    "displaystyle",
    "fence",
    "form",
    "linethickness",
    "mathvariant",
    "movablelimits",
    "notation",
    "scriptlevel",
    "separator",
    "stretchy",
}
_EM_WIDTH = re.compile(r"-?\d{0,2}(?:\.\d{1,4})?em")  #: Widths that cannot break the page layout.

MathTree = list[Any]  #: ``[tag, attributes if any, child …]``; a child is a tree or a text.


def formula_trees(
    texts: Iterable[str], answers: Iterable[str], budget_bytes: int
) -> dict[str, MathTree]:
    """Return the trees of the formulas in texts and answers, by their LaTeX source.

    The first formulas get trees until the budget is used up. Failed conversions also count towards
    the budget, which limits the time.
    """
    trees: dict[str, MathTree | None] = {}
    formulas_in_texts = (match[0] for text in texts for match in _FORMULA.finditer(text))
    formula_answers = (
        answer
        for answer in answers
        if len(answer) <= _MAX_FORMULA_CHARS and _LATEX_MARKUP.search(answer)
    )
    for source in chain(formulas_in_texts, formula_answers):
        if source in trees:
            continue
        tree = _convert(source)
        trees[source] = tree
        budget_bytes -= 8 * len(source) if tree is None else len(json.dumps(tree))
        if budget_bytes < 0:
            break
    return {source: tree for source, tree in trees.items() if tree}


def _convert(source: str) -> MathTree | None:
    """Return the tree of a formula, or None if it is forbidden or cannot be converted."""
    from latex2mathml.converter import Converter

    latex = source[2:-2] if source.startswith((r"\[", r"\(")) else source.strip("$")
    display = "block" if source.startswith(("$$", r"\[", r"\begin")) else "inline"
    if _FORBIDDEN_COMMAND.search(latex):
        return None
    try:
        return _element_tree(Converter(display=display).convert_to_element(latex), _MAX_DEPTH)
    except Exception:  # The converter raises many types, such as RecursionError and IndexError.
        return None


def _element_tree(element: Element, max_depth: int) -> MathTree:
    """Return the tree of an element; a row with one child becomes that child.

    Raises:
        ValueError: if the element is nested too deeply.
    """
    if not max_depth:
        raise ValueError("too deep")
    while element.tag == "mrow" and len(element) == 1 and not element.text:
        element = element[0]
    attributes = {
        name: value
        for name, value in element.attrib.items()
        if name in _ALLOWED_ATTRIBUTES or (name == "width" and _EM_WIDTH.fullmatch(value))
    }
    tree: MathTree = [element.tag]
    if attributes:
        tree.append(attributes)
    if element.text:
        # The converter writes characters as HTML references.
        tree.append(unescape(element.text))
    tree += [_element_tree(child, max_depth - 1) for child in element]
    return tree
