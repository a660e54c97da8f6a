"""Measure how well `fsdpo-data decontaminate` finds perturbed problems.

    python benchmarks/contamination/math_perturb.py --data ../shared/data

MATH-Perturb has two versions of 279 problems of MATH: other numbers (simple), and a small change
that needs another solution (hard). GSM-Plus has eight versions of 300 problems of GSM8K. The script
compares them with all problems of MATH, and with the test problems of GSM8K.

- Recall: the perturbed problems whose original problem is found, of all perturbed problems.
- Precision: the reported pairs that are the same problem with changes, of all reported pairs. MATH
  has many problems of a few templates, so the last column counts the perturbed problems with a
  wrong pair.

`seeds.csv` names the original problem of each problem of MATH-Perturb. MATH has further versions of
some problems; `decisions.csv` has our decisions about other reported pairs (columns `same` and
`problem_id`). A pair without a decision counts as wrong; `--undecided` prints such pairs.

The script chooses the threshold on the problems with an odd id, by the F1 of precision and recall,
and reports the others.

`--short-questions` measures only a threshold that grows for short questions: t (1 + k / n), where n
is the number of tokens of the shorter question. It chooses t and k on the odd ids in two ways: by
F1, and by precision. The second way requires at least the recall of the default.
"""

import argparse
import csv
import json
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fsdpo_data.problems.load import load_problems
from fsdpo_data.problems.overlap import (
    MIN_OVERLAP,
    LocatedQuestion,
    _text_frame,
    _tokens,
    find_overlapping_pairs,
)
from fsdpo_data.stages.decontaminate import find_overlaps

FOLDER = Path(__file__).parent
#: The smallest measured threshold.
MIN_THRESHOLD = 0.3
THRESHOLDS = [round(MIN_THRESHOLD + step / 100, 2) for step in range(68)]
#: Growths of the threshold for short questions, in tokens; 0 is a constant threshold.
GROWTHS = (0, 0.5, 1, 2, 3, 4, 5, 6, 8, 10)
#: Benchmarks of the measurement of time.
TIMED_BENCHMARKS = (
    *("math", "math500", "gsm8k", "svamp", "asdiv", "gsm_ic2", "gsm_icm", "gk2023", "ocw"),
)


@dataclass(frozen=True)
class PerturbedPair:
    """A reported pair of a perturbed problem and a problem of the original benchmark."""

    perturbed: int  #: Position of the perturbed problem.
    original: int  #: Position of the problem of the original benchmark.
    overlap: float  #: Their overlap.
    n_tokens: int = 0  #: Tokens of the shorter question, if they were counted.

    def reaches(self, threshold: float, growth: float = 0) -> bool:
        """Return whether the overlap reaches the threshold, which may grow for short questions."""
        return self.overlap >= threshold * (1 + growth / self.n_tokens if growth else 1)


@dataclass(frozen=True)
class Version:
    """A perturbed problem."""

    kind: str  #: Kind of the perturbation.
    group: int  #: Id of the original problem.
    question: str  #: Text of the perturbed problem.
    seed: int  #: Position of its original problem.


def read_lines(file: Path) -> list[dict]:
    """Return the rows of a file of JSON lines."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def read_math(data: Path) -> dict[tuple[str, int], str]:
    """Return the questions of MATH by file and row."""
    files = [*sorted((data / "train/math").glob("*.jsonl")), data / "benchmarks/math/test.jsonl"]
    return {
        (file.name, row): fields["problem"]
        for file in files
        for row, fields in enumerate(read_lines(file), start=1)
    }


def read_math_perturb(data: Path, positions: dict[tuple[str, int], int]) -> list[Version]:
    """Return the problems of MATH-Perturb."""
    with (FOLDER / "seeds.csv").open() as file:
        seeds = {
            int(row["problem_id"]): positions[row["file"], int(row["row"])]
            for row in csv.DictReader(file)
        }
    folder = data / "newer/benchmarks/math_perturb"
    return [
        Version(kind, fields["problem_id"], fields["problem"], seeds[fields["problem_id"]])
        for kind in ("simple", "hard")
        for fields in read_lines(folder / f"math_perturb_{kind}.jsonl")
    ]


def read_gsm_plus(data: Path, questions: Sequence[str]) -> list[Version]:
    """Return the problems of GSM-Plus whose original problem has the same text in GSM8K."""

    def bare(text: str) -> str:
        return re.sub(r"\W", "", text.lower())

    positions = {bare(question): index for index, question in enumerate(questions)}
    rows = read_lines(data / "newer/benchmarks/gsm_plus/testmini.jsonl")
    seeds = [positions.get(bare(fields["seed_question"])) for fields in rows]
    return [
        Version(fields["perturbation_type"], seed, fields["question"], seed)
        for fields, seed in zip(rows, seeds, strict=True)
        if seed is not None
    ]


def read_decisions(positions: dict[tuple[str, int], int]) -> dict[tuple[str, int, int], bool]:
    """Return whether a pair is the same problem, by kind, id and position of the original."""
    with (FOLDER / "decisions.csv").open() as file:
        return {
            (row["kind"], int(row["problem_id"]), positions[row["file"], int(row["row"])]): (
                row["same"] == "yes"
            )
            for row in csv.DictReader(file)
        }


def locate(questions: Iterable[str]) -> list[LocatedQuestion]:
    """Return questions without gold answers."""
    return [LocatedQuestion("", 0, question, "") for question in questions]


def find_pairs(
    originals: Sequence[str], versions: Sequence[Version], *, swapped: bool = False
) -> list[PerturbedPair]:
    """Return the pairs above the smallest threshold; ``swapped`` exchanges the two sides."""
    training = locate(originals)
    benchmark = locate(version.question for version in versions)
    if swapped:
        training, benchmark = benchmark, training
    frame = find_overlapping_pairs(training, benchmark, min_overlap=MIN_THRESHOLD)
    sides = ("training", "benchmark") if swapped else ("benchmark", "training")
    rows = frame.select(*sides, "overlap").iter_rows()
    return sorted(
        (PerturbedPair(*row) for row in rows), key=lambda pair: (pair.perturbed, pair.original)
    )


def rates(
    pairs: Sequence[PerturbedPair],
    versions: Sequence[Version],
    decisions: dict[tuple[str, int, int], bool],
    chosen: set[int],
    threshold: float,
    growth: float = 0,
) -> tuple[int, int, int, int]:
    """Return the numbers of right pairs, all pairs, found problems, and problems in wrong pairs."""
    right, found_problems, wrong_problems, n_pairs = 0, set(), set(), 0
    for pair in pairs:
        if pair.perturbed not in chosen or not pair.reaches(threshold, growth):
            continue
        version = versions[pair.perturbed]
        is_seed = pair.original == version.seed
        decision = decisions.get((version.kind, version.group, pair.original))
        n_pairs += 1
        if is_seed:
            found_problems.add(pair.perturbed)
        if is_seed or decision:
            right += 1
        else:
            wrong_problems.add(pair.perturbed)
    return right, n_pairs, len(found_problems), len(wrong_problems)


def f1(right: int, n_pairs: int, n_found: int, n_versions: int) -> float:
    """Return the harmonic mean of precision and recall."""
    precision, recall = right / max(1, n_pairs), n_found / n_versions
    return 2 * precision * recall / max(precision + recall, 1e-9)


def print_rates(name: str, threshold: float, counts: tuple[int, int, int, int], n: int) -> None:
    """Print one line of the table."""
    right, n_pairs, n_found, n_wrong = counts
    precision = f"{right / max(1, n_pairs):.1%} ({right} of {n_pairs})"
    recall = f"{n_found / n:.1%} ({n_found} of {n})"
    print(f"{name:<42}{threshold:>9.2f}  {precision:<20}{recall:<20}{n_wrong:>10}", flush=True)


def measure_math_perturb(data: Path, *, show_undecided: bool) -> None:
    """Print precision and recall on MATH-Perturb."""
    math = read_math(data)
    positions = {key: index for index, key in enumerate(math)}
    versions = read_math_perturb(data, positions)
    originals = list(math.values())
    decisions = read_decisions(positions)
    pairs = find_pairs(originals, versions)
    swapped = find_pairs(originals, versions, swapped=True)

    def ids(kinds: Sequence[str], parity: Sequence[int]) -> set[int]:
        return {
            index
            for index, version in enumerate(versions)
            if version.kind in kinds and version.group % 2 in parity
        }

    all_kinds = ("simple", "hard")
    odd = ids(all_kinds, [1])
    chosen_threshold = max(
        THRESHOLDS,
        key=lambda threshold: f1(*rates(pairs, versions, decisions, odd, threshold)[:3], len(odd)),
    )
    print("MATH-Perturb against the 12,500 problems of MATH")
    print(f"{'problems':<42}{'threshold':>9}  {'precision':<20}{'recall':<20}{'wrong pair':>10}")
    print_rates(
        "odd ids, both kinds (chosen here)",
        chosen_threshold,
        rates(pairs, versions, decisions, odd, chosen_threshold),
        len(odd),
    )
    for threshold in dict.fromkeys((chosen_threshold, MIN_OVERLAP)):
        for kinds in (("simple",), ("hard",), all_kinds):
            even = ids(kinds, [0])
            counts = rates(pairs, versions, decisions, even, threshold)
            print_rates(f"even ids, {' and '.join(kinds)}", threshold, counts, len(even))

    def round_overlaps(pairs: Sequence[PerturbedPair]) -> list[tuple[int, int, float]]:
        return [(pair.perturbed, pair.original, round(pair.overlap, 9)) for pair in pairs]

    is_same = round_overlaps(pairs) == round_overlaps(swapped)
    print(f"the pairs with MATH as the benchmark are {'the same' if is_same else 'different'}")
    if show_undecided:
        for pair in pairs:
            version = versions[pair.perturbed]
            key = (version.kind, version.group, pair.original)
            if pair.overlap >= min(chosen_threshold, MIN_OVERLAP) and not (
                key in decisions or pair.original == version.seed
            ):
                print(key, list(math)[pair.original], round(pair.overlap, 2))
                print("   ", version.question[:300], "\n   ", originals[pair.original][:300])


def count_tokens(questions: Sequence[str]) -> list[int]:
    """Return the number of tokens of each question."""
    texts = _text_frame(locate(questions), n_training=0)
    counts = dict(_tokens(texts, 1).group_by("id").len().iter_rows())
    return [counts.get(index, 1) for index in range(len(questions))]


def measure_short_questions(data: Path) -> None:
    """Print precision and recall for a threshold that grows for short questions."""
    math = read_math(data)
    positions = {key: index for index, key in enumerate(math)}
    versions = read_math_perturb(data, positions)
    originals = list(math.values())
    decisions = read_decisions(positions)
    original_tokens = count_tokens(originals)
    perturbed_tokens = count_tokens([version.question for version in versions])
    pairs = [
        replace(
            pair,
            n_tokens=min(original_tokens[pair.original], perturbed_tokens[pair.perturbed]),
        )
        for pair in find_pairs(originals, versions)
    ]

    def counts(
        selected_kinds: Sequence[str], parity: int, threshold: float, growth: float
    ) -> tuple[tuple[int, int, int, int], int]:
        ids = {
            index
            for index, version in enumerate(versions)
            if version.kind in selected_kinds and version.group % 2 == parity
        }
        return rates(pairs, versions, decisions, ids, threshold, growth), len(ids)

    kinds = ("simple", "hard")
    (_, _, min_found, _), n_odd = counts(kinds, 1, MIN_OVERLAP, 0)
    grid = {
        (threshold, growth): counts(kinds, 1, threshold, growth)[0]
        for threshold in THRESHOLDS
        for growth in GROWTHS
    }
    by_f1 = max(grid, key=lambda rule: f1(*grid[rule][:3], n_odd))
    by_precision = max(
        (rule for rule in grid if grid[rule][2] >= min_found),
        key=lambda rule: grid[rule][0] / grid[rule][1],
    )
    rules = {"default": (MIN_OVERLAP, 0), "best F1": by_f1, "best precision": by_precision}
    print("A threshold t (1 + k / n) for the n tokens of the shorter question, chosen on odd ids")
    print(f"{'problems':<42}{'t':>9}  {'precision':<20}{'recall':<20}{'wrong pair':>10}")
    for name, (threshold, growth) in rules.items():
        for parity, parity_name in ((1, "odd"), (0, "even")):
            for kind in kinds:
                rule_counts, n = counts([kind], parity, threshold, growth)
                row_name = f"{name} (k = {growth:g}), {parity_name} ids, {kind}"
                print_rates(row_name, threshold, rule_counts, n)


def measure_gsm_plus(data: Path) -> None:
    """Print precision and recall on GSM-Plus at the default threshold, by kind."""
    originals = [row["question"] for row in read_lines(data / "benchmarks/gsm8k/test.jsonl")]
    versions = read_gsm_plus(data, originals)
    pairs = find_pairs(originals, versions)
    print(f"\nGSM-Plus against the {len(originals):,} test problems of GSM8K")
    print(f"{'problems':<42}{'threshold':>9}  {'precision':<20}{'recall':<20}{'wrong pair':>10}")
    kinds = list(dict.fromkeys(version.kind for version in versions))
    for name, chosen_kinds in (*((kind, [kind]) for kind in kinds), ("all", kinds)):
        chosen = {i for i, version in enumerate(versions) if version.kind in chosen_kinds}
        counts = rates(pairs, versions, {}, chosen, MIN_OVERLAP)
        print_rates(name, MIN_OVERLAP, counts, len(chosen))


def measure_time(data: Path) -> None:
    """Print the time of the comparison of two training sets with nine benchmarks."""
    sources = [str(data / "train/gsm8k/train.jsonl"), str(data / "train/math")]
    problems = load_problems(sources).problems
    files = [str(data / f"benchmarks/{name}/test.jsonl") for name in TIMED_BENCHMARKS]
    seconds = []
    for _ in range(7):
        start = time.process_time()
        report = find_overlaps(problems, files)
        seconds.append(time.process_time() - start)
    n_questions = sum(len(benchmark.questions) for benchmark in report.benchmarks)
    print(
        f"\n{len(problems):,} training problems against {n_questions:,} questions of nine "
        f"benchmarks: {min(seconds):.2f} s of processor time (the least of {len(seconds)} runs), "
        f"{len(problems) - len(report.clean_problems):,} contaminated"
    )


def main() -> None:
    """Measure precision, recall and time, and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--undecided", action="store_true", help="Print pairs without a decision.")
    parser.add_argument("--short-questions", action="store_true", help="Measure only these rules.")
    options = parser.parse_args()
    if options.short_questions:
        measure_short_questions(options.data)
        return
    measure_math_perturb(options.data, show_undecided=options.undecided)
    measure_gsm_plus(options.data)
    measure_time(options.data)


if __name__ == "__main__":
    main()
