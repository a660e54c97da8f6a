"""The key of a question: questions with equal keys count as the same question.

Splits, duplicates, contamination and the solutions of a problem all use this key.
"""

import itertools
import unicodedata
from collections.abc import Iterator

#: What stands around characters that are written smaller or in a shape, by the tag of their
#: decomposition. Without it, ``5²`` would be ``52``, and ``1½`` would be ``11/2``.
_MARKS = {
    "<super>": ("^(", ")"),
    "<sub>": ("_(", ")"),
    "<fraction>": ("(", ")"),
    "<circle>": ("(", ")"),
}


def question_key(question: str) -> str:
    """Return the normalised text of a question without white space.

    Questions that differ only in white space, case and Unicode compatibility forms, such as ``３``
    and ``3``, have one key. Superscripts, subscripts and fractions keep their meaning: ``5²`` is
    not ``52``.
    """
    return "".join(normalise_question(question).split())


def normalise_question(question: str) -> str:
    """Return a question in lower case and in Unicode's form NFKC, with marked superscripts."""
    marked = question if question.isascii() else "".join(_mark_shapes(question))
    return unicodedata.normalize("NFKC", marked).lower()


def _mark_shapes(text: str) -> Iterator[str]:
    """Yield the parts of a text, with brackets around superscripts, subscripts and fractions."""
    for tag, characters in itertools.groupby(text, key=_decomposition_tag):
        if tag not in _MARKS:
            yield from characters
            continue
        opener, closer = _MARKS[tag]
        is_run = tag in ("<super>", "<sub>")  # x¹⁰ has one exponent, but ½½ are two fractions
        for part in ["".join(characters)] if is_run else characters:
            yield f"{opener}{part}{closer}"


def _decomposition_tag(character: str) -> str:
    """Return how a character was changed in shape, such as ``<super>``; "" for others."""
    return unicodedata.decomposition(character).partition(" ")[0]
