"""Split five sets of word problems by clusters of near-duplicates, and write SFT rows.

    python benchmarks/recipes/word_problems.py --out DIR [--benchmarks DIR]

MAWPS contains AddSub and SingleEq, and SVAMP varies problems of ASDiv. A random split would
therefore put a problem into the training set, and its variation into the test set. The script joins
two problems if their questions overlap, without regard to numbers, and splits the resulting
clusters. It writes

- ``svamp.jsonl``, ``asdiv.jsonl`` and ``mawps.jsonl``: test problems, one from each test cluster,
  so all test problems are independent;
- ``train.jsonl``: the problems of the other clusters, without duplicates and without the problems
  of the SFT rows;
- ``rows.jsonl``: SFT rows. The steps of a solution are the calculations of a problem's formula in
  ASDiv or SVAMP. Further rows have random calculations.

It prints the overlap of the sets before the split, and of the training and test problems after it.
"""

import ast
import json
import operator
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer
from common_ngrams import find_common_ngrams
from fsdpo_bench.tasks.load import load_task
from fsdpo_bench.tasks.table import builtin_tasks

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.files import write_text
from fsdpo_data.models.prompts import get_template

#: Files of the sets, relative to the folder of the benchmarks. SingleEq has the rows of MAWPS.
SETS = {
    "svamp": "svamp/test.jsonl",
    "asdiv": "asdiv/test.jsonl",
    "mawps": "mawps/qwen_test.jsonl",
    "addsub": "addsub/test.jsonl",
    "singleeq": "mawps/qwen_singleeq.jsonl",
}
#: The sets that are measured. SVAMP comes first, because its variations form the fewest clusters.
TEST_SETS = ("svamp", "asdiv", "mawps")
#: Words of an n-gram, and the minimum overlap. Both are low, because
#: variations of a problem exchange its numbers, its names and its last sentence.
NGRAM_SIZE = 4
MIN_OVERLAP = 0.5
TEMPLATE = "problem"  #: Prompt template of all stages; its prompts are short.
MAX_CALCULATIONS = 3  #: Calculations of an SFT solution.
PRACTICE_LINES = 6  #: Calculations of a row of random calculations.
#: Symbols and functions of the operators in formulas.
OPERATORS: dict[type[ast.operator], tuple[str, Callable[[Fraction, Fraction], Fraction]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
}
_NUMBER = re.compile(r"\d[\d,.]*\d|\d")
_FORMULA = re.compile(r"[-+*/().\d\s]+(=[.\d\s]+)?")


@dataclass(frozen=True, slots=True)
class SetProblem:
    """A problem of one of the sets."""

    set_name: str  #: Name of the set.
    problem: Problem  #: The problem.

    @property
    def masked_question(self) -> str:
        """The question with 0 in place of each number."""
        return mask_numbers(self.problem.question)


@dataclass(frozen=True, slots=True)
class ProblemSplit:
    """The test problems of each set, and the training problems."""

    test: dict[str, list[Problem]]  #: Test problems by set.
    train: list[Problem]  #: Training problems.


def main(
    out: Annotated[Path, typer.Option(help="Folder for the files.")],
    benchmarks: Annotated[Path, typer.Option(help="Folder of the five sets.")] = Path("bench"),
    test: Annotated[int, typer.Option(help="Test problems of each set.")] = 200,
    rows: Annotated[int, typer.Option(help="SFT rows with solutions.")] = 1_200,
    practice: Annotated[int, typer.Option(help="SFT rows with random calculations.")] = 400,
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 0,
) -> None:
    """Write the test problems, the training problems and the SFT rows, and print the overlaps."""
    set_problems = [
        SetProblem(name, problem)
        for name, file in SETS.items()
        for problem in load_set(name, benchmarks / file)
    ]
    clusters = cluster_problems([item.masked_question for item in set_problems])
    print_overlaps(set_problems, clusters)
    split = split_clusters(set_problems, clusters, test, seed)
    for name, problems in split.test.items():
        write_rows(out / f"{name}.jsonl", [problem.to_row() for problem in problems])
    test_problems = [problem for problems in split.test.values() for problem in problems]
    questions = [problem.question for problem in test_problems]
    n_overlapping = len(overlapping_indices([p.question for p in split.train], questions))
    print(f"training problems that overlap with a test problem: {n_overlapping}")
    rng = random.Random(seed)
    sft_rows, train = draw_sft_rows(split.train, rows, rng)
    write_rows(out / "train.jsonl", [problem.to_row() for problem in train])
    write_rows(out / "rows.jsonl", sft_rows + practice_rows(practice, rng))


def load_set(name: str, file: Path) -> list[Problem]:
    """Return the problems of a set; its rows come from a benchmark of ``fsdpo-bench``."""
    if name in builtin_tasks():
        return load_task(builtin_tasks()[name], file).problems
    part = replace(builtin_tasks()["mawps"], count=None, digest="", groups={})
    return load_task(part, file).problems


def mask_numbers(text: str) -> str:
    """Return a text with 0 in place of each number."""
    return _NUMBER.sub("0", text)


def cluster_problems(questions: Sequence[str]) -> list[list[int]]:
    """Return the indices of the questions by cluster, in the order of their first questions.

    Two questions that overlap are in one cluster, and so are all questions that a chain of overlaps
    connects.
    """
    pairs = find_common_ngrams(questions, questions, ngram=NGRAM_SIZE, min_overlap=MIN_OVERLAP)
    parents = list(range(len(questions)))
    for index_a, index_b in pairs:
        root_a, root_b = sorted((find_root(parents, index_a), find_root(parents, index_b)))
        parents[root_b] = root_a
    clusters: dict[int, list[int]] = defaultdict(list)
    for index in range(len(questions)):
        clusters[find_root(parents, index)].append(index)
    return list(clusters.values())


def find_root(parents: list[int], index: int) -> int:
    """Return the root of a tree of parents, and shorten the path to the root."""
    while parents[index] != index:
        parents[index] = parents[parents[index]]
        index = parents[index]
    return index


def print_overlaps(set_problems: Sequence[SetProblem], clusters: Sequence[Sequence[int]]) -> None:
    """Print the problems and clusters of each set, and the problems with a relative in each set."""
    print(f"clusters: {len(clusters)}, the largest has {max(map(len, clusters))} problems")
    print(f"{'set':10}{'problems':>10}{'clusters':>10}" + "".join(f"{name:>10}" for name in SETS))
    for name in SETS:
        n_related = dict.fromkeys(SETS, 0)
        own_clusters = []
        for cluster in clusters:
            members = [index for index in cluster if set_problems[index].set_name == name]
            if not members:
                continue
            own_clusters.append(members)
            other_sets = {set_problems[index].set_name for index in cluster} - {name}
            for other in other_sets:
                n_related[other] += len(members)
            n_related[name] += len(members) if len(members) > 1 else 0
        print(
            f"{name:10}{sum(map(len, own_clusters)):>10}{len(own_clusters):>10}"
            + "".join(f"{count:>10}" for count in n_related.values())
        )


def split_clusters(
    set_problems: Sequence[SetProblem], clusters: Sequence[Sequence[int]], test: int, seed: int
) -> ProblemSplit:
    """Draw ``test`` clusters for each measured set, and one problem of the set from each.

    The other problems of a test cluster are not used. The training problems are all problems of the
    other clusters, except copies of a question in a second set.

    Raises:
        ValueError: if a set has too few clusters.
    """
    rng = random.Random(seed)
    unused_clusters = list(clusters)
    test_problems: dict[str, list[Problem]] = {}
    for name in TEST_SETS:
        candidates = [
            cluster
            for cluster in unused_clusters
            if any(set_problems[index].set_name == name for index in cluster)
        ]
        if len(candidates) < test:
            raise ValueError(f"{name} has {len(candidates)} clusters: expected {test} or more")
        drawn_clusters = rng.sample(candidates, test)
        test_problems[name] = [
            set_problems[
                rng.choice([i for i in cluster if set_problems[i].set_name == name])
            ].problem
            for cluster in drawn_clusters
        ]
        unused_clusters = [cluster for cluster in unused_clusters if cluster not in drawn_clusters]
    by_text: dict[str, Problem] = {}
    for cluster in unused_clusters:
        for index in cluster:
            problem = set_problems[index].problem
            by_text.setdefault(re.sub(r"\W", "", problem.question.lower()), problem)
    return ProblemSplit(test_problems, list(by_text.values()))


def overlapping_indices(questions: Sequence[str], other_questions: Iterable[str]) -> set[int]:
    """Return the indices of the questions that overlap with one of the others."""
    masked_questions = [mask_numbers(question) for question in questions]
    masked_others = [mask_numbers(question) for question in other_questions]
    pairs = find_common_ngrams(
        masked_questions, masked_others, ngram=NGRAM_SIZE, min_overlap=MIN_OVERLAP
    )
    return {index for index, _ in pairs}


def draw_sft_rows(
    problems: Sequence[Problem], count: int, rng: random.Random
) -> tuple[list[dict[str, str]], list[Problem]]:
    """Return SFT rows of ``count`` problems with formulas, and the other problems."""
    solutions = [format_solution(problem) for problem in problems]
    drawn_indices = rng.sample([index for index, text in enumerate(solutions) if text], count)
    rows = [format_row(problems[index].question, solutions[index]) for index in drawn_indices]
    unused_indices = set(range(len(problems))) - set(drawn_indices)
    return rows, [problems[index] for index in sorted(unused_indices)]


def format_row(question: str, completion: str) -> dict[str, str]:
    """Return an SFT row."""
    return {"prompt": get_template(TEMPLATE).render(question), "completion": completion}


def format_solution(problem: Problem) -> str:
    r"""Return the calculations of a problem's formula, one per line, and the answer in a box.

    The formula ``(74-(35+18))/3=7`` becomes
    ``35 + 18 = 53\n74 - 53 = 21\n21 / 3 = 7\nThe answer is \boxed{7}.`` The result is empty if the
    problem has no such formula, or if the formula has another value than the answer. It is also
    empty for a negative value, for a value with over two decimals, and for more than
    ``MAX_CALCULATIONS`` calculations.
    """
    formula = str(problem.metadata.get("formula") or problem.metadata.get("Equation") or "")
    answer = _NUMBER.match(problem.answer)
    if not answer or not _FORMULA.fullmatch(formula):
        return ""
    lines: list[str] = []
    try:
        expression = ast.parse(formula.partition("=")[0].strip(), mode="eval").body
        value = calculate(expression, lines)
    except (SyntaxError, ValueError, ZeroDivisionError):
        return ""
    if not 1 <= len(lines) <= MAX_CALCULATIONS or value != Fraction(answer[0].replace(",", "")):
        return ""
    return "\n".join([*lines, f"The answer is \\boxed{{{format_number(value)}}}."])


def calculate(expression: ast.expr, lines: list[str]) -> Fraction:
    """Return the value of an expression, and append its calculations to ``lines``.

    Raises:
        ValueError: if the expression has other parts than numbers and the four operators.
    """
    match expression:
        case ast.Constant(value=int() | float() as number):
            return Fraction(str(number))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            symbol, function = OPERATORS[type(op)]
            values = calculate(left, lines), calculate(right, lines)
            value = function(*values)
            operands = f" {symbol} ".join(map(format_number, values))
            lines.append(f"{operands} = {format_number(value)}")
            return value
    raise ValueError("not a calculation")


def format_number(value: Fraction) -> str:
    """Return a number with at most two decimals.

    Raises:
        ValueError: if the number is negative or has more decimals.
    """
    if value < 0 or (100 * value).denominator != 1:
        raise ValueError(f"{value} is negative or has more than two decimals")
    return f"{float(value):.2f}".rstrip("0").rstrip(".")


def practice_rows(count: int, rng: random.Random) -> list[dict[str, str]]:
    """Return SFT rows of random calculations, because the pretrained model calculates badly."""
    return [
        format_row("Calculate.", "\n".join(random_calculation(rng) for _ in range(PRACTICE_LINES)))
        for _ in range(count)
    ]


def random_calculation(rng: random.Random) -> str:
    """Return a random calculation with a natural number as its value."""
    symbol = rng.choice("+-*/")
    if symbol in "+-":
        a, b = (rng.randrange(1, 10 ** rng.choice((1, 2, 2, 3))) for _ in range(2))
        if symbol == "+":
            return f"{a} + {b} = {a + b}"
        return f"{max(a, b)} - {min(a, b)} = {abs(a - b)}"
    a, b = rng.randrange(2, 10 ** rng.choice((1, 2))), rng.randrange(2, 13)
    return f"{a} * {b} = {a * b}" if symbol == "*" else f"{a * b} / {b} = {a}"


def write_rows(file: Path, rows: Sequence[dict[str, str]]) -> None:
    """Write rows as JSON lines, and print their number."""
    write_text(file, "".join(json.dumps(row) + "\n" for row in rows))
    print(f"{file.stem}: {len(rows)}")


if __name__ == "__main__":
    typer.run(main)
