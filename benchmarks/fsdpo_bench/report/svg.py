"""A small drawing surface: elements of an inline SVG whose colours come from the page's style."""

from __future__ import annotations

import math
from html import escape


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
        self._add(
            "polyline", style, points=" ".join(f"{_number(x)},{_number(y)}" for x, y in points)
        )

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
