"""From per-problem records to ``results.json``: every number with denominator and interval."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean, stdev
from typing import Any

from fsdpo_bench.results import result_types
from fsdpo_bench.results.intervals import (
    Proportion,
    macro_average,
    paired_interval,
    pass_at_k,
    proportion,
)
from fsdpo_bench.results.outcomes import (
    COSTS,
    Amount,
    ProblemResult,
    Record,
    clusters_of,
    read_problem_results,
    total,
)
from fsdpo_bench.results.result_types import AccuracyResult
from fsdpo_bench.tasks.table import suites
from fsdpo_data.core.statistics import ranking_auc
from fsdpo_data.steps.rewards import AGGREGATES, aggregate

#: Version of the form of ``results.json``; raised when a field changes its meaning.
RESULTS_VERSION = 1

#: Sizes at which pass@k is given, as far as there are samples; and the number of samples itself.
PASS_SIZES = (1, 2, 4, 5, 8, 15, 16, 32, 64)


def summarise(records: Iterable[Record], config: Mapping[str, Any]) -> result_types.Results:
    """Summarise the records of a finished run as ``results.json`` has it.

    ``config`` is what decided the output; it becomes ``run`` and names the benchmarks.
    """
    rewarded: list[Rewarded] = []
    facts = read_problem_results(collect_rewarded_samples(records, rewarded))
    tasks = {
        name: _task(each, config["tasks"].get(name, {}), facts) for name, each in facts.items()
    }
    return {
        "version": RESULTS_VERSION,
        "run": dict(config),
        "tasks": tasks,
        "suites": _suites(facts),
        "cost": _total_cost(tasks),
        "rewards": _rewards(rewarded),
    }


def _task(
    facts: Sequence[ProblemResult],
    described: Mapping[str, Any],
    run: Mapping[str, Sequence[ProblemResult]],
) -> result_types.TaskResults:
    names = facts[0].decoded
    seeds = {each.question: each for each in run.get(described.get("base_task", ""), ())}
    tolerant = described.get("tolerance") is not None
    average, passed = _sampling(facts)
    return {
        "title": described.get("title", facts[0].task),
        "problems": len(facts),
        "task_problems": described.get("rows", len(facts)),
        "decoders": {name: _decoder(facts, name, tolerant) for name in names},
        "groups": {group: _group(facts, group) for group in facts[0].groups},
        "group_spread": _spread(facts, described["spread_group"])
        if "spread_group" in described
        else {},
        "accuracy_drops": {
            group: _drops(facts, group, seeds) for group in facts[0].groups if seeds
        },
        "avg_at_k": average,
        "pass_at_k": passed,
        "maj_at_k": {
            name[3:]: as_dict(decoder_share(facts, name)) for name in names if name[:3] == "sc@"
        },
    }


def as_dict(found: Proportion) -> AccuracyResult:
    """Write a share of right answers as ``results.json`` has it."""
    return {
        "correct": round(found.total, 6),
        "n": found.n,
        "accuracy": None if found.value is None else round(found.value, 6),
        "ci95": None if found.ci95 is None else [round(bound, 6) for bound in found.ci95],
        "clusters": found.clusters,
    }


def decoder_share(facts: Sequence[ProblemResult], decoder: str, strict: bool = False) -> Proportion:
    """Return the accuracy of a decoder; clustered where problems share a base problem."""
    answers = ((each, each.decoded[decoder]) for each in facts if decoder in each.decoded)
    counted = [(each, answer) for each, answer in answers if answer.correct is not None]
    verdicts = [answer.strict if strict else answer.correct for _, answer in counted]
    return proportion(
        [int(bool(verdict)) for verdict in verdicts], clusters_of(f for f, _ in counted)
    )


def _decoder(
    facts: Sequence[ProblemResult], name: str, tolerant: bool
) -> result_types.DecoderResults:
    answers = [each.decoded[name] for each in facts if name in each.decoded]
    outcomes = Counter(answer.status for answer in answers)
    found: result_types.DecoderResults = {
        **as_dict(decoder_share(facts, name)),  # type: ignore[typeddict-item]  # no "strict" there
        "outcomes": dict(sorted(outcomes.items())),
        "cost": {what: total(answer.cost[what] for answer in answers) for what in COSTS},
    }
    if tolerant:
        found["strict"] = as_dict(decoder_share(facts, name, strict=True))
    return found


def _members(facts: Sequence[ProblemResult], group: str) -> dict[str, list[ProblemResult]]:
    members: dict[str, list[ProblemResult]] = defaultdict(list)
    for each in facts:
        if group in each.groups:
            members[each.groups[group]].append(each)
    # Levels are numbers: 2 comes before 10.
    labels = sorted(members, key=lambda label: (label.isdecimal() and len(label), label))
    return {label: members[label] for label in labels}


def _group(facts: Sequence[ProblemResult], group: str) -> dict[str, dict[str, AccuracyResult]]:
    return {
        label: {name: as_dict(decoder_share(part, name)) for name in part[0].decoded}
        for label, part in _members(facts, group).items()
    }


def _spread(facts: Sequence[ProblemResult], group: str) -> dict[str, dict[str, float]]:
    """Return mean, standard deviation and range of the accuracies of a group's parts."""
    found: dict[str, dict[str, float]] = {}
    for name in facts[0].decoded:
        shares = [decoder_share(part, name).value for part in _members(facts, group).values()]
        values = [each for each in shares if each is not None]
        if len(values) > 1:
            found[name] = {
                "parts": len(values),
                "mean": round(fmean(values), 6),
                "deviation": round(stdev(values), 6),
                "lowest": round(min(values), 6),
                "highest": round(max(values), 6),
            }
    return found


def _drops(
    facts: Sequence[ProblemResult], group: str, seeds: Mapping[str, ProblemResult]
) -> dict[str, dict[str, result_types.AccuracyDrop]]:
    """Return how much lower accuracy is than on the seeds of the same problems, by part."""
    found: dict[str, dict[str, result_types.AccuracyDrop]] = {}
    for label, part in _members(facts, group).items():
        pairs = [(seed, each) for each in part if (seed := seeds.get(each.cluster or ""))]
        for name in part[0].decoded:
            told = [[each.decoded[name].correct for each in pair] for pair in pairs]
            lost = [int(bool(was)) - int(bool(now)) for was, now in told if None not in (was, now)]
            if lost:
                ci95 = [round(bound, 6) for bound in paired_interval(lost)]
                drop: result_types.AccuracyDrop = {
                    "drop": round(fmean(lost), 6),
                    "n": len(lost),
                    "ci95": ci95,
                }
                found.setdefault(label, {})[name] = drop
    return found


def _sampling(
    facts: Sequence[ProblemResult],
) -> tuple[dict[str, AccuracyResult], dict[str, AccuracyResult]]:
    """Return avg@k and pass@k over the problems that have samples."""
    sampled = [each for each in facts if each.samples]
    if not sampled:
        return {}, {}
    most, clusters = min(each.samples for each in sampled), clusters_of(sampled)

    def mean(values: Sequence[float]) -> AccuracyResult:
        return as_dict(proportion(values, clusters, trials=most))

    sizes = sorted({size for size in PASS_SIZES if size <= most} | {most})
    passed = {k: [pass_at_k(f.samples, f.right, k) for f in sampled] for k in sizes}
    average = mean([each.right / each.samples for each in sampled])
    return {str(most): average}, {str(k): mean(values) for k, values in passed.items()}


def _suites(facts: Mapping[str, Sequence[ProblemResult]]) -> dict[str, result_types.SuiteResults]:
    """Average over benchmarks, each counting the same, for the suites that are whole."""
    several = {name: tasks for name, tasks in suites().items() if len(tasks) > 1}
    whole = {name: tasks for name, tasks in several.items() if set(tasks) <= set(facts)}
    if len(facts) > 1 and all(set(tasks) != set(facts) for tasks in whole.values()):
        whole["this run"] = tuple(facts)
    found: dict[str, result_types.SuiteResults] = {}
    for name, tasks in whole.items():
        means = {
            decoder: as_dict(macro_average([decoder_share(facts[task], decoder) for task in tasks]))
            for decoder in facts[tasks[0]][0].decoded
        }
        found[name] = {"tasks": list(tasks), "decoders": means}
    return found


def _total_cost(tasks: Mapping[str, result_types.TaskResults]) -> dict[str, result_types.Costs]:
    costs: dict[str, list[Mapping[str, Amount]]] = defaultdict(list)
    for task in tasks.values():
        for name, decoder in task["decoders"].items():
            costs[name].append(decoder["cost"])
    return {
        name: {what: total(cost[what] for cost in each) for what in COSTS}
        for name, each in costs.items()
    }


BINS = 10  #: Bins of a reward in [0, 1].
DISTRIBUTION_AGGREGATE = (
    "min"  #: The aggregate whose distribution is shown: that of best-of-N in the paper.
)
MAX_STEP_NUMBER = 12  #: Steps by number, the rest together at the end.


def bin_of(reward: float) -> int:
    """Return the bin of a reward; 1 belongs to the last, and what is no probability to an end."""
    return max(0, min(BINS - 1, int(reward * BINS)))


#: A graded sample with rewards: the number of its problem, its rewards, whether it is correct.
Rewarded = tuple[int, Sequence[float], bool]


def collect_rewarded_samples(
    records: Iterable[Record], rewarded: list[Rewarded]
) -> Iterator[Record]:
    """Pass records on, adding their graded samples with rewards to ``rewarded``."""
    for number, record in enumerate(records):
        for sample in record["samples"]:
            if sample["rewards"] and sample["correct"] is not None:
                rewarded.append((number, sample["rewards"], sample["correct"]))
        yield record


def _rewards(rewarded: Sequence[Rewarded]) -> dict[str, Any] | None:
    """Return what the rewards of samples are like; None if there are none."""
    if not rewarded:
        return None
    problems, every, right = zip(*rewarded, strict=True)
    scores = {how: [aggregate(rewards, how) for rewards in every] for how in AGGREGATES}
    ranked = ((how, ranking_auc(problems, each, right)) for how, each in scores.items())
    counts = {True: [0] * BINS, False: [0] * BINS}
    for score, good in zip(scores[DISTRIBUTION_AGGREGATE], right, strict=True):
        counts[good][bin_of(score)] += 1
    return {
        "solutions": len(right),
        "correct": sum(right),
        "calibration": _calibration(rewarded),
        "distribution": {
            "aggregate": DISTRIBUTION_AGGREGATE,
            "correct": counts[True],
            "wrong": counts[False],
        },
        "by_step": {"correct": _by_step(rewarded, True), "wrong": _by_step(rewarded, False)},
        "ranking_auc": {
            how: asdict(found) | {"ci95": found.ci95 and list(found.ci95)} for how, found in ranked
        },
    }


def _calibration(rewarded: Sequence[Rewarded]) -> dict[str, Any]:
    """Hold step rewards against how often the solutions they stand in are correct.

    That is what a reward model trained on outcomes predicts. Steps of one problem are alike, so
    the intervals are clustered by problem.
    """
    found: dict[int, list[tuple[bool, int, float]]] = defaultdict(list)
    for problem, rewards, right in rewarded:
        for reward in rewards:
            found[bin_of(reward)].append((right, problem, reward))
    bins = [_bin(index, steps) for index, steps in sorted(found.items())]
    steps = sum(each["steps"] for each in bins)
    gaps = sum(each["steps"] * abs(each["reward"] - each["correct"]) for each in bins)
    return {"bins": bins, "expected_error": round(gaps / steps, 6)}


def _by_step(rewarded: Sequence[Rewarded], kind: bool) -> list[dict[str, float] | None]:
    found: list[list[float]] = [[] for _ in range(MAX_STEP_NUMBER)]
    for _, rewards, right in rewarded:
        for number, reward in enumerate(rewards if right is kind else ()):
            found[min(number, MAX_STEP_NUMBER - 1)].append(reward)
    return [{"reward": round(fmean(e), 6), "steps": len(e)} if e else None for e in found]


def _bin(index: int, steps: Sequence[tuple[bool, int, float]]) -> dict[str, Any]:
    found = proportion([right for right, _, _ in steps], [problem for _, problem, _ in steps])
    told = as_dict(found)
    return {
        "from": index / BINS,
        "to": (index + 1) / BINS,
        "steps": found.n,
        "problems": found.clusters,
        "reward": round(sum(reward for _, _, reward in steps) / found.n, 6),
        "correct": told["accuracy"],
        "ci95": told["ci95"],
    }
