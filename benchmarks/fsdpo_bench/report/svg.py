"""Drawings in SVG, as parts of a page: elements, axes, panels of one size."""

import math
from collections.abc import Mapping
from html import escape


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


Across = float | str  #: A place from left to right, in pixels or per cent.


class SvgDrawing:
    """Collects SVG elements; (0, 0) is the upper left corner.

    A ``style`` is a class of the page's style sheet; a ``tip`` shows while the pointer rests.
    Without a width it takes what the page leaves it, and its letters keep their size on a narrow
    one; places across are then per cent (``40%``), or pixels beside it (-8).
    """

    def __init__(self, width: float | None, height: float, title: str) -> None:
        self._size = (width, height)
        self._title = title
        self._parts: list[str] = []

    def _add(self, tag: str, style: str, content: str = "", **at: float | str) -> None:
        at = {key: each if isinstance(each, str) else _number(each) for key, each in at.items()}
        attributes = "".join(f' {name.replace("_", "-")}="{each}"' for name, each in at.items())
        self._parts.append(f'<{tag}{attributes} class="{style}">{content}</{tag}>')

    def line(self, x1: Across, y1: float, x2: Across, y2: float, style: str) -> None:
        """Draw a straight line."""
        self._add("line", style, x1=x1, y1=y1, x2=x2, y2=y2)

    def dot(self, x: Across, y: float, radius: float, style: str, tip: str = "") -> None:
        """Draw a circle."""
        self._add("circle", style, _tip(tip), cx=x, cy=y, r=radius)

    def bar(
        self, x: Across, y: float, width: float, height: float, style: str, tip: str = ""
    ) -> None:
        """Draw a rectangle."""
        width, height = max(0.0, width), max(0.0, height)
        self._add("rect", style, _tip(tip), x=x, y=y, width=width, height=height)

    def text(
        self, x: Across, y: float, text: str, style: str = "", anchor: str = "start", dx: float = 0
    ) -> None:
        """Write text, ``dx`` to the right of its place; ``anchor`` is start, middle or end."""
        self._add("text", style, escape(text), x=x, y=y, dx=dx, text_anchor=anchor)

    def path(self, points: list[tuple[float, float]], style: str) -> None:
        """Join points by straight lines."""
        places = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
        self._add("polyline", style, points=places)

    def render(self) -> str:
        """Return the SVG element."""
        width, height = self._size
        size = f'viewBox="0 0 {width} {height}" style="max-width:{width}px"'
        if width is None:
            size = f'class="fluid" style="height:{height}px"'
        drawn = f"<title>{escape(self._title)}</title>{''.join(self._parts)}"
        return f'<svg {size} role="img">{drawn}</svg>'


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


def panel(
    title: str, x: Axis, y: Axis, below: str, above: str, labels: Mapping[float, str] = {}
) -> SvgDrawing:
    """Return grid and axes; ``labels`` stand below the axis in place of its round values."""
    drawing = SvgDrawing(360, y.start + 40, title)
    for value in y.ticks():
        drawing.line(x.start, y(value), x.end, y(value), "grid")
        drawing.text(x.start - 6, y(value) + 4, f"{value:g}", "small", "end")
    for value, label in (labels or {value: f"{value:g}" for value in x.ticks()}).items():
        drawing.text(x(value), y.start + 15, label, "small", "middle")
    drawing.line(x.start, y.start, x.end, y.start, "axis")
    drawing.text((x.start + x.end) / 2, y.start + 33, below, "small", "middle")
    drawing.text(x.start - 40, y.end - 12, above, "label")
    return drawing
