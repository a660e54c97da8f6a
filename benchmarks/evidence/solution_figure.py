"""Draw one solution of the example dataset in steps, coloured by their rewards.

python benchmarks/evidence/solution_figure.py    # writes docs/solution.svg
"""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

import fsdpo_data as fd
from fsdpo_data.core.lazy import pl

ROOT = Path(__file__).parents[2]
DATASET = ROOT / "examples" / "gsm8k-qwen-0.5b"
FIGURE = ROOT / "docs" / "solution.svg"
#: A wrong solution: its second step says that 5/100 is 0.5.
SOLUTION_ID = "70f4dca5b5c5619babbe"

COLUMNS = 92  #: Characters of a line.
LINE = 18  #: Height of a line, in pixels.
TEXT_START = 64  #: Left edge of the text, in pixels.
WIDTH = 800
#: Colours of the rewards 0, 0.5 and 1: red, yellow and green, light enough for black text.
COLOURS = ((244, 166, 160), (253, 233, 170), (166, 219, 166))


class Row(NamedTuple):
    """A paragraph of the figure."""

    lines: Sequence[str]  #: The lines of its text.
    label: str = ""  #: Text left of the first line.
    reward: float | None = None  #: Reward that colours the background; None for white.


def reward_colour(reward: float) -> str:
    """Return the colour of a reward in [0, 1], between the colours of 0, 0.5 and 1."""
    position = min(max(reward, 0.0), 1.0) * 2
    lower = min(int(position), 1)
    start, end = COLOURS[lower : lower + 2]
    share = position - lower
    red, green, blue = (round(a + share * (b - a)) for a, b in zip(start, end, strict=True))
    return f"#{red:02x}{green:02x}{blue:02x}"


def wrap(text: str) -> list[str]:
    """Return the lines of a text that fit into the figure."""
    return [
        line
        for paragraph in text.strip().splitlines()
        for line in textwrap.wrap(paragraph, COLUMNS, subsequent_indent=" " * 2) or [""]
    ]


def solution_rows(solution_id: str) -> Iterator[Row]:
    """Yield the question of a solution, its steps with their rewards, and its outcome."""
    dataset = fd.open_dataset(DATASET)
    solutions = dataset.solutions().collect()
    solution = solutions.row(by_predicate=pl.col("solution_id") == solution_id, named=True)
    problems = dataset.problems().collect()
    problem = problems.row(by_predicate=pl.col("problem_id") == solution["problem_id"], named=True)
    yield Row(wrap(problem["question"]), "problem")
    for step, reward in zip(solution["completions"], solution["step_rewards"], strict=True):
        yield Row(wrap(step), f"{reward:.2f}", reward)
    verdict = f"{solution['outcome']}: answer {solution['answer']}, gold {problem['answer']}"
    yield Row([verdict], "grader")


def draw(rows: Sequence[Row]) -> str:
    """Return the figure as SVG."""
    parts = []
    top = 4
    for row in rows:
        height = len(row.lines) * LINE + 6
        if row.reward is not None:
            parts.append(
                f'<rect x="4" y="{top}" width="{WIDTH - 8}" height="{height - 2}" rx="3" '
                f'fill="{reward_colour(row.reward)}"/>'
            )
        baseline = top + 15
        parts.append(f'<text x="12" y="{baseline}" font-weight="bold">{escape(row.label)}</text>')
        for number, line in enumerate(row.lines):
            parts.append(
                f'<text x="{TEXT_START + 12}" y="{baseline + number * LINE}" xml:space="preserve">'
                f"{escape(line)}</text>"
            )
        top += height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top + 2}" '
        'font-family="monospace" font-size="12.5" role="img">\n'
        "<title>A solution in steps, coloured by their rewards</title>\n"
        f'<rect width="{WIDTH}" height="{top + 2}" fill="#ffffff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    FIGURE.write_text(draw(list(solution_rows(SOLUTION_ID))), encoding="utf-8")
