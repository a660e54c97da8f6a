"""Plots made of text: they show in every viewer, diff like text, and need no picture."""

from collections.abc import Sequence

_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")  #: Eighths of a block, from none to seven.


def bars(counts: Sequence[tuple[str, int]], width: int = 40) -> str:
    """Draw one horizontal bar per (label, count); the longest is ``width`` characters."""
    longest = max((count for _, count in counts), default=0)
    labels = max((len(label) for label, _ in counts), default=0)
    lines = []
    for label, count in counts:
        eighths = round(8 * width * count / longest) if longest else 0
        bar = "█" * (eighths // 8) + _EIGHTHS[eighths % 8]
        lines.append(f"{label:>{labels}}  {bar:<{width}}  {count:,}".rstrip())
    return "\n".join(lines)


def histogram(counts: Sequence[tuple[int, int]], bins: int = 12) -> list[tuple[str, int]]:
    """Sum (value, count) of whole numbers into at most ``bins`` ranges of one width."""
    if not counts:
        return []
    low, high = min(value for value, _ in counts), max(value for value, _ in counts)
    width = -(-(high - low + 1) // bins)
    ranges = [0] * -(-(high - low + 1) // width)
    for value, count in counts:
        ranges[(value - low) // width] += count
    starts = [low + index * width for index in range(len(ranges))]
    labels = [str(at) if width == 1 else f"{at}–{at + width - 1}" for at in starts]
    return list(zip(labels, ranges, strict=True))


def shares(tenths: Sequence[tuple[int, int]]) -> list[tuple[str, int]]:
    """Label (tenth, count) pairs, those between the first and the last included."""
    counts = dict(tenths)
    places = range(min(counts, default=0), max(counts, default=-1) + 1)
    return [(f"{place / 10:.1f}–{(place + 1) / 10:.1f}", counts.get(place, 0)) for place in places]
