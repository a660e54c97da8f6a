"""What responses say around their answers: patterns of a table, compiled."""

import re

from fsdpo_data.answers.lexicon.vocabulary import names
from fsdpo_data.core.tables import compiled, read_table

_TOLD: dict[str, dict[str, str]] = read_table(__file__)


def phrases(module: str) -> dict[str, re.Pattern[str]]:
    """Return the patterns that a module looks for, by name."""
    return compiled(_TOLD[module])


#: By patterns that cost much: words of which a text holds one where such a pattern is found.
HELD = {name: names(words) for name, words in _TOLD["held"].items()}
