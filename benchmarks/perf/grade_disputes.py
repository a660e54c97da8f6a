"""Where our verdicts on recorded responses are not those of their publishers or of math-verify.

    python benchmarks/perf/grade_disputes.py DIR --peer .venv-math-verify/bin/python

Reads every `*.jsonl` below DIR in a form that `fsdpo-bench score` knows, and grades each different
pair. Disputes are classed by who is against whom, by the rule that found our answer and by the
kind of the gold, and printed with a few examples of each class, the largest class first.
"""

from collections import defaultdict
from pathlib import Path
from typing import Annotated

import typer
from fsdpo_bench.recorded.outputs import read_outputs
from grade import Pair, timed_peer
from typer import Argument, Option

from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.core.errors import InputError


def main(
    outputs: Annotated[Path, Argument(help="Directory of published model outputs.")],
    peer: Annotated[Path | None, Option(help="Python of an environment with math-verify.")] = None,
    examples: Annotated[int, Option(help="Examples of each class.")] = 3,
) -> None:
    """Print disputes about recorded responses, by class."""
    published = recorded(outputs)
    pairs = list(published)
    verdicts = MathGrader().grade(pairs)
    others = {"publisher": [published[pair] for pair in pairs]}
    if peer:
        command = [str(peer), str(Path(__file__).with_name("grade_peer.py"))]
        others["math-verify"] = list(timed_peer(command, pairs).correct)
    for name, judged in others.items():
        classes: dict[tuple[str, str], list[str]] = defaultdict(list)
        for (gold, response), verdict, other in zip(pairs, verdicts, judged, strict=True):
            ours = verdict.status == "correct"
            if other is not None and other != ours:
                side = f"ours {verdict.status}, theirs {'correct' if other else 'incorrect'}"
                said = f"gold {gold[:60]!r}, answer {(verdict.answer or '')[:60]!r}: "
                classes[side, verdict.rule].append(said + repr(response[-120:]))
        total = sum(map(len, classes.values()))
        known = sum(other is not None for other in judged)
        print(f"\n{name}: {total} disputes about {known:,} responses")
        for (side, rule), found in sorted(classes.items(), key=lambda each: -len(each[1])):
            print(f"  {len(found):4}  {side}, by {rule}")
            print(*(f"          {each}" for each in found[:examples]), sep="\n")


def recorded(folder: Path) -> dict[Pair, bool | None]:
    """Return different (gold, response) pairs with the verdict of their publisher, if any."""
    found: dict[Pair, bool | None] = {}
    for file in sorted(folder.rglob("*.jsonl")):
        try:
            found |= {(each.gold, each.response): each.correct for each in read_outputs(file)}
        except InputError as error:
            print(f"{file}: {error}")
    return found


if __name__ == "__main__":
    typer.run(main)
