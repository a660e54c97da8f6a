"""The plots of the report: accuracy, cost, calibration, rewards."""

import math
from collections.abc import Mapping
from html import escape
from typing import Any

from fsdpo_bench.results.published import is_backbone, published_for
from fsdpo_data.core.sampling import UNKNOWN


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


class Drawing:
    """Collects SVG elements; (0, 0) is the upper left corner.

    A ``style`` is a class of the page's style sheet; a ``tip`` shows while the pointer rests.
    """

    def __init__(self, width: float, height: float, title: str) -> None:
        self._size = (width, height)
        self._title = title
        self._parts: list[str] = []

    def _add(self, tag: str, style: str, content: str = "", **at: float | str) -> None:
        at = {key: each if isinstance(each, str) else _number(each) for key, each in at.items()}
        attributes = "".join(f' {name.replace("_", "-")}="{each}"' for name, each in at.items())
        self._parts.append(f'<{tag}{attributes} class="{style}">{content}</{tag}>')

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        """Draw a straight line."""
        self._add("line", style, x1=x1, y1=y1, x2=x2, y2=y2)

    def dot(self, x: float, y: float, radius: float, style: str, tip: str = "") -> None:
        """Draw a circle."""
        self._add("circle", style, _tip(tip), cx=x, cy=y, r=radius)

    def bar(
        self, x: float, y: float, width: float, height: float, style: str, tip: str = ""
    ) -> None:
        """Draw a rectangle."""
        width, height = max(0.0, width), max(0.0, height)
        self._add("rect", style, _tip(tip), x=x, y=y, width=width, height=height)

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "start") -> None:
        """Write text; ``anchor`` is start, middle or end."""
        self._add("text", style, escape(text), x=x, y=y, text_anchor=anchor)

    def path(self, points: list[tuple[float, float]], style: str) -> None:
        """Join points by straight lines."""
        places = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
        self._add("polyline", style, points=places)

    def render(self) -> str:
        """Return the SVG element."""
        width, height = map(_number, self._size)
        return (
            f'<svg viewBox="0 0 {width} {height}" role="img" style="max-width:{width}px">'
            f"<title>{escape(self._title)}</title>{''.join(self._parts)}</svg>"
        )


def _tip(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


class Axis:
    """Maps values from ``low`` to ``high`` to positions from ``start`` to ``end``.

    With ``log`` equal ratios are equally far apart.
    """

    def __init__(
        self, low: float, high: float, start: float, end: float, log: bool = False
    ) -> None:
        self.low, self.high, self.start, self.end, self._log = low, high, start, end, log

    def __call__(self, value: float) -> float:
        """Return the position of a value."""
        low, high, at = self.low, self.high, value
        if self._log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return a few round values inside the axis."""
        if self._log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            every = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
            return [value for value in every if self.low <= value <= self.high]
        span = self.high - self.low
        step = 10 ** math.floor(math.log10(span / 4))
        step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 6)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [count * step for count in range(first, last + 1)]


_FAMILIES = ("greedy", "sc", "weighted", "bon", "sbs")
#: Accuracy plot: height of a decoder, space between benchmarks, ends of the axis.
_ROW, _GAP, _LEFT, _RIGHT = 15, 14, 220, 770
_WIDTH = 830
#: Kinds of solutions, and the styles they are drawn in.
_KINDS = {"correct": "good", "wrong": "bad"}

Results = Mapping[str, Any]


def colour(decoder: str) -> str:
    """Return the style class of a decoder's family."""
    family = decoder.partition("@")[0]
    return f"c{_FAMILIES.index(family) + 1}" if family in _FAMILIES else "c6"


def points(share: Results) -> str:
    """Write an accuracy with its interval in points, e.g. ``58.3 [54.1, 62.4]``."""
    if share["accuracy"] is None:
        return "–"
    low, high = share["ci95"]
    return f"{100 * share['accuracy']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def accuracy_plot(results: Results) -> str:
    """Draw every decoder's accuracy with its interval, by benchmark, over the published ones."""
    tasks, model = results["tasks"], results["run"]["model"]["name"]
    rows = sum(len(task["decoders"]) for task in tasks.values())
    height = 20 + rows * _ROW + len(tasks) * _GAP + 24
    drawing = Drawing(_WIDTH, height, "Accuracy by benchmark and decoder, with 95 % intervals")
    axis = Axis(0, 100, _LEFT, _RIGHT)
    for value in axis.ticks():
        drawing.line(axis(value), 16, axis(value), height - 24, "grid")
        drawing.text(axis(value), height - 10, f"{value:g}%", "small", "middle")
    top = 20.0
    for name, task in tasks.items():
        size = len(task["decoders"]) * _ROW
        for each in published_for(name):
            style = "own" if is_backbone(each.backbone, model) else "theirs"
            drawing.bar(axis(each.value) - 1, top, 2, size, style, f"{each.label}: {each.value}")
        drawing.text(0, top + _ROW - 4, task["title"], "label")
        for index, (decoder, share) in enumerate(task["decoders"].items()):
            _interval(drawing, axis, top + (index + 0.5) * _ROW, decoder, share)
        top += size + _GAP
    return drawing.render()


def _interval(drawing: Drawing, axis: Axis, y: float, decoder: str, share: Results) -> None:
    style = colour(decoder)
    drawing.text(_LEFT - 8, y + 4, decoder, "small", "end")
    if share["accuracy"] is None:
        drawing.text(_LEFT, y + 4, "no problem counts", "small")
        return
    low, high = (axis(100 * bound) for bound in share["ci95"])
    drawing.line(low, y, high, y, f"whisker {style}")
    tip = f"{decoder}: {points(share)}, {share['correct']:g} of {share['n']}"
    drawing.dot(axis(100 * share["accuracy"]), y, 4, f"fill {style}", tip)
    drawing.text(_RIGHT + 8, y + 4, f"{100 * share['accuracy']:.1f}", "small")


def cost_plot(task: Results) -> str:
    """Draw accuracy against tokens per problem, by decoder; empty if no tokens were counted."""
    decoders = {
        name: share
        for name, share in task["decoders"].items()
        if share["cost"]["tokens"] not in (0, UNKNOWN) and share["accuracy"] is not None
    }
    if not decoders:
        return ""
    spent = {name: share["cost"]["tokens"] / task["problems"] for name, share in decoders.items()}
    bounds = [bound for share in decoders.values() for bound in share["ci95"]]
    x = Axis(min(spent.values()) / 1.4, max(spent.values()) * 2.2, 46, 350, log=True)
    y = Axis(100 * max(0, min(bounds) - 0.02), 100 * min(1, max(bounds) + 0.02), 196, 26)
    title = f"{task['title']}: accuracy against tokens per problem"
    drawing = _panel(title, x, y, "tokens per problem", f"{task['title']}, accuracy in %")
    heights = {name: y(100 * share["accuracy"]) for name, share in decoders.items()}
    # Decoders of one budget stand side by side; their names, one below the other.
    places = {name: x(spent[name]) for name in spent}
    for name, at in _apart(places, heights, 0, 9).items():
        share = decoders[name]
        low, high = (y(100 * bound) for bound in share["ci95"])
        tip = f"{name}: {points(share)}, {spent[name]:,.0f} tokens per problem, "
        drawing.line(at, low, at, high, f"whisker {colour(name)}")
        tip += f"{share['cost']['prm_calls']:,} PRM calls"
        drawing.dot(at, heights[name], 4, f"fill {colour(name)}", tip)
    for name, height in _apart(heights, places, 60, 12).items():
        drawing.text(places[name] + 16, height + 4, name, f"small {colour(name)} word")
    return drawing.render()


def _apart(
    values: Mapping[str, float], others: Mapping[str, float], near: float, gap: float
) -> dict[str, float]:
    """Move values at least ``gap`` apart among those whose other coordinate is ``near``."""
    placed: dict[str, float] = {}
    for name in sorted(values, key=values.__getitem__):
        taken = [
            at for each, at in placed.items() if not near or abs(others[each] - others[name]) < near
        ]
        at = values[name]
        for each in sorted(taken):  # upwards, so one pass is enough
            if abs(at - each) < gap:
                at = each + gap
        placed[name] = at
    return placed


def _panel(
    title: str, x: Axis, y: Axis, below: str, above: str, labels: Mapping[float, str] = {}
) -> Drawing:
    """Draw grid and axes; ``labels`` stand below the axis in place of its round values."""
    drawing = Drawing(360, 236, title)
    for value in y.ticks():
        drawing.line(x.start, y(value), x.end, y(value), "grid")
        drawing.text(x.start - 6, y(value) + 4, f"{value:g}", "small", "end")
    for value, label in (labels or {value: f"{value:g}" for value in x.ticks()}).items():
        drawing.text(x(value), y.start + 15, label, "small", "middle")
    drawing.line(x.start, y.start, x.end, y.start, "axis")
    drawing.text((x.start + x.end) / 2, y.start + 33, below, "small", "middle")
    drawing.text(x.start - 40, y.end - 12, above, "label")
    return drawing


def calibration_plot(rewards: Results) -> str:
    """Draw how often solutions are correct against the reward of their steps."""
    x, y = Axis(0, 1, 46, 350), Axis(0, 1, 196, 26)
    title, above = "Calibration of the step rewards", "Share of correct solutions"
    drawing = _panel(title, x, y, "step reward", above)
    drawing.path([(x(0), y(0)), (x(1), y(1))], "ideal")
    bins = rewards["calibration"]["bins"]
    most = max(each["steps"] for each in bins)
    for each in bins:
        at, top = x(each["reward"]), y(0.12 * each["steps"] / most)
        drawing.bar(x(each["from"]) + 1, top, x(0.1) - x(0) - 2, y(0) - top, "mass")
        drawing.line(at, y(each["ci95"][0]), at, y(each["ci95"][1]), "whisker c1")
        tip = f"{each['steps']:,} steps with mean reward {each['reward']:.3f}: "
        tip += f"{100 * each['correct']:.1f} % in correct solutions"
        drawing.dot(at, y(each["correct"]), 4, "fill c1", tip)
    return drawing.render()


def distribution_plot(rewards: Results) -> str:
    """Draw the rewards of correct and of wrong solutions."""
    shown = rewards["distribution"]
    totals = {kind: max(1, sum(shown[kind])) for kind in _KINDS}
    shares = {kind: [n / totals[kind] for n in shown[kind]] for kind in totals}
    top = max(max(values) for values in shares.values()) or 1
    x, y = Axis(0, 1, 46, 350), Axis(0, 100 * top, 196, 26)
    title = "Rewards of correct and of wrong solutions"
    below = f"{shown['aggregate']} of the step rewards"
    drawing = _panel(title, x, y, below, "% of the solutions")
    width = (x(1) - x(0)) / len(shown["correct"])
    for offset, (kind, style) in enumerate(_KINDS.items()):
        for index, part in enumerate(shares[kind]):
            left = x(0) + index * width + 1 + offset * (width / 2 - 1)
            height = y(0) - y(100 * part)
            tip = f"{kind}: {shown[kind][index]:,} solutions"
            drawing.bar(left, y(100 * part), width / 2 - 1, height, style, tip)
    _key(drawing)
    return drawing.render()


def step_plot(rewards: Results) -> str:
    """Draw the mean reward by the number of the step."""
    steps = rewards["by_step"]
    last = max(i for kind in steps for i, each in enumerate(steps[kind], start=1) if each)
    labels = {float(number): str(number) for number in range(1, last + 1)}
    if last == len(steps["correct"]):
        labels[last] += "+"
    x, y = Axis(0.5, max(2, last) + 0.5, 46, 350), Axis(0, 1, 196, 26)
    drawing = _panel("Mean reward by step", x, y, "number of the step", "Mean reward", labels)
    for kind, style in _KINDS.items():
        known = [(i, each) for i, each in enumerate(steps[kind], start=1) if each]
        drawing.path([(x(i), y(each["reward"])) for i, each in known], f"curve {style}")
        for i, each in known:
            tip = f"step {i} of {each['steps']:,} {kind} solutions: {each['reward']:.3f}"
            drawing.dot(x(i), y(each["reward"]), 3, style, tip)
    _key(drawing)
    return drawing.render()


def _key(drawing: Drawing) -> None:
    for at, (name, style) in zip((216, 286), _KINDS.items(), strict=True):
        drawing.bar(at, 5, 10, 10, style)
        drawing.text(at + 14, 14, name, "small")
