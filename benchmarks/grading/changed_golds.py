"""Change every gold in one place, and count the changed texts that the grader calls correct.

    python benchmarks/grading/changed_golds.py ../shared
    python benchmarks/grading/changed_golds.py ../shared --random-texts 100000

The golds are those of all benchmarks and of the labelled sets. A change replaces one digit, sign,
name or relation, swaps two numbers or two names, or drops a part (``tests/support/gold_changes``).
Changed texts are graded with the tolerance 0. None may be correct, unless an evaluator that shares
no code with the grader finds both values equal, or ``tests/support/changed_golds`` has a reason.

``--random-texts`` also grades random and damaged texts, and counts those for which a rule raised
an exception.
"""

import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))

from changed_golds import changed_sets, reason_to_accept
from damaged_texts import damaged_pairs
from gold_changes import Change, change_gold

from fsdpo_data.answers.comparison.equivalence import compare_answers
from fsdpo_data.answers.response import grade

MAX_SHOWN_CHARS = 160  #: Characters of a text that are printed.


def main(
    shared: Annotated[Path, Argument(help="The folder with `data/`.")],
    random_texts: Annotated[int, Option(help="Random and damaged texts to grade.")] = 0,
    show: Annotated[int, Option(help="Changes without a reason to print.")] = 200,
) -> None:
    """Print the counts; fail if a change without a reason is correct, or a text has no verdict."""
    golds = changed_sets(shared)
    n_open = count_changes(golds, show)
    n_failed = count_failures(golds, random_texts) if random_texts else 0
    raise SystemExit(int(bool(n_open or n_failed)))


def count_changes(golds: list[str], show: int) -> int:
    """Grade all changes, and return the number of correct ones without a reason."""
    kinds: Counter[str] = Counter()
    statuses: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    unexplained: list[Change] = []
    start = time.process_time()
    for gold in golds:
        for change in change_gold(gold):
            status = compare_answers(gold, change.text, 0.0).status
            kinds[change.kind] += 1
            statuses[status] += 1
            if status == "correct":
                reason = reason_to_accept(change)
                reasons[reason or "no reason"] += 1
                if not reason:
                    unexplained.append(change)
    print(f"{kinds.total():,} changes of {len(golds):,} golds, {time.process_time() - start:.0f} s")
    for counts in (kinds, statuses, reasons):
        print("  " + ", ".join(f"{name}: {count:,}" for name, count in counts.most_common()))
    for change in unexplained[:show]:
        texts = f"{change.gold[:MAX_SHOWN_CHARS]!r} → {change.text[:MAX_SHOWN_CHARS]!r}"
        print(f"  {change.kind}: {texts}")
    return len(unexplained)


def count_failures(golds: list[str], n_texts: int) -> int:
    """Grade random and damaged texts; return the number for which a rule raised an exception."""
    statuses: Counter[str] = Counter()
    failures = []
    start = time.process_time()
    for gold, response in damaged_pairs(golds, n_texts, random.Random(0)):
        verdict = grade(gold, response)
        statuses[verdict.status] += 1
        if verdict.rule.endswith("error"):
            failures.append((gold, response, verdict.unread))
    print(f"{n_texts:,} random and damaged texts, {time.process_time() - start:.0f} s")
    print("  " + ", ".join(f"{name}: {count:,}" for name, count in statuses.most_common()))
    print(f"  a rule raised an exception for {len(failures):,}")
    for gold, response, unread in failures[:20]:
        print(f"  {gold[:MAX_SHOWN_CHARS]!r}, {response[:MAX_SHOWN_CHARS]!r}: {unread}")
    return len(failures)


if __name__ == "__main__":
    typer.run(main)
