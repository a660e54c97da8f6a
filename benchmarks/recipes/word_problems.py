"""Split five sets of word problems by clusters of near-duplicates, and write SFT rows from GSM8K.

    python benchmarks/recipes/word_problems.py --out DIR [--benchmarks DIR] [--gsm8k FILE]

MAWPS contains AddSub and SingleEq, and SVAMP varies problems of ASDiv. A random split would
therefore put a problem into the training set, and its variation into the test set. The script joins
two problems if their questions overlap, without regard to numbers, and splits the resulting
clusters. It writes

- ``svamp.jsonl``, ``asdiv.jsonl`` and ``mawps.jsonl``: test problems, one from each test cluster,
  so all test problems are independent;
- ``train.jsonl``: the problems of the other clusters, without duplicates;
- ``rows.jsonl``: SFT rows. The steps of a solution are the calculations of a solution of GSM8K.

It prints the overlap of the sets before the split, and of the training and test problems after it.
"""

import json
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from fsdpo_bench.tasks.load import load_task
from fsdpo_bench.tasks.table import builtin_tasks

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.files import write_text
from fsdpo_data.core.row_files import read_records
from fsdpo_data.models.prompts import get_template
from fsdpo_data.problems.overlap import LocatedQuestion, find_overlapping_pairs

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
#: Words of an n-gram, and the minimum overlap. Both are lower than in ``decontaminate``, because
#: variations of a problem exchange its numbers, its names and its last sentence.
NGRAM_SIZE = 4
MIN_OVERLAP = 0.5
TEMPLATE = "problem"  #: Prompt template of all stages; its prompts are short.
MAX_CALCULATIONS = (
    3  #: Calculations of an SFT solution; word problems of the sets need one to three.
)
_NUMBER = re.compile(r"\d[\d,.]*\d|\d")
_CALCULATION = re.compile(r"<<([^<>=]+)=([^<>=]+)>>")
_OPERATOR = re.compile(r"(?<=[\d)])([-+*/])")


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
    gsm8k: Annotated[Path, typer.Option(help="Training problems of GSM8K.")] = Path(
        "bench/gsm8k/train.jsonl"
    ),
    test: Annotated[int, typer.Option(help="Test problems of each set.")] = 200,
    rows: Annotated[int, typer.Option(help="SFT rows.")] = 1_000,
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
    write_rows(out / "train.jsonl", [problem.to_row() for problem in split.train])
    test_problems = [problem for problems in split.test.values() for problem in problems]
    questions = [problem.question for problem in test_problems]
    n_overlapping = len(overlapping_indices([p.question for p in split.train], questions))
    print(f"training problems that overlap with a test problem: {n_overlapping}")
    write_rows(out / "rows.jsonl", sft_rows(gsm8k, questions, rows))


def load_set(name: str, file: Path) -> list[Problem]:
    """Return the problems of a set; its rows are those of a benchmark of ``fsdpo-bench``."""
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
    located = [LocatedQuestion("", 0, question, "") for question in questions]
    pairs = find_overlapping_pairs(located, located, ngram=NGRAM_SIZE, min_overlap=MIN_OVERLAP)
    parents = list(range(len(questions)))
    for index_a, index_b in pairs.select("training", "benchmark").iter_rows():
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


def overlapping_indices(questions: Sequence[str], others: Iterable[str]) -> set[int]:
    """Return the indices of the questions that overlap with one of the others."""
    located = [LocatedQuestion("", 0, mask_numbers(question), "") for question in questions]
    located_others = [LocatedQuestion("", 0, mask_numbers(question), "") for question in others]
    pairs = find_overlapping_pairs(
        located, located_others, ngram=NGRAM_SIZE, min_overlap=MIN_OVERLAP
    )
    return set(pairs["training"])


def sft_rows(gsm8k: Path, test_questions: Sequence[str], count: int) -> list[dict[str, str]]:
    """Return the ``count`` shortest solutions of GSM8K as SFT rows.

    Problems that overlap with a test problem are removed.
    """
    template = get_template(TEMPLATE)
    examples = [
        (record.fields["question"], solution)
        for record in read_records(gsm8k)
        if (solution := format_solution(record.fields["answer"]))
    ]
    overlapping = overlapping_indices([question for question, _ in examples], test_questions)
    print(f"problems of GSM8K that overlap with a test problem: {len(overlapping)}")
    clean_examples = [example for index, example in enumerate(examples) if index not in overlapping]
    clean_examples.sort(key=lambda example: len(example[0]) + len(example[1]))
    return [
        {"prompt": template.render(question), "completion": solution}
        for question, solution in clean_examples[:count]
    ]


def format_solution(answer: str) -> str:
    r"""Return the calculations of a solution of GSM8K, one per line, and the answer in a box.

    A solution such as ``She sold 48/2 = <<48/2=24>>24 clips.\n#### 24`` becomes ``48 / 2 = 24\nThe
    answer is \boxed{24}.`` The result is empty if the solution has no calculations, more than
    ``MAX_CALCULATIONS``, or another result than its answer.
    """
    solution, _, gold = answer.replace(",", "").partition("#### ")
    lines = list(calculation_lines(solution))
    is_consistent = bool(lines) and lines[-1].partition(" = ")[2] == gold
    if not is_consistent or len(lines) > MAX_CALCULATIONS:
        return ""
    return "\n".join([*lines, f"The answer is \\boxed{{{gold}}}."])


def calculation_lines(solution: str) -> Iterator[str]:
    """Yield the calculations of a solution, with spaces around operators."""
    for expression, value in _CALCULATION.findall(solution):
        spaced_expression = _OPERATOR.sub(r" \1 ", expression.replace(" ", ""))
        if " " in spaced_expression:  # <<24=24>> repeats a number
            yield f"{spaced_expression} = {value.strip()}"


def write_rows(file: Path, rows: Sequence[dict[str, str]]) -> None:
    """Write rows as JSON lines, and print their number."""
    write_text(file, "".join(json.dumps(row) + "\n" for row in rows))
    print(f"{file.stem}: {len(rows)}")


if __name__ == "__main__":
    typer.run(main)
