r"""Segmenters, which split a solution into steps.

For every segmenter, ``"".join(steps) == text``, and no step is blank. The step lengths therefore
give the position of each step. A text without visible characters has no steps. Separators stay at
the end of the preceding step, and blank text at the start belongs to the first step.

Thinking at the start of a solution is the first step, unless the segmenter splits thinking too.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from fsdpo_data.answers.thinking import find_thinking
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.registry import Registry

#: A function that splits a text into steps.
SplitFunction = Callable[[str], list[str]]
#: Stop strings, or a function from the solution so far to the stop strings.
StopStrings = tuple[str, ...] | Callable[[str], tuple[str, ...]]

#: "Step 1:" at the start of a line, also in bold or as a heading ("**Step 1:**", "### Step 1:").
#: Only the start of a line counts, because "as in Step 2: …" inside a sentence is not a marker.
_STEP_MARKER = re.compile(
    r"^[ \t]*(?:#{1,6}[ \t]+)?(?:\*{1,2})?Step[ \t]+\d+(?:\*{1,2})?[ \t]*:", re.M
)
# The indentation of a line stays with the line; blank lines stay with the preceding step.
_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")
_LINE_END = re.compile(r"\n(?:[^\S\n]*\n)*")

#: Minimum size of a paragraph step in UTF-8 bytes. Bytes suit all scripts: a Chinese character has
#: three bytes, and carries about as much meaning as three letters.
MIN_PARAGRAPH_BYTES = 20
#: Maximum length of a formula or code fence; a longer one counts as not closed.
MAX_BLOCK_CHARS = 5_000
#: End of a formula, by its start.
_FORMULA_ENDS = {"$$": "$$", "\\[": "\\]"}
#: Blank lines, or the start of a formula, environment or code fence. A line with more backticks
#: after the first ones is code inside a sentence.
_BLANK_LINES_OR_BLOCK_START = re.compile(
    rf"{_BLANK_LINES.pattern}|(?P<formula>\$\$|\\\[)|\\begin\{{(?P<environment>[^{{}}\n]+)\}}"
    r"|^[ \t]*(?P<fence>`{3,}(?=[^`\n]*$)|~{3,})",
    re.M,
)
_LIST_BULLET = r"(?:[-*+•]|\d{1,3}[.)])[ \t]|\d{1,3}[、．]|[（(]\d{1,3}[）)]"
_LIST_ITEM = re.compile(rf"^[ \t]*(?:{_LIST_BULLET})", re.M)
#: Start of a paragraph that continues a list: indented, or a new item.
_LIST_CONTINUATION = re.compile(rf"[ \t]{{2,}}|(?:{_LIST_BULLET})")


def split_at_step_markers(text: str) -> list[str]:
    """Split before each "Step k:" at a line start; text before the first one belongs to step 1."""
    starts = [match.start() for match in _STEP_MARKER.finditer(text)]
    return _split_at_offsets(text, starts[1:])


def remove_step_marker(step: str) -> str:
    """Return a step without the "Step k:" at its start, and without the white space after it."""
    match = _STEP_MARKER.match(step)
    if match is None:
        return step
    text = step[match.end() :]
    marker = match[0].strip("# \t")
    is_open_bold = marker.startswith("*") and not marker.rstrip(" \t:").endswith("*")
    if is_open_bold:
        bold = "**" if marker.startswith("**") else "*"
        # "**Step 1:** text" ends its bold text here, and "**Step 1: title** text" later.
        text = text.removeprefix(bold) if text.startswith(bold) else bold + text.lstrip()
    return text.lstrip()


def split_at_newlines(text: str) -> list[str]:
    """Split after each line with visible text."""
    return _split_at_offsets(text, (match.end() for match in _LINE_END.finditer(text)))


def split_at_blank_lines(text: str) -> list[str]:
    """Split after each group of blank lines."""
    return _split_at_offsets(text, (match.end() for match in _BLANK_LINES.finditer(text)))


def split_auto(text: str) -> list[str]:
    """Split at step markers if the text has any, else at blank lines, else at line breaks."""
    return SEGMENTERS[choose_segmenter(text)].split(text)


def choose_segmenter(text: str) -> str:
    """Return the name of the segmenter that ``auto`` uses for ``text``."""
    if _STEP_MARKER.search(text):
        return "step-marker@1"
    return "blank-line@1" if _BLANK_LINES.search(text.strip()) else "newline@1"


def keep_as_one_step(text: str) -> list[str]:
    """Return the text as one step."""
    return _split_at_offsets(text, ())


def split_at_paragraphs(text: str) -> list[str]:
    """Split after blank lines outside formulas, code fences and lists.

    A short paragraph joins the next step; a short last paragraph joins the step before it.
    """
    offsets: list[int] = []
    start = 0
    step_bytes = 0
    is_in_list = False
    for blank_lines in _find_paragraph_breaks(text):
        paragraph = text[start : blank_lines.start()]
        start = blank_lines.end()
        step_bytes += _count_visible_bytes(paragraph)
        # An indented paragraph continues the preceding list item.
        is_in_list = bool(_LIST_ITEM.search(paragraph)) or (is_in_list and paragraph[:1] in " \t")
        continues_list = is_in_list and _LIST_CONTINUATION.match(text, start) is not None
        if step_bytes >= MIN_PARAGRAPH_BYTES and not continues_list:
            offsets.append(start)
            step_bytes = 0
    if offsets and _count_visible_bytes(text[offsets[-1] :]) < MIN_PARAGRAPH_BYTES:
        offsets.pop()
    return _split_at_offsets(text, offsets)


def _count_visible_bytes(text: str) -> int:
    """Return the UTF-8 length of a text without the white space around it."""
    return len(text.strip().encode(errors="surrogatepass"))


def _find_paragraph_breaks(text: str) -> Iterator[re.Match[str]]:
    """Yield the groups of blank lines outside formulas and code fences.

    A code fence ends at a line with its mark, and a LaTeX environment at the end of its name.
    """
    position = 0
    while match := _BLANK_LINES_OR_BLOCK_START.search(text, position):
        position = match.end()
        if match.lastgroup is None:
            yield match
        else:
            position = _find_block_end(text, match) or position


def _find_block_end(text: str, start: re.Match[str]) -> int | None:
    """Return the end of a formula, environment or code fence; None if it is not closed."""
    position = start.end()
    limit = position + MAX_BLOCK_CHARS
    if name := start["environment"]:
        return _find_environment_end(text, name, position, limit)
    if mark := start["fence"]:
        fence_end = re.compile(rf"\n[ \t]*{mark}{mark[0]}*[^\S\n]*$", re.M).search(
            text, position, limit
        )
        return fence_end and fence_end.end()
    formula_end = _FORMULA_ENDS[start["formula"]]
    end = text.find(formula_end, position, limit)
    return end + len(formula_end) if end >= 0 else None


def _find_environment_end(text: str, name: str, start: int, limit: int) -> int | None:
    """Return the end of a LaTeX environment, which may contain others of the same name."""
    begin_mark = f"\\begin{{{name}}}"
    end_mark = f"\\end{{{name}}}"
    depth = 1
    while (end := text.find(end_mark, start, limit)) >= 0:
        depth += text.count(begin_mark, start, end) - 1
        start = end + len(end_mark)
        if not depth:
            return start
    return None


def _split_at_offsets(text: str, offsets: Iterable[int]) -> list[str]:
    """Split ``text`` at ascending offsets.

    A blank part at the start joins the first step, and one at the end joins the last step. Other
    blank parts join the next step.
    """
    if not text.strip():
        return []
    steps: list[str] = []
    start = 0
    for offset in (*offsets, len(text)):
        step = text[start:offset]
        if step.strip():
            steps.append(step)
            start = offset
    # Only white space remains after the last step.
    if start < len(text):
        steps[-1] += text[start:]
    return steps


_VERSIONED_NAME = re.compile(r"[A-Za-z][\w.-]*@\d+")


@dataclass(frozen=True, slots=True)
class Segmenter:
    """A rule that splits a solution into steps.

    Raises:
        InputError: if the name has no version.
    """

    name: str  #: Name and version, e.g. ``auto@1``. A changed rule needs a new version.
    description: str  #: Words for the help, such as ``after each line``.
    split: SplitFunction  #: Splits the answer; the steps must join to the text.
    split_thinking: SplitFunction = keep_as_one_step  #: Splits the thinking before the answer.
    #: Stop strings, or a function from the answer so far to the stop strings of the next step. The
    #: answer is empty inside the thinking. Beam search generates one step at a time. A stop string
    #: only means that a step may be complete; the segmenter then splits the text so far. See
    #: :func:`step_ending`. Without stop strings, generation continues, and the segmenter cuts the
    #: text later.
    stops: StopStrings = ()

    def __post_init__(self) -> None:
        if not _VERSIONED_NAME.fullmatch(self.name):
            raise InputError(
                "a segmenter needs a name with a version, such as `sentence@1`. Rename it.",
                field="segmenter",
                value=self.name,
            )

    @property
    def splits_thinking(self) -> bool:
        """Whether the thinking is split, and not one step."""
        return self.split_thinking is not keep_as_one_step


#: Segmenters by full name.
SEGMENTERS = Registry("segmenter", Segmenter, group="fsdpo.segmenters")


def segmenter_name(name: str) -> str:
    """Return the full name of a segmenter: ``auto@1`` for ``auto`` or ``auto@1``.

    Raises:
        InputError: if there is no such segmenter.
    """
    return SEGMENTERS.find(name).name


def split_solution(prompt: str, text: str, segmenter: str) -> list[str]:
    """Split a solution into steps; thinking at the start becomes the first steps.

    Args:
        prompt: The prompt of the solution.
        text: The text of the solution.
        segmenter: Full name of the segmenter, e.g. ``auto@1``.
    """
    return split_steps(text, find_thinking(prompt, text).end, segmenter)


def split_steps(text: str, thinking_chars: int, segmenter: str) -> list[str]:
    """Split a solution that may start with thinking.

    Args:
        text: The solution.
        thinking_chars: Length of the thinking at the start of ``text``, in characters.
        segmenter: Full name of the segmenter, e.g. ``auto@1``.

    Raises:
        InputError: if the steps of the segmenter do not join to the text, or a step is blank.
    """
    rule = SEGMENTERS.find(segmenter)
    answer = text[thinking_chars:]
    thinking_steps = _split_text(rule, rule.split_thinking, text[:thinking_chars])
    answer_steps = _split_text(rule, rule.split, answer)
    if answer_steps:
        return [*thinking_steps, *answer_steps]
    if not thinking_steps:
        return []
    # A blank answer belongs to the last step.
    return [*thinking_steps[:-1], thinking_steps[-1] + answer]


def split_at_lengths(text: str, lengths: Iterable[int]) -> list[str]:
    """Split a text into parts of the given lengths in characters, which add up to the text."""
    ends = list(accumulate(lengths))
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _split_text(segmenter: Segmenter, split: SplitFunction, text: str) -> list[str]:
    """Split a text, and check the steps; segmenters of plug-ins may be wrong."""
    steps = split(text)
    if "".join(steps) == (text if text.strip() else "") and all(map(str.strip, steps)):
        return steps
    raise InputError(
        f"the steps must join to the text, and no step may be blank, but this segmenter splits "
        f"{text[:60]!r} into {[step[:60] for step in steps[:4]]}. Correct its function, or choose "
        "another segmenter.",
        field="segmenter",
        value=segmenter.name,
    )


def step_stops(segmenter: str, answer: str) -> tuple[str, ...]:
    """Return the stop strings for the generation of the step after ``answer``.

    Args:
        segmenter: Full name of the segmenter, e.g. ``auto@1``.
        answer: The solution so far, without its thinking.
    """
    stops = SEGMENTERS.find(segmenter).stops
    return stops(answer) if callable(stops) else stops


def step_ending(stop: str) -> str:
    """Return the part of a stop string that belongs to the preceding step.

    The part ends at the last line end, and the next step starts after it. A stop string without a
    line end, such as ``". "``, belongs to the preceding step.
    """
    return stop[: stop.rindex("\n") + 1] if "\n" in stop else stop


_STEP_MARKER_STOPS = ("\nStep ", "\n**Step ", "\n# Step ", "\n## Step ", "\n### Step ")


def _auto_stops(text: str) -> tuple[str, ...]:
    """Return the stop strings of the segmenter that ``auto`` uses for ``text``.

    The segmenter of the first step is still unknown. If the steps turn out to be lines, generation
    of the first step continues to the end of the solution.
    """
    if not text.strip():
        return ("\n\n", *_STEP_MARKER_STOPS)
    # A separator at the end of a text has no effect, so add a character after it.
    return step_stops(choose_segmenter(text + "…"), text)


for _segmenter in (
    Segmenter(
        "auto@1",
        "at step markers if the text has any, else at blank lines, else at line breaks",
        split_auto,
        stops=_auto_stops,
    ),
    Segmenter(
        "step-marker@1",
        'before each "Step k:" at the start of a line',
        split_at_step_markers,
        stops=_STEP_MARKER_STOPS,
    ),
    Segmenter("newline@1", "after each line", split_at_newlines, stops=("\n",)),
    Segmenter("blank-line@1", "after blank lines", split_at_blank_lines, stops=("\n\n",)),
    Segmenter(
        "thinking@2",
        "only the thinking, into paragraphs; the answer is one step",
        keep_as_one_step,
        split_thinking=split_at_paragraphs,
    ),
    Segmenter(
        "both@2",
        "thinking and answer, into paragraphs",
        split_at_paragraphs,
        split_thinking=split_at_paragraphs,
        stops=("\n\n",),
    ),
):
    SEGMENTERS.register(_segmenter)
