"""The key of a question: questions with equal keys count as the same question.

Splits, duplicates, contamination and the solutions of a problem all use this key.
"""

import unicodedata


def question_key(question: str) -> str:
    """Return the normalised text of a question without white space.

    Questions that differ only in white space, case and Unicode compatibility forms, such as ``x²``
    and ``x2``, have one key.
    """
    return "".join(normalise_question(question).split())


def normalise_question(question: str) -> str:
    """Return a question in lower case and in Unicode's form NFKC."""
    return unicodedata.normalize("NFKC", question).lower()
