"""What responses say around their answers: patterns of a table, compiled."""

import re

from fsdpo_data.answers.lexicon.vocabulary import word_set
from fsdpo_data.core.toml_tables import compile_patterns, read_toml

_TABLE: dict[str, dict[str, str]] = read_toml(__file__)


def load_phrases(module: str) -> dict[str, re.Pattern[str]]:
    """Return the patterns that a module looks for, by name."""
    return compile_patterns(_TABLE[module])


#: By patterns that cost much: words of which a text holds one where such a pattern is found.
TRIGGER_WORDS = {name: word_set(words) for name, words in _TABLE["held"].items()}
