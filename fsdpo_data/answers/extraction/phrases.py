"""The regular expressions of answer extraction, compiled from ``phrases.toml``."""

import re

from fsdpo_data.answers.lexicon.vocabulary import word_set
from fsdpo_data.answers.tables import compile_patterns, read_module_table

_TABLE: dict[str, dict[str, str]] = read_module_table(__file__)


def load_phrases(module: str) -> dict[str, re.Pattern[str]]:
    """Return the compiled patterns of one module, by pattern name."""
    return compile_patterns(_TABLE[module])


#: Trigger words of slow patterns, by pattern name. A text without any of the words cannot match
#: the pattern, and searching the words is much faster.
TRIGGER_WORDS = {name: word_set(words) for name, words in _TABLE["trigger_words"].items()}
