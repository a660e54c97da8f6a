"""Grade pairs with another grader and time each pair; `grade.py` runs this script.

With a checkout of this project as its argument, the script uses the grader of that checkout.
Without an argument it uses math-verify, and runs in an environment that has it. It reads a JSON
list of [gold, response] from stdin. It prints the clock seconds and the verdict of each pair, and
the processor seconds of all pairs. Each gold is parsed once, as a careful user of math-verify
would do.
"""

import json
import logging
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

#: A function that returns whether a response (second argument) agrees with a gold answer (first).
GradingFunction = Callable[[str, str], bool]


def load_math_verify() -> GradingFunction:
    """Return a function that grades with math-verify and parses each gold once."""
    from math_verify import parse, verify

    @cache
    def parse_gold(gold: str) -> Any:
        """Parse a gold answer, which math-verify reads only between dollar signs."""
        return parse(gold if "$" in gold else f"${gold}$")

    return lambda gold, response: bool(verify(parse_gold(gold), parse(response)))


def load_checkout(folder: str) -> GradingFunction:
    """Return a function that grades with the grader of the checkout in ``folder``."""
    sys.path.insert(0, folder)
    from fsdpo_data import grade

    return lambda gold, response: grade(gold, response).status == "correct"


def main() -> None:
    """Grade the pairs of stdin and print the timing as JSON."""
    logging.disable(logging.CRITICAL)
    is_correct = load_checkout(sys.argv[1]) if len(sys.argv) > 1 else load_math_verify()
    json.dump(time_grader(is_correct, json.load(sys.stdin)), sys.stdout)


def time_grader(is_correct: GradingFunction, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Grade pairs one by one, after a warm-up pair that loads lazy imports.

    Returns:
        The fields of `Timing` in `grade.py`.
    """
    is_correct("\\sin 1 + x", "$\\boxed{\\cos 1 + x}$")
    seconds = []
    verdicts = []
    raised = 0
    processor_start = time.process_time()
    for number, (gold, response) in enumerate(pairs, 1):
        started = time.perf_counter()
        try:
            verdict = is_correct(gold, response)
        except Exception:  # a grader that raises has no verdict, which counts against it
            verdict = False
            raised += 1
        verdicts.append(verdict)
        seconds.append(time.perf_counter() - started)
        if number % 500 == 0:
            print(f"    {number} of {len(pairs)}", file=sys.stderr)
    return {
        "seconds": seconds,
        "correct": verdicts,
        "processor": time.process_time() - processor_start,
        "raised": raised,
    }


if __name__ == "__main__":
    main()
