"""The numbers of `make real`: one row per problem in CSV files."""

import csv
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fsdpo_bench.decoders.answer_classes import AnswerClasses, answer_classes, voting_answers
from fsdpo_bench.decoders.estimators import best_of_n, vote, weighted_vote
from fsdpo_bench.prm.processbench import read_first_error_rows

from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.core.statistics import auc
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.run_directory import MANIFEST_FILE
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.steps.rewards import DEFAULT_AGGREGATE, aggregate

STAGES_FILE = "stages.csv"
CHOICES_FILE = "choices.csv"
CHOICE_COLUMNS = ("choice", "problem_id", "value")
PROCESSBENCH_FILE = "processbench.csv"
PROCESSBENCH_COLUMNS = ("prm", "row", "first_error", "rewards")
POLICIES_FILE = "policies.csv"
POLICY_COLUMNS = (
    *("policy", "seed", "problem_id", "greedy", "correct", "samples"),
    *("vote", "tokens", "cut_off"),
)
START = "start"  #: Name of the policy before training.
#: Names of choices in the file; a reward model's choices start with its name and a colon.
GREEDY = "greedy"
AVERAGE = "average"
VOTE = "vote"
MOST_LIKELY = "most likely"
BEST = "best"
WEIGHTED_VOTE = "weighted vote"
RANKING_AUC = "ranking AUC"


@dataclass(frozen=True, slots=True)
class ProblemSamples:
    """The samples of one problem, in the order of their indices."""

    problem_id: str  #: Id of the problem.
    solution_ids: list[str]  #: Ids of the samples.
    is_correct: list[bool]  #: Whether each sample is correct.
    votes: list[str | None]  #: The answer with which each sample votes; None for no vote.
    n_tokens: list[int]  #: Number of tokens of each sample.
    is_cut_off: list[bool]  #: Whether each sample reached the maximum number of tokens.
    rewards: list[list[float] | None]  #: Step rewards of each sample, if the dataset has rewards.

    def classes(self) -> AnswerClasses:
        """Return the classes of the answers of the samples."""
        return answer_classes(self.votes)

    def aggregate_rewards(self, name: str) -> list[float | None]:
        """Return the aggregated rewards of each sample; None for a sample without rewards."""
        return [aggregate(steps, name) if steps else None for steps in self.rewards]

    def ranking_auc(self, name: str) -> float | None:
        """Return the AUC of correct over incorrect samples by an aggregate; None without both."""
        rewards = self.aggregate_rewards(name)
        scores = [-math.inf if reward is None else reward for reward in rewards]
        return auc(scores, self.is_correct)

    def is_choice_correct(self, index: int | None) -> bool:
        """Whether the sample that is chosen is correct; without a choice, it is not."""
        return index is not None and self.is_correct[index]

    def first(self, n: int) -> "ProblemSamples":
        """Return the first n samples."""
        columns = ("solution_ids", "is_correct", "votes", "n_tokens", "is_cut_off", "rewards")
        return ProblemSamples(self.problem_id, *(getattr(self, name)[:n] for name in columns))


def read_problem_samples(dataset: Path) -> Iterator[ProblemSamples]:
    """Yield the samples of each problem of a dataset."""
    files = read_manifest(dataset).config_paths(dataset, "solutions")
    rows = collect_rows(scan_rows("solutions", files)).sort("problem_id", "sample_index")
    for (problem_id,), samples in rows.group_by("problem_id", maintain_order=True):
        yield ProblemSamples(
            problem_id=str(problem_id),
            solution_ids=samples["solution_id"].to_list(),
            is_correct=(samples["outcome"] == "correct").to_list(),
            votes=voting_answers(samples["answer"].to_list(), samples["verdict_by"].to_list()),
            n_tokens=samples["n_tokens"].to_list(),
            is_cut_off=(samples["finish_reason"] == "length").to_list(),
            rewards=samples["step_rewards"].to_list(),
        )


def record_numbers(
    run: Path, results: Path, *, processbench_file: Path, policy_samples: int
) -> None:
    """Write the numbers of the complete datasets of a run; numbers of other stages stay.

    Args:
        run: Folder of the datasets.
        results: Folder of the results.
        processbench_file: File of ProcessBench.
        policy_samples: Number of samples that measure a policy.
    """
    likelihood_file = run / "likelihood.json"
    if likelihood_file.exists() and has_manifest(run / "greedy"):
        record_start(
            results,
            run / "test",
            run / "greedy",
            likelihood_file=likelihood_file,
            policy_samples=policy_samples,
        )
    for scored in filter(has_manifest, sorted(run.glob("test-*"))):
        record_prm(results, scored, scored.name.removeprefix("test-"))
    for scored in filter(has_manifest, sorted(run.glob("processbench-*"))):
        prm = scored.name.removeprefix("processbench-")
        record_processbench(results, scored, rows_file=processbench_file, prm=prm)
    for test in filter(has_manifest, sorted(run.glob("*-seed*-test"))):
        name = test.name.removesuffix("-test")
        policy, _, seed = name.rpartition("-seed")
        greedy = run / f"{name}-greedy"
        record_policy(
            results / POLICIES_FILE,
            test,
            greedy if has_manifest(greedy) else None,
            policy=policy,
            seed=int(seed),
            n_samples=policy_samples,
        )


def has_manifest(dataset: Path) -> bool:
    """Return whether a dataset is complete."""
    return (dataset / MANIFEST_FILE).exists()


def record_start(
    results: Path, test: Path, greedy: Path, *, likelihood_file: Path, policy_samples: int
) -> None:
    """Write the choices that need no reward model, and the results of the start policy.

    Args:
        results: Folder of the results.
        test: Dataset with the samples of the test problems.
        greedy: Dataset with their greedy solutions.
        likelihood_file: Log π of each sample, by solution id.
        policy_samples: Number of samples that measure a policy.
    """
    logprobs = json.loads(likelihood_file.read_text(encoding="utf-8"))
    rows = []
    for samples in read_problem_samples(test):
        chosen = {
            VOTE: vote(samples.classes()),
            MOST_LIKELY: best_of_n([logprobs[key] for key in samples.solution_ids]),
        }
        mean = sum(samples.is_correct) / len(samples.is_correct)
        rows.append((AVERAGE, samples.problem_id, format_number(mean)))
        for choice, index in chosen.items():
            rows.append((choice, samples.problem_id, str(int(samples.is_choice_correct(index)))))
    for samples in read_problem_samples(greedy):
        rows.append((GREEDY, samples.problem_id, str(int(samples.is_correct[0]))))
    names = (GREEDY, AVERAGE, VOTE, MOST_LIKELY)
    replace_rows(results / CHOICES_FILE, CHOICE_COLUMNS, rows, lambda row: row[0] in names)
    record_policy(
        results / POLICIES_FILE, test, greedy, policy=START, seed=0, n_samples=policy_samples
    )


def record_prm(results: Path, scored: Path, prm: str) -> None:
    """Write the choices of a reward model among the samples, and its ranking AUC by problem."""
    are_probabilities = read_manifest(scored).rewards_are_probabilities
    rows = []
    for samples in read_problem_samples(scored):
        rewards = samples.aggregate_rewards(DEFAULT_AGGREGATE)
        chosen = {BEST: best_of_n(rewards)}
        if are_probabilities:
            chosen[WEIGHTED_VOTE] = weighted_vote(samples.classes(), rewards)
        for choice, index in chosen.items():
            rows.append(
                (f"{prm}: {choice}", samples.problem_id, str(int(samples.is_choice_correct(index))))
            )
        area = samples.ranking_auc(DEFAULT_AGGREGATE)
        if area is not None:
            rows.append((f"{prm}: {RANKING_AUC}", samples.problem_id, format_number(area)))
    replace_rows(
        results / CHOICES_FILE,
        CHOICE_COLUMNS,
        rows,
        lambda row: row[0].startswith(f"{prm}: "),
    )


def record_processbench(results: Path, scored: Path, *, rows_file: Path, prm: str) -> None:
    """Write the step rewards of each row of ProcessBench, with its first wrong step.

    The dataset has no steps after the first wrong one. They cannot change the score: a row with an
    error counts only if no step before its first wrong one is predicted, and that step is.

    Args:
        results: Folder of the results.
        scored: ProcessBench as a dataset, with step rewards.
        rows_file: File of ProcessBench.
        prm: Name of the reward model.
    """
    rewards_by_steps = {}
    files = read_manifest(scored).config_paths(scored, "solutions")
    columns = scan_rows("solutions", files).select("completions", "step_rewards")
    for steps, rewards in collect_rows(columns).iter_rows():
        rewards_by_steps["".join("".join(steps).split())] = rewards
    rows = []
    for example in read_first_error_rows(rows_file):
        n_steps = len(example.steps) if example.first_error < 0 else example.first_error + 1
        rewards = rewards_by_steps["".join("".join(example.steps[:n_steps]).split())]
        text = " ".join(format_number(reward) for reward in rewards or ())
        rows.append((prm, example.key, str(example.first_error), text))
    replace_rows(results / PROCESSBENCH_FILE, PROCESSBENCH_COLUMNS, rows, lambda row: row[0] == prm)


def record_policy(
    file: Path, test: Path, greedy: Path | None, *, policy: str, seed: int, n_samples: int
) -> None:
    """Write the results of a policy: one row per test problem.

    Args:
        file: The CSV file.
        test: Dataset with samples of the test problems.
        greedy: Dataset with their greedy solutions; None if there is none yet.
        policy: Name of the policy.
        seed: Seed of its training.
        n_samples: Number of samples per problem that count.
    """
    greedy_is_correct = {
        samples.problem_id: str(int(samples.is_correct[0]))
        for samples in (read_problem_samples(greedy) if greedy is not None else ())
    }
    rows = []
    for samples in read_problem_samples(test):
        first_samples = samples.first(n_samples)
        numbers = (
            sum(first_samples.is_correct),
            len(first_samples.is_correct),
            first_samples.is_choice_correct(vote(first_samples.classes())),
            sum(first_samples.n_tokens),
            sum(first_samples.is_cut_off),
        )
        greedy_cell = greedy_is_correct.get(samples.problem_id, "")
        cells = (greedy_cell, *(str(int(n)) for n in numbers))
        rows.append((policy, str(seed), samples.problem_id, *cells))
    replace_rows(
        file,
        POLICY_COLUMNS,
        rows,
        lambda row: row[:2] == [policy, str(seed)],
    )


def read_rows(file: Path) -> list[list[str]]:
    """Return the rows of a CSV file without its first one; nothing if the file does not exist."""
    if not file.exists():
        return []
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.reader(lines))[1:]


def replace_rows(
    file: Path,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    is_old: Callable[[list[str]], bool],
) -> None:
    """Write rows into a CSV file in place of old ones.

    Args:
        file: The file, which may not exist.
        columns: Names of the columns.
        rows: The new rows.
        is_old: Whether a row of the file is replaced.
    """
    kept_rows = [row for row in read_rows(file) if not is_old(row)]
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    with part.open("w", encoding="utf-8", newline="") as lines:
        csv.writer(lines, lineterminator="\n").writerows([columns, *kept_rows, *rows])
    part.rename(file)


def format_number(number: float) -> str:
    """Return a number with four significant digits."""
    return f"{number:.4g}"
