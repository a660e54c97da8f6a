"""A segmenter and an aggregate of step rewards."""

import re
import statistics

from fsdpo_data.steps.rewards import Aggregate
from fsdpo_data.steps.segment import Segmenter

_SENTENCE = re.compile(r".*?[.!?](?:\s+|$)|.+$", re.DOTALL)


def split_at_sentences(text: str) -> list[str]:
    """Split after each sentence; the steps join to the text."""
    return _SENTENCE.findall(text)


SENTENCE = Segmenter(name="sentence@1", description="after each sentence", split=split_at_sentences)
MEDIAN = Aggregate(name="median", compute=statistics.median)
