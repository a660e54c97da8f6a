"""SVG drawings for pages: elements, axes and panels."""

import math
from collections.abc import Mapping
from html import escape


def _format_number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


XPosition = float | str  #: Horizontal position, in pixels or in percent of the width (``40%``).


class SvgDrawing:
    """A collection of SVG elements; (0, 0) is the upper left corner.

    A ``style`` is a class of the page's style sheet. A ``tip`` is the text of the tooltip. A
    drawing without a width fills the width of its container, and its text keeps its size on narrow
    screens. Horizontal positions are then in percent, or in pixels outside the drawing (-8).
    """

    def __init__(self, width: float | None, height: float, title: str) -> None:
        self._width = width
        self._height = height
        self._title = title
        self._elements: list[str] = []

    def _add_element(
        self, tag: str, style: str, content: str = "", **attributes: float | str
    ) -> None:
        parts = []
        for name, value in attributes.items():
            text = value if isinstance(value, str) else _format_number(value)
            parts.append(f' {name.replace("_", "-")}="{text}"')
        self._elements.append(f'<{tag}{"".join(parts)} class="{style}">{content}</{tag}>')

    def add_line(self, *, x1: XPosition, y1: float, x2: XPosition, y2: float, style: str) -> None:
        """Draw a straight line."""
        self._add_element("line", style, x1=x1, y1=y1, x2=x2, y2=y2)

    def add_circle(
        self, *, x: XPosition, y: float, radius: float, style: str, tip: str = ""
    ) -> None:
        """Draw a circle around (x, y)."""
        self._add_element("circle", style, _tooltip(tip), cx=x, cy=y, r=radius)

    def add_rectangle(
        self,
        *,
        x: XPosition,
        y: float,
        width: float,
        height: float,
        style: str,
        tip: str = "",
    ) -> None:
        """Draw a rectangle with its upper left corner at (x, y)."""
        width = max(0.0, width)
        height = max(0.0, height)
        self._add_element("rect", style, _tooltip(tip), x=x, y=y, width=width, height=height)

    def add_text(
        self,
        x: XPosition,
        y: float,
        text: str,
        *,
        style: str = "",
        anchor: str = "start",
        dx: float = 0,
    ) -> None:
        """Write text, ``dx`` pixels to the right of ``x``; ``anchor`` is start, middle or end."""
        self._add_element("text", style, escape(text), x=x, y=y, dx=dx, text_anchor=anchor)

    def add_polyline(self, points: list[tuple[float, float]], style: str) -> None:
        """Connect points with straight lines."""
        coordinates = " ".join(f"{_format_number(x)},{_format_number(y)}" for x, y in points)
        self._add_element("polyline", style, points=coordinates)

    def render(self) -> str:
        """Return the SVG element."""
        if self._width is None:
            size = f'class="fluid" style="height:{self._height}px"'
        else:
            size = f'viewBox="0 0 {self._width} {self._height}" style="max-width:{self._width}px"'
        content = f"<title>{escape(self._title)}</title>{''.join(self._elements)}"
        return f'<svg {size} role="img">{content}</svg>'


def _tooltip(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


class Axis:
    """A linear or logarithmic map from values to positions.

    It maps values from ``low`` to ``high`` to positions from ``start`` to ``end``. With ``log``,
    equal ratios have equal distances.
    """

    def __init__(
        self, low: float, high: float, start: float, end: float, *, log: bool = False
    ) -> None:
        self.low = low
        self.high = high
        self.start = start
        self.end = end
        self._log = log

    def __call__(self, value: float) -> float:
        """Return the position of a value."""
        if self._log:
            fraction = (math.log(value) - math.log(self.low)) / (
                math.log(self.high) - math.log(self.low)
            )
        else:
            fraction = (value - self.low) / (self.high - self.low)
        return self.start + fraction * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return a few round values on the axis."""
        if self._log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            round_values = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
            return [value for value in round_values if self.low <= value <= self.high]
        span = self.high - self.low
        step = 10 ** math.floor(math.log10(span / 4))
        step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 6)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def draw_panel(
    title: str, x: Axis, y: Axis, *, x_label: str, y_label: str, x_ticks: Mapping[float, str] = {}
) -> SvgDrawing:
    """Return a drawing with grid and axes.

    Args:
        title: Title for screen readers.
        x: Horizontal axis.
        y: Vertical axis.
        x_label: Label below the horizontal axis.
        y_label: Label above the vertical axis.
        x_ticks: Labels of the horizontal axis by value, instead of its round values.
    """
    drawing = SvgDrawing(360, y.start + 40, title)
    for value in y.ticks():
        drawing.add_line(x1=x.start, y1=y(value), x2=x.end, y2=y(value), style="grid")
        drawing.add_text(x.start - 6, y(value) + 4, f"{value:g}", style="small", anchor="end")
    for value, label in (x_ticks or {value: f"{value:g}" for value in x.ticks()}).items():
        drawing.add_text(x(value), y.start + 15, label, style="small", anchor="middle")
    drawing.add_line(x1=x.start, y1=y.start, x2=x.end, y2=y.start, style="axis")
    middle = (x.start + x.end) / 2
    drawing.add_text(middle, y.start + 33, x_label, style="small", anchor="middle")
    drawing.add_text(x.start - 40, y.end - 12, y_label, style="label")
    return drawing
