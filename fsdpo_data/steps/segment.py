r"""Segmentation: cut a solution into steps that tile it exactly.

For every segmenter, ``"".join(steps) == text`` and no step is blank, so a step's span is known
from the lengths alone and no text is lost or invented. A text with no visible character has no
steps. Separators stay at the end of the step before them; blank text at the start belongs to the
first step.

Where a solution begins with thinking, that is the first step, and what a segmenter cuts is the
answer behind it; ``thinking`` cuts the thinking and leaves the answer whole, ``both`` cuts both.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from fsdpo_data.core.errors import InputError

Segmenter = Callable[[str], list[str]]

#: "Step 1:" at the start of a line, bold or as a heading too ("**Step 1:**", "### Step 1:").
#: Only a line start counts: "as in Step 2: …" within a sentence is prose.
_MARKER = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+)?(?:\*{1,2})?Step[ \t]+\d+(?:\*{1,2})?[ \t]*:", re.M)
# The indentation of a line stays with the line; blank lines stay with the step before them.
_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")
_LINE_END = re.compile(r"\n(?:[^\S\n]*\n)*")

#: Bytes under which a paragraph is no step: a Chinese character says as much as three letters.
MIN_PARAGRAPH_BYTES = 20
#: Characters of the longest formula or fence: what is not closed by then holds nothing together.
MAX_BLOCK_CHARS = 5_000
_CLOSES = {"$$": "$$", "\\[": "\\]", "\\begin{": "\\end{", "```": "\n```", "~~~": "\n~~~"}
_OPENS = re.compile(rf"{_BLANK_LINES.pattern}|\$\$|\\\[|\\begin\{{|^[ \t]*(?:```|~~~)", re.M)
_MARK = r"(?:[-*+•]|\d{1,3}[.)])[ \t]|\d{1,3}[、．]|[（(]\d{1,3}[）)]"
_ITEM = re.compile(rf"^[ \t]*(?:{_MARK})", re.M)
_GOES_ON = re.compile(rf"[ \t]{{2,}}|(?:{_MARK})")


def split_at_step_markers(text: str) -> list[str]:
    """Cut before each "Step k:" at a line start; text before the first belongs to step 1."""
    starts = [match.start() for match in _MARKER.finditer(text)]
    return _tile(text, starts[1:])


def split_at_newlines(text: str) -> list[str]:
    """Cut after each line that holds text."""
    return _tile(text, (match.end() for match in _LINE_END.finditer(text)))


def split_at_blank_lines(text: str) -> list[str]:
    """Cut after each run of blank lines."""
    return _tile(text, (match.end() for match in _BLANK_LINES.finditer(text)))


def split_auto(text: str) -> list[str]:
    """Cut by marker if there is one, else by blank line if there is one, else by line."""
    return SEGMENTERS[choose_segmenter(text)](text)


def choose_segmenter(text: str) -> str:
    """Return the name of the segmenter that ``auto`` uses for ``text``."""
    if _MARKER.search(text):
        return "step-marker@1"
    return "blank-line@1" if _BLANK_LINES.search(text.strip()) else "newline@1"


def keep_as_one_step(text: str) -> list[str]:
    """Cut nothing."""
    return _tile(text, ())


def split_at_paragraphs(text: str) -> list[str]:
    """Cut after blank lines outside of formulas, fences and lists.

    A short piece begins the next step, and the last one ends the step before it.
    """
    cuts: list[int] = []
    start, size, listed = 0, 0, False
    for blank in _outside(text):
        piece, start = text[start : blank.start()], blank.end()
        size += len(piece.strip().encode(errors="surrogatepass"))
        # An indented paragraph goes on with the item before it.
        listed = bool(_ITEM.search(piece)) or (listed and piece[:1] in " \t")
        if size >= MIN_PARAGRAPH_BYTES and not (listed and _GOES_ON.match(text, start)):
            cuts.append(start)
            size = 0
    if cuts and len(text[cuts[-1] :].strip().encode(errors="surrogatepass")) < MIN_PARAGRAPH_BYTES:
        cuts.pop()
    return _tile(text, cuts)


def _outside(text: str) -> Iterator[re.Match[str]]:
    """Yield the blank lines that are not within a formula or a fence."""
    at = 0
    while found := _OPENS.search(text, at):
        at = found.end()
        closes = _CLOSES.get(found[0].strip())
        if closes is None:
            yield found
        elif (end := text.find(closes, at, at + MAX_BLOCK_CHARS)) >= 0:
            at = end + len(closes)


def split_steps(text: str, thinking_chars: int, segmenter: str) -> list[str]:
    """Cut a solution of which the first ``thought`` characters are thinking.

    ``segmenter`` is a full name, e.g. ``auto@1``.
    """
    thinking, answer = text[:thinking_chars], text[thinking_chars:]
    steps = _OF_THINKING.get(segmenter, keep_as_one_step)(thinking)
    rest = SEGMENTERS[segmenter](answer)
    if rest:
        return [*steps, *rest]
    return [*steps[:-1], steps[-1] + answer] if steps else []


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
    "auto@1": split_auto,
    "step-marker@1": split_at_step_markers,
    "newline@1": split_at_newlines,
    "blank-line@1": split_at_blank_lines,
    "thinking@1": keep_as_one_step,
    "both@1": split_at_paragraphs,
}
#: How the thinking before an answer is cut; for others it is one step.
_OF_THINKING: dict[str, Segmenter] = {
    "thinking@1": split_at_paragraphs,
    "both@1": split_at_paragraphs,
}


def segmenter_name(name: str) -> str:
    """Return the full name for ``auto`` or ``auto@1``; InputError if there is none."""
    full = name if "@" in name else f"{name}@1"
    if full not in SEGMENTERS:
        raise InputError(f"expected one of {', '.join(SEGMENTERS)}.", field="segmenter", value=name)
    return full


# Where generation pauses so that a step can be scored. Every segmenter cuts at line ends, and
# leaves the line end with the step before it; stop strings say "a step may be over". They are
# hints: what the steps are is for the segmenter to say, of the whole text so far.

#: The beginnings of the next step, by segmenter.
_STOPS = {
    "newline@1": ("\n",),
    "blank-line@1": ("\n\n",),
    "both@1": ("\n\n",),
    "thinking@1": (),
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
    return _STOPS[choose_segmenter(text + "…")] if text.strip() else _FIRST


def line_ends_of_stop(stop: str) -> str:
    """Return the part of a stop string that belongs to the step before it: its line ends."""
    return stop[: stop.rindex("\n") + 1]
