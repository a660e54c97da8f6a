r"""Where generation pauses so that a step can be scored: the places where a segmenter may cut.

Every segmenter cuts at line ends, and leaves the line end with the step before it. A sampler
takes stop strings, so each segmenter has some that say "a step may be over". They are hints: what
the steps are is for the segmenter to say, of the whole text so far.
"""

from __future__ import annotations

from fsdpo_data.steps.segment import style_of

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

    Args:
        segmenter: Full name, e.g. ``auto@1``.
        text: The solution so far.
    """
    if segmenter != "auto@1":
        return _STOPS[segmenter]
    # The separator at the end counts only if something follows it; something will.
    return _STOPS[style_of(text + "…")] if text.strip() else _FIRST


def kept_of(stop: str) -> str:
    """Return the part of a stop string that belongs to the step before it: its line ends."""
    return stop[: stop.rindex("\n") + 1]
