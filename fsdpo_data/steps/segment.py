r"""Segmentation: cut a solution into steps that tile it exactly.

For every segmenter, ``"".join(steps) == text`` and no step is blank, so a step's span is known
from the lengths alone and no text is lost or invented. A text with no visible character has no
steps. Separators stay at the end of the step before them; blank text at the start belongs to the
first step.
"""

import re
from collections.abc import Callable, Iterable

from fsdpo_data.core.errors import InputError

Segmenter = Callable[[str], list[str]]

#: "Step 1:" at the start of a line, bold or as a heading too ("**Step 1:**", "### Step 1:").
#: Only a line start counts: "as in Step 2: …" within a sentence is prose.
_MARKER = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+)?(?:\*{1,2})?Step[ \t]+\d+(?:\*{1,2})?[ \t]*:", re.M)
# The indentation of a line stays with the line; blank lines stay with the step before them.
_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")
_LINE_END = re.compile(r"\n(?:[^\S\n]*\n)*")


def step_marker(text: str) -> list[str]:
    """Cut before each "Step k:" at a line start; text before the first belongs to step 1."""
    starts = [match.start() for match in _MARKER.finditer(text)]
    return _tile(text, starts[1:])


def newline(text: str) -> list[str]:
    """Cut after each line that holds text."""
    return _tile(text, (match.end() for match in _LINE_END.finditer(text)))


def blank_line(text: str) -> list[str]:
    """Cut after each run of blank lines."""
    return _tile(text, (match.end() for match in _BLANK_LINES.finditer(text)))


def auto(text: str) -> list[str]:
    """Cut by marker if there is one, else by blank line if there is one, else by line."""
    return SEGMENTERS[style_of(text)](text)


def style_of(text: str) -> str:
    """Return the name of the segmenter that ``auto`` uses for ``text``."""
    if _MARKER.search(text):
        return "step-marker@1"
    return "blank-line@1" if _BLANK_LINES.search(text.strip()) else "newline@1"


def _tile(text: str, cuts: Iterable[int]) -> list[str]:
    """Split ``text`` at ``cuts`` (ascending), joining a blank piece to the step before it."""
    if not text.strip():
        return []
    steps: list[str] = []
    start = 0
    for cut in (*cuts, len(text)):
        piece = text[start:cut]
        if piece.strip():
            steps.append(piece)
            start = cut
    # What is left after the last step with text is white space: the end of that step.
    if start < len(text):
        steps[-1] += text[start:]
    return steps


SEGMENTERS: dict[str, Segmenter] = {
    "auto@1": auto,
    "step-marker@1": step_marker,
    "newline@1": newline,
    "blank-line@1": blank_line,
}


def get_segmenter(name: str) -> tuple[str, Segmenter]:
    """Return full name and function for ``auto`` or ``auto@1``; InputError if there is none."""
    full = name if "@" in name else f"{name}@1"
    if full not in SEGMENTERS:
        raise InputError(f"expected one of {', '.join(SEGMENTERS)}.", field="segmenter", value=name)
    return full, SEGMENTERS[full]


# Where generation pauses so that a step can be scored. Every segmenter cuts at line ends, and
# leaves the line end with the step before it; stop strings say "a step may be over". They are
# hints: what the steps are is for the segmenter to say, of the whole text so far.

#: The beginnings of the next step, by segmenter.
_STOPS = {
    "newline@1": ("\n",),
    "blank-line@1": ("\n\n",),
    "step-marker@1": ("\nStep ", "\n**Step ", "\n# Step ", "\n## Step ", "\n### Step "),
}
#: What ``auto`` will cut by shows with the first step. One whose steps are lines shows only at
#: the end, so its first step costs a whole solution.
_FIRST = ("\n\n", *_STOPS["step-marker@1"])


def step_stops(segmenter: str, text: str) -> tuple[str, ...]:
    """Return the strings at which the step after ``text`` may be over.

    ``segmenter`` is a full name, e.g. ``auto@1``.
    """
    if segmenter != "auto@1":
        return _STOPS[segmenter]
    # The separator at the end counts only if something follows it; something will.
    return _STOPS[style_of(text + "…")] if text.strip() else _FIRST


def kept_of(stop: str) -> str:
    """Return the part of a stop string that belongs to the step before it: its line ends."""
    return stop[: stop.rindex("\n") + 1]
