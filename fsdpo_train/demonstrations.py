"""Write solutions of embedded problems for SFT, as ``python -m fsdpo_train.demonstrations``.

A policy that learns from solutions with errors makes two kinds of errors itself. A *slip* can
happen in any step. It is unlikely, so greedy decoding and votes avoid it. A *mistake* happens in
the steps of some relations, such as "twice as many" read as "two more". If it is the more likely
continuation, greedy decoding and votes make it too.
"""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from fsdpo_data.cli.console import run_app
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import open_atomic
from fsdpo_data.problems.embedded import PROMPT
from fsdpo_data.problems.embedded.generator import make_problems
from fsdpo_data.problems.embedded.solutions import write_solution
from fsdpo_data.problems.embedded.story import EMBEDDED_VERSION, words

#: The seeds of the problems start here, so no demonstration shows a problem of a dataset with the
#: same seed.
FIRST_PROBLEM_SEED = 1_000_000


def demonstration(
    problem: Problem,
    rng: random.Random,
    error_rate: float = 0.0,
    relation_error_rates: Mapping[str, float] | None = None,
) -> dict[str, str]:
    """Return a prompt/completion row; see :func:`.solutions.write_solution` for the errors."""
    steps = write_solution(problem, rng, error_rate, relation_error_rates)
    return {"prompt": PROMPT.format(question=problem.question), "completion": "".join(steps)}


def write_demonstrations(
    out: Path,
    rows: int,
    *,
    error_rate: float = 0.0,
    relation_error_rates: Mapping[str, float] | None = None,
    seed: int = 0,
) -> None:
    """Write ``rows`` solutions of different problems as JSON Lines.

    Args:
        out: The file, with the columns ``prompt`` and ``completion``.
        rows: Number of solutions.
        error_rate: Probability of an error in a step.
        relation_error_rates: Probability of an error by relation, in place of ``error_rate``.
        seed: Random seed of problems and errors.

    Raises:
        InputError: for an unknown relation, or a probability outside [0, 1].
    """
    rates = dict(relation_error_rates or {})
    for relation, rate in {"": error_rate, **rates}.items():
        if relation and relation not in words()["say"]:
            raise InputError(f"relation {relation!r}: expected one of {', '.join(words()['say'])}.")
        if not 0 <= rate <= 1:
            raise InputError(f"error rate {rate:g}: expected a probability.")
    rng = random.Random(f"{EMBEDDED_VERSION}/demonstrations/{seed}")
    problems = make_problems("train", rows, FIRST_PROBLEM_SEED + seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    with open_atomic(out) as file:
        for problem in problems:
            row = demonstration(problem, rng, error_rate, rates)
            file.write((json.dumps(row) + "\n").encode())


def parse_rates(texts: list[str]) -> dict[str, float]:
    """Parse probabilities by relation, such as ``grow=0.65``.

    Raises:
        InputError: if a text has another form.
    """
    rates = {}
    for text in texts:
        relation, _, rate = text.partition("=")
        try:
            rates[relation] = float(rate)
        except ValueError:
            raise InputError(
                "expected RELATION=PROBABILITY, such as grow=0.65.", field="mistake", value=text
            ) from None
    return rates


def main(
    out: Annotated[Path, typer.Option(help="New file with the solutions.")],
    rows: Annotated[int, typer.Option(min=1, help="Number of solutions.")] = 3000,
    slip: Annotated[float, typer.Option(help="Probability of an error in a step.")] = 0.0,
    mistake: Annotated[
        list[str] | None,
        typer.Option(help="RELATION=PROBABILITY of an error in its steps; may be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of problems and errors.")] = 0,
) -> None:
    """Write solutions of embedded problems for SFT, some with errors."""
    rates = parse_rates(mistake or [])
    write_demonstrations(out, rows, error_rate=slip, relation_error_rates=rates, seed=seed)


if __name__ == "__main__":
    run_app(lambda: typer.run(main))
