"""Where our verdicts are not those of others: publishers, math-verify, sympy.

    python benchmarks/perf/grade_disputes.py DIR --peer .venv-math-verify/bin/python --sympy

Reads every `*.jsonl` below DIR in a form that `fsdpo-bench score` knows, and grades each different
pair. Disputes are classed by who is against whom, by the rule that found our answer and by the
kind of the gold, and printed with a few examples of each class, the largest class first.

With `--sympy`, answers that are expressions, of these and of the typed pairs of
`tests/support/typed_pairs.py`, are also given to sympy, whatever our cheap tiers say of them.
"""

import signal
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from fsdpo_bench.recorded.outputs import read_outputs
from grade import TESTS, Pair, hard_set, timed_peer
from typer import Argument, Option

from fsdpo_data.answers.comparing import symbolic
from fsdpo_data.answers.comparing.equal import equivalent
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.answers.reading.answer import read_answer
from fsdpo_data.answers.tree import Node, is_node
from fsdpo_data.core.errors import InputError

sys.path.insert(0, str(TESTS / "support"))
from typed_pairs import typed_pairs

#: Seconds that sympy may take for one pair.
SECONDS = 5
#: A gold, a bare answer, and whether they are the same, where that is known.
Known = tuple[str, str, bool | None]


def main(
    outputs: Annotated[Path, Argument(help="Directory of published model outputs.")],
    peer: Annotated[Path | None, Option(help="Python of an environment with math-verify.")] = None,
    sympy: Annotated[bool, Option("--sympy", help="Compare with sympy, too.")] = False,
    typed: Annotated[int, Option(help="Typed golds of each kind for sympy.")] = 20,
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
    if sympy:
        answers = {
            (gold, verdict.answer): published[gold, response]
            for (gold, response), verdict in zip(pairs, verdicts, strict=True)
            if verdict.answer
        }
        against_sympy("recorded answers", [(*pair, told) for pair, told in answers.items()])
        made = [(each.gold, each.text, each.same) for each in typed_pairs(typed, seed=5)]
        against_sympy("typed pairs", made)
        cases = [case for case in hard_set(sys.maxsize) if "answer" in case]
        labelled = [(case["gold"], case["answer"], case["correct"]) for case in cases]
        against_sympy("labelled pairs", labelled)


def recorded(folder: Path) -> dict[Pair, bool | None]:
    """Return different (gold, response) pairs with the verdict of their publisher, if any."""
    found: dict[Pair, bool | None] = {}
    for file in sorted(folder.rglob("*.jsonl")):
        try:
            found |= {(each.gold, each.response): each.correct for each in read_outputs(file)}
        except InputError as error:
            print(f"{file}: {error}")
    return found


def against_sympy(name: str, pairs: Iterable[Known]) -> None:
    """Print how often we agree with sympy, and who is right where the truth is known."""
    classes: dict[str, list[str]] = defaultdict(list)
    for gold, answer, truth in pairs:
        sides = expression(gold), expression(answer)
        theirs = None if None in sides else by_sympy(*sides)
        ours = equivalent(gold, answer)
        same = ours.status == "correct"
        if theirs is None:
            outcome = "not an expression" if None in sides else "undecided by sympy"
        elif theirs == same:
            outcome = f"agree, {'the same' if same else 'different'}"
        else:
            right = "open" if truth is None else "ours right" if truth == same else "ours WRONG"
            outcome = f"ours {'the same' if same else 'different'}, sympy not: {right}"
        classes[outcome].append(f"{gold[:70]!r} ~ {answer[:70]!r} by {ours.rule}")
    print(f"\nsympy, {name}: {sum(map(len, classes.values())):,} pairs")
    for outcome, found in sorted(classes.items(), key=lambda each: -len(each[1])):
        print(f"  {len(found):6,}  {outcome}")
        told = found if "sympy not" in outcome or "WRONG" in outcome else []
        print(*(f"            {each}\n" for each in told[:8]), sep="", end="")


def expression(text: str) -> Node | None:
    """Return an answer as an expression; None if it is a statement, a list, a quantity, words."""
    value = read_answer(text).value
    return value if is_node(value) else None


def by_sympy(left: Any, right: Any) -> bool | None:
    """Whether sympy finds two expressions equal; None if it does not know or takes too long."""
    from fsdpo_data.answers.comparing import worker

    def late(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        if worker.equal(symbolic.encoded(left), symbolic.encoded(right)):
            return True
        difference = worker.built(symbolic.encoded(left)) - worker.built(symbolic.encoded(right))
        return difference.equals(0)
    except Exception:  # whatever sympy trips over, it does not know
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    typer.run(main)
