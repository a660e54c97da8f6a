"""Draw bar plots as text, which every viewer shows and every diff compares."""

from collections.abc import Sequence

_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")  #: Eighths of a block, from none to seven.


def draw_bars(counts: Sequence[tuple[str, int]], width: int = 40) -> str:
    """Draw one horizontal bar per (label, count); the longest bar has ``width`` characters."""
    max_count = max((count for _, count in counts), default=0)
    label_width = max((len(label) for label, _ in counts), default=0)
    lines = []
    for label, count in counts:
        eighths = round(8 * width * count / max_count) if max_count else 0
        bar = "█" * (eighths // 8) + _EIGHTHS[eighths % 8]
        lines.append(f"{label:>{label_width}}  {bar:<{width}}  {count:,}".rstrip())
    return "\n".join(lines)


def histogram(counts: Sequence[tuple[int, int]], bins: int = 12) -> list[tuple[str, int]]:
    """Sum the counts of (integer, count) pairs in at most ``bins`` ranges of equal width."""
    if not counts:
        return []
    low = min(value for value, _ in counts)
    high = max(value for value, _ in counts)
    n_values = high - low + 1
    width = _divide_up(n_values, bins)
    bin_counts = [0] * _divide_up(n_values, width)
    for value, count in counts:
        bin_counts[(value - low) // width] += count
    starts = [low + index * width for index in range(len(bin_counts))]
    if width == 1:
        labels = [str(start) for start in starts]
    else:
        labels = [f"{start}–{start + width - 1}" for start in starts]
    return list(zip(labels, bin_counts, strict=True))


def _divide_up(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def label_tenths(tenths: Sequence[tuple[int, int]]) -> list[tuple[str, int]]:
    """Label (tenth, count) pairs, including empty tenths between the first and the last."""
    counts = dict(tenths)
    numbers = range(min(counts, default=0), max(counts, default=-1) + 1)
    return [
        (f"{number / 10:.1f}–{(number + 1) / 10:.1f}", counts.get(number, 0)) for number in numbers
    ]
