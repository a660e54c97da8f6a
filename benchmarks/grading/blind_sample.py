"""Draw disagreements of the graders for a reader who does not know the verdicts.

    python benchmarks/grading/blind_sample.py --pools DIR --math500 FILE --verdicts runs/harnesses \
        --out blind.jsonl

`--verdicts` is the output of `harnesses.py`. For each pool and each ordered pair of graders, the
first accepts a response and the second does not. The sample has up to `--per-pair` such responses,
and half as many for pairs without our grader. Small groups are drawn first. A gold and an answer
occur once, and a problem at most `--per-problem` times. The rows are in random order. They have the
question, the gold and the end of the response, but no verdict and no grader.
"""

import json
import random
from collections import Counter, defaultdict
from itertools import permutations
from pathlib import Path
from typing import Annotated

import typer
from harnesses import OWN_GRADER, MetricVerdicts, PoolRow, read_metrics, read_pools
from typer import Option

from fsdpo_data import grade

#: Metrics that need a sentence of their prompt, and reject every response without it.
SENTENCE_METRICS = ("lm-eval gsm8k, strict-match", "lm-eval minerva_math, exact_match")
MAX_TAIL_CHARS = 450  #: Characters of a response that the reader sees, from its end.

#: A pool, the grader that accepts, and the grader that rejects.
Stratum = tuple[str, str, str]


def main(
    pools: Annotated[Path, Option(help="Directory of the pools.")],
    math500: Annotated[Path, Option(help="MATH-500 as JSON lines with solutions.")],
    verdicts: Annotated[Path, Option(help="Directory of the verdicts.")],
    out: Annotated[Path, Option(help="File of the sample.")],
    per_pair: Annotated[int, Option(help="Responses per pool and pair of graders.")] = 60,
    per_problem: Annotated[int, Option(help="Responses per problem.")] = 6,
    seed: Annotated[int, Option(help="Seed of the sample.")] = 20261125,
) -> None:
    """Write the sample."""
    rows = read_pools(pools, math500)
    metrics = [
        metric for metric in read_metrics(verdicts, rows) if metric.name not in SENTENCE_METRICS
    ]
    generator = random.Random(seed)
    generator.shuffle(rows)
    sample = draw_sample(group_disagreements(rows, metrics), per_pair, per_problem)
    generator.shuffle(sample)
    with out.open("w", encoding="utf-8") as stream:
        for row in sample:
            line = {
                "response_id": row.key,
                "pool": row.pool,
                "question": row.question,
                "gold": row.gold,
                "tail": row.response[-MAX_TAIL_CHARS:],
            }
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")
    print(f"{len(sample)} disagreements")


def group_disagreements(
    rows: list[PoolRow], metrics: list[MetricVerdicts]
) -> dict[Stratum, list[PoolRow]]:
    """Return the responses that one grader accepts and another rejects, by stratum."""
    strata: dict[Stratum, list[PoolRow]] = defaultdict(list)
    for row in rows:
        accepts = {metric.name: metric.accepts(row) for metric in metrics if metric.has(row)}
        for first, second in permutations(accepts, 2):
            if accepts[first] and not accepts[second]:
                strata[row.pool, first, second].append(row)
    return strata


def draw_sample(
    strata: dict[Stratum, list[PoolRow]], per_pair: int, per_problem: int
) -> list[PoolRow]:
    """Draw responses with different golds or answers from each stratum."""
    sample: dict[str, PoolRow] = {}
    drawn_texts: set[tuple[str, str, str]] = set()
    problem_counts: Counter[str] = Counter()
    for stratum in sorted(strata, key=lambda stratum: len(strata[stratum])):
        missing = per_pair if OWN_GRADER in stratum else per_pair // 2
        missing -= sum(row.key in sample for row in strata[stratum])
        for row in strata[stratum]:
            if missing <= 0:
                break
            text = (row.pool, row.gold, answer_text(row))
            if text in drawn_texts or problem_counts[row.problem] >= per_problem:
                continue
            drawn_texts.add(text)
            problem_counts[row.problem] += 1
            sample[row.key] = row
            missing -= 1
    return list(sample.values())


def answer_text(row: PoolRow) -> str:
    """Return the answer that our grader extracts, or the end of the response."""
    return (grade(row.gold, row.response).answer or row.response[-40:]).strip()


if __name__ == "__main__":
    typer.run(main)
