"""The pairs of the positive control, in which outcomes do not tell what is wrong but steps do.

Each problem has one pair. Its rejected solution has exactly one wrong step, a mistake of the SFT
policy, and all other steps are right for the values before them. A *lucky* chosen solution has the
same mistake, and a second wrong step at the end that states the right answer. If all chosen
solutions are lucky, the mistake is on both sides of every pair, so outcomes say nothing about it.
"""

import random
import re

from plan import DRAW_SEED_STEP, KINDS, PAIR_SEED, STAGES, Size

from fsdpo_data.core.entities import Problem
from fsdpo_data.problems.embedded import PROMPT
from fsdpo_data.problems.embedded.generator import make_problems
from fsdpo_data.problems.embedded.solutions import final_answer, write_solution

CONTROL_PAIRS_FILE = "pairs.jsonl"
#: Generated problems per pair; about half of the problems have a step for a mistake.
CANDIDATES_PER_PAIR = 4


def write_control_pairs(size: Size, draw: int) -> list[dict[str, object]]:
    """Return one pair per problem, with 0 as the reward of each wrong step and 1 for other steps.

    Args:
        size: Number of problems, and the fraction of lucky chosen solutions.
        draw: Number of the draw of the data.
    """
    rng = random.Random(draw)
    seed = PAIR_SEED + DRAW_SEED_STEP * draw
    problems = make_problems("train", CANDIDATES_PER_PAIR * size.problems, seed, KINDS["solve"])
    pairs: list[dict[str, object]] = []
    for problem in problems:
        mistakes = mistake_steps(problem)
        if not mistakes:
            continue
        is_lucky = rng.random() < (size.lucky_chosen or 0)
        pair = _write_pair(problem, rng, rng.choice(mistakes), is_lucky=is_lucky)
        if pair is not None:
            pairs.append(pair)
        if len(pairs) == size.problems:
            break
    return pairs


def mistake_steps(problem: Problem) -> list[int]:
    """Return the indices of the steps in which the SFT policy makes mistakes, but the last step."""
    relations = STAGES["sft"]["relation_error_rates"]
    nodes = problem.metadata["nodes"]
    return [index for index, node in enumerate(nodes[:-1]) if node[0] in relations]


def _write_pair(
    problem: Problem, rng: random.Random, mistake: int, *, is_lucky: bool
) -> dict[str, object] | None:
    """Return a pair, or None if the rejected solution is correct in spite of its mistake."""
    rejected = write_solution(problem, rng, wrong_steps=[mistake])
    if final_answer("".join(rejected)) == problem.answer:
        return None
    chosen = write_solution(problem, rng, wrong_steps=[mistake] if is_lucky else [])
    wrong_steps = {"chosen": [mistake, len(chosen) - 1] if is_lucky else [], "rejected": [mistake]}
    if is_lucky:
        chosen[-1] = state_answer(chosen[-1], problem.answer)
    pair: dict[str, object] = {"prompt": PROMPT.format(question=problem.question)}
    for side, steps in (("chosen", chosen), ("rejected", rejected)):
        rewards = [float(index not in wrong_steps[side]) for index in range(len(steps))]
        pair |= {side: "".join(steps), f"{side}_steps": steps, f"{side}_rewards": rewards}
    return pair


def state_answer(step: str, answer: str) -> str:
    """Return the last step of a solution with ``answer`` as its result."""
    step = re.sub(r"= -?\d+", f"= {answer}", step)
    return re.sub(r"(The answer is:) -?\d+", rf"\1 {answer}", step)
