"""A small drawing surface: elements of an inline SVG whose colours come from the page's style."""

from __future__ import annotations

import math
from html import escape


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


class Drawing:
    """Collects SVG elements; (0, 0) is the upper left corner.

    Args:
        width: Of the drawing, in user units.
        height: Of the drawing.
        title: What it shows, for people who do not see it.
    """

    def __init__(self, width: float, height: float, title: str) -> None:
        self._size = (width, height)
        self._title = title
        self._parts: list[str] = []

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        """Draw a straight line; ``style`` is a class of the page's style sheet."""
        a, b, c, d = map(_number, (x1, y1, x2, y2))
        self._parts.append(f'<line x1="{a}" y1="{b}" x2="{c}" y2="{d}" class="{style}"/>')

    def dot(self, x: float, y: float, radius: float, style: str, tip: str = "") -> None:
        """Draw a circle; ``tip`` shows while the pointer rests on it."""
        a, b, r = map(_number, (x, y, radius))
        tipped = f"<title>{escape(tip)}</title>" if tip else ""
        self._parts.append(f'<circle cx="{a}" cy="{b}" r="{r}" class="{style}">{tipped}</circle>')

    def bar(
        self, x: float, y: float, width: float, height: float, style: str, tip: str = ""
    ) -> None:
        """Draw a rectangle."""
        a, b, c, d = map(_number, (x, y, max(0.0, width), max(0.0, height)))
        tipped = f"<title>{escape(tip)}</title>" if tip else ""
        self._parts.append(
            f'<rect x="{a}" y="{b}" width="{c}" height="{d}" class="{style}">{tipped}</rect>'
        )

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "start") -> None:
        """Write text; ``anchor`` is start, middle or end."""
        a, b = map(_number, (x, y))
        self._parts.append(
            f'<text x="{a}" y="{b}" text-anchor="{anchor}" class="{style}">{escape(text)}</text>'
        )

    def path(self, points: list[tuple[float, float]], style: str) -> None:
        """Join points by straight lines."""
        steps = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
        self._parts.append(f'<polyline points="{steps}" class="{style}"/>')

    def render(self) -> str:
        """Return the SVG element."""
        width, height = map(_number, self._size)
        body = "".join(self._parts)
        return (
            f'<svg viewBox="0 0 {width} {height}" role="img" style="max-width:{width}px">'
            f"<title>{escape(self._title)}</title>{body}</svg>"
        )


class Axis:
    """Maps values to positions, linearly or by logarithm.

    Args:
        low: Value at ``start``.
        high: Value at ``end``.
        start: Position.
        end: Position.
        log: Whether equal ratios are equally far apart.
    """

    def __init__(
        self, low: float, high: float, start: float, end: float, log: bool = False
    ) -> None:
        self.low, self.high, self.start, self.end, self._log = low, high, start, end, log

    def __call__(self, value: float) -> float:
        """Return the position of a value."""
        low, high = (
            (math.log(self.low), math.log(self.high)) if self._log else (self.low, self.high)
        )
        at = math.log(value) if self._log else value
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
