"""Grades pairs with math-verify and times each; run by `grade.py` in math-verify's environment.

Reads one JSON list of [gold, response] from stdin and prints seconds by the clock, verdicts, and
the processor seconds of them all.
Golds are parsed once each, as a careful user would do.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from functools import cache
from typing import Any

from math_verify import parse, verify


@cache
def parsed_gold(gold: str) -> Any:
    return parse(gold if "$" in gold else f"${gold}$")


def judged(gold: str, response: str) -> bool:
    try:
        return bool(verify(parsed_gold(gold), parse(response)))
    except Exception:
        return False


def main() -> None:
    logging.disable(logging.CRITICAL)
    pairs = json.load(sys.stdin)
    judged("\\sin 1 + x", "$\\boxed{\\cos 1 + x}$")  # loads what is loaded on first use
    seconds, correct = [], []
    begun = time.process_time()
    for number, (gold, response) in enumerate(pairs, 1):
        started = time.perf_counter()
        correct.append(judged(gold, response))
        seconds.append(time.perf_counter() - started)
        if number % 500 == 0:
            print(f"    math-verify: {number} of {len(pairs)}", file=sys.stderr)
    processor = time.process_time() - begun
    json.dump({"seconds": seconds, "correct": correct, "processor": processor}, sys.stdout)


if __name__ == "__main__":
    main()
