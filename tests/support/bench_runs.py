"""Sealed datasets and runs with invented solutions, without a model and without a grader."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fsdpo_bench.metrics.measure import MeasureSpec, decode_pool, measure
from fsdpo_bench.metrics.pools import Pool, load_pools
from fsdpo_bench.metrics.result_records import Results
from fsdpo_bench.report.render import write_report
from fsdpo_bench.run_folder import BenchmarkEntry, RunRecord, write_run_record
from fsdpo_bench.tasks.description import TaskDescription
from fsdpo_bench.tasks.table import builtin_tasks

from fsdpo_data.answers.grader import GRADER_NAME
from fsdpo_data.core.cost import Cost
from fsdpo_data.core.entities import Problem, Solution
from fsdpo_data.core.identity import EngineRef, ModelRef, SourceRef, digest
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.dataset.manifest import SCORE_STAGE, AnyRecord, FileEntry, StageCounts
from fsdpo_data.dataset.schema import problems_table, to_table, write_parquet
from fsdpo_data.dataset.stage_records import (
    GRADE_STAGE,
    SAMPLE_STAGE,
    GradeCounts,
    GradeRecord,
    GradeSettings,
    SampleRecord,
    SampleSettings,
    SearchSettings,
    make_manifest,
    problem_record,
)
from fsdpo_data.engines.beam_search import BeamSpec
from fsdpo_data.engines.scorers.prm_formats import PrmFormatRef, ScoreSettings
from fsdpo_data.models.prompts import get_template
from fsdpo_data.problems.benchmark_rows import BENCHMARKS_KEY, BenchmarkRow
from fsdpo_data.problems.load import ProblemSet
from fsdpo_data.stages.score import ScoreCounts, ScoreRecord

DECODERS = ("greedy", "sc@2", "sc@4", "bon@4:min", "sbs@2,1")
MODEL = ModelRef("Qwen2-7B-SFT", "a" * 40)
TEMPLATE = get_template("alpaca").ref

#: Text that would end a script, a style or a comment if it were put into a page as it is.
HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    "<!-- ${7*7} {{ 7*7 }} \u2028 \u0000 &lt; ]]> '\"`\n"
)


def written(file: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows as JSON lines; return the file."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


# Solutions and datasets


def make_problem(
    number: int,
    benchmark_rows: Sequence[BenchmarkRow] = (),
    text: str = "",
    source: str = "made",
) -> Problem:
    """Return a problem whose gold answer is 10 more than its number."""
    metadata = {}
    if benchmark_rows:
        metadata = {BENCHMARKS_KEY: [entry.to_json() for entry in benchmark_rows]}
    question = f"{text}What is {number} + 10?"
    return Problem(question, str(10 + number), source, "test", metadata)


def make_solution(
    problem: Problem, index: int = 0, outcome: str = "correct", **values: Any
) -> Solution:
    """Return a solution with an outcome; by default its answer fits the outcome.

    Args:
        problem: The problem.
        index: Sample index.
        outcome: The outcome.
        values: Other columns.
    """
    answers = {"correct": problem.answer, "no_answer": None}
    answer = values.pop("answer", answers.get(outcome, "7"))
    steps = ["We add.\n", f"The answer is {answer}." if answer else "Then we stop."]
    row = Solution(
        solution_id=digest(problem.id, index, values.pop("salt", 0)),
        problem_id=problem.id,
        sample_index=index,
        prompt=f"Question: {problem.question}\n",
        completions=steps,
        finish_reason="stop",
        n_tokens=20,
        answer=answer,
        outcome=outcome,  # type: ignore[arg-type]
        verdict_by=f"{GRADER_NAME}/final-phrase/number",
        labels=None,
    )
    return replace(row, **values)


def make_solutions(problem: Problem, outcomes: str, **columns: Sequence[Any]) -> list[Solution]:
    """Return the solutions of a problem.

    Args:
        problem: The problem.
        outcomes: A letter per solution: ``c`` correct, ``i`` incorrect, ``n`` no answer, ``u``
            undecided, ``t`` timed out, ``g`` unreadable gold.
        columns: Values of other columns, one per solution.
    """
    names = {"c": "correct", "i": "incorrect", "n": "no_answer", "u": "undecided"}
    names |= {"t": "timed_out", "g": "gold_unparsed"}
    return [
        make_solution(
            problem,
            index,
            names[letter],
            **{name: values[index] for name, values in columns.items()},
        )
        for index, letter in enumerate(outcomes)
    ]


def write_dataset(
    root: Path,
    problems: Sequence[Problem],
    solutions: Sequence[Solution],
    *,
    prm: str | None = None,
    is_probability: bool = True,
    beam: tuple[int, int] | None = None,
    grader: str = GRADER_NAME,
    score: Mapping[str, Any] = MappingProxyType({}),
    **changes: Any,
) -> Path:
    """Write a sealed dataset.

    Args:
        root: Folder of the dataset.
        problems: The problems.
        solutions: Their solutions.
        prm: Name of the reward model; None without step rewards.
        is_probability: Whether the rewards are probabilities.
        beam: b1 and b2 of the search; None without a search.
        grader: Full name of the grader.
        score: Other settings of the reward model.
        changes: Other settings of the samples.
    """
    unique_problems = {problem.id: problem for problem in problems}
    write_parquet(problems_table(unique_problems.values()), root / "problems/0.parquet")
    write_parquet(to_table("solutions", solutions), root / "solutions/0.parquet")
    counts = [len([s for s in solutions if s.problem_id == key]) for key in unique_problems]
    n = max(counts, default=1)
    engine = EngineRef(name="replay", dtype="auto")
    meaning = "probability" if is_probability else "log-ratio"
    scoring = ScoreSettings(
        prm=ModelRef(prm or "prm", "sha256:" + "b" * 64),
        engine=engine,
        prm_format=PrmFormatRef(name="made", digest="e" * 20, meaning=meaning) if prm else None,
    ).model_copy(update=dict(score))
    search = None
    if beam is not None:
        spec = BeamSpec(b1=beam[0], b2=beam[1])
        search = SearchSettings(sampler="beam", beam=spec, reward_model=scoring)
    settings = SampleSettings(
        model=MODEL,
        template=TEMPLATE,
        sampling=SamplingSpec(n=n, temperature=0.0 if n == 1 else 0.8),
        engine=engine,
        segmenter="auto@1",
        search=search,
    )
    source = ProblemSet(list(unique_problems.values()), [SourceRef("made", "1", "test")], [])
    records: list[AnyRecord] = [
        problem_record(source),
        SampleRecord(
            name=SAMPLE_STAGE,
            options=settings.model_copy(update=changes),
            counts=StageCounts(),
            cost=Cost(tokens=0, prm_calls=0, seconds=1.5),
        ),
        GradeRecord(
            name=GRADE_STAGE,
            options=GradeSettings(grader=grader, labels="outcome@1"),
            writes=["outcome"],
            counts=GradeCounts(),
        ),
    ]
    if prm is not None:
        records.append(
            ScoreRecord(
                name=SCORE_STAGE,
                options=scoring,
                writes=["step_rewards"],
                counts=ScoreCounts(),
            )
        )
    files = [
        FileEntry.from_file(root, "problems/0.parquet", len(unique_problems)),
        FileEntry.from_file(root, "solutions/0.parquet", len(solutions)),
    ]
    manifest = make_manifest(records, files)
    (root / "manifest.json").write_text(manifest.to_json(), encoding="utf-8")
    return root


# Runs


def make_places(tasks: Mapping[str, int]) -> list[BenchmarkRow]:
    """Return places of problems: MATH with subjects and levels, GSM-IC with clusters."""
    benchmark_rows = []
    for task, count in tasks.items():
        for number in range(count):
            groups = {}
            if task == "math":
                subject = ("Algebra", "Geometry")[number % 2]
                groups = {"subject": subject, "level": str(1 + number % 5)}
            cluster = f"base {number % 7}" if task.startswith("gsm_ic") else None
            entry = BenchmarkRow(task, number, groups, cluster)
            benchmark_rows.append(entry)
    return benchmark_rows


def make_entry(name: str, problems: int, **changes: Any) -> BenchmarkEntry:
    """Return a benchmark of ``run.json`` with three problems more than the run.

    Args:
        name: Name of the benchmark.
        problems: Number of problems of the run.
        changes: Other fields of the entry and of its task.
    """
    task_names = {field.name for field in fields(TaskDescription)}
    task: dict[str, Any] = {
        "name": name,
        "title": name.upper(),
        "count": problems + 3,
        "tolerance": 0.01 if name == "ocw" else None,
    }
    values: dict[str, Any] = {
        "problems": problems,
        "digest": builtin_tasks()[name].digest if name in builtin_tasks() else "d" * 20,
        "selected": "e" * 20,
        "source": SourceRef(name, "c" * 40, "test"),
    }
    for key, value in changes.items():
        (task if key in task_names else values)[key] = value
    return BenchmarkEntry(task=TaskDescription(**task), **values)


def write_run(
    out: Path,
    tasks: Mapping[str, int],
    *,
    chance: float = 0.6,
    seed: int = 0,
    text: str = "",
    samples: int = 4,
    rewards: Sequence[float] | None = None,
    decoders: Sequence[str] = DECODERS,
    entries: Mapping[str, BenchmarkEntry] | None = None,
    **changes: Any,
) -> Path:
    """Write a run with random solutions.

    Args:
        out: Folder of the run.
        tasks: Number of problems of each benchmark.
        chance: Probability that a solution is correct.
        seed: Seed of the random numbers.
        text: Text in front of each question and each second step.
        samples: Number of samples per problem.
        rewards: Step rewards of all samples; None for random ones that tell correct samples.
        decoders: Result names.
        entries: Benchmarks of ``run.json`` in place of the default ones.
        changes: Values of the spec of all parts.
    """
    rng = random.Random(seed)
    problems = [
        make_problem(number, [entry], text, source=entry.name)
        for number, entry in enumerate(make_places(tasks))
    ]
    parts = list(dict.fromkeys("samples" if "@" in n and "sbs" not in n else n for n in decoders))
    for part in parts:
        n = samples if part == "samples" else 1
        solutions = []
        for problem in problems:
            for index in range(n):
                solutions.append(_random_solution(problem, index, part, rng, chance, text, rewards))
        has_rewards = part == "samples" and any("bon" in name for name in decoders)
        if not has_rewards:
            solutions = [replace(solution, step_rewards=None) for solution in solutions]
        write_dataset(
            out / part,
            problems,
            solutions,
            prm="prm" if has_rewards else None,
            is_probability=rewards is None,
            beam=(2, 1) if part.startswith("sbs") else None,
            **changes,
        )
    default_entries = {name: make_entry(name, count) for name, count in tasks.items()}
    record = RunRecord(
        decoders=list(decoders), parts=parts, benchmarks={**default_entries, **(entries or {})}
    )
    write_run_record(out, record)
    return out


def _random_solution(
    problem: Problem,
    index: int,
    part: str,
    rng: random.Random,
    chance: float,
    text: str,
    rewards: Sequence[float] | None,
) -> Solution:
    """Return a solution that is correct with a probability of ``chance``."""
    is_correct = rng.random() < chance
    centre = 0.75 if is_correct else 0.35
    answer = problem.answer if is_correct else "7"
    is_ocw = problem.source == "ocw"
    return make_solution(
        problem,
        index,
        "correct" if is_correct else "incorrect",
        answer=answer,
        salt=part,
        completions=["We add.\n", f"{text}The answer is {answer}."],
        n_tokens=20 + rng.randrange(30),
        step_rewards=rewards or [min(1.0, max(0.0, rng.gauss(centre, 0.2))) for _ in range(2)],
        exactly_correct=is_correct and int(problem.answer) % 3 != 0 if is_ocw else None,
        search_cost={"discarded_tokens": 40, "prm_calls": 4} if part.startswith("sbs") else None,
    )


def load_pool(*paths: Path) -> Pool:
    """Return the datasets that are measured together."""
    [pool] = load_pools(paths)
    return pool


def measure_paths(*paths: Path, **spec: Any) -> Results:
    """Return the results of datasets that are measured together."""
    pool = load_pool(*paths)
    measure_spec = MeasureSpec(**spec)
    return measure(pool, measure_spec, decode_pool(pool, measure_spec))


def report_run(run: Path, *, spec: MeasureSpec | None = None, **options: Any) -> Results:
    """Write the reports of a run, and return its results."""
    spec = spec or MeasureSpec()
    pool = load_pool(run)
    decoded = decode_pool(pool, spec)
    results = measure(pool, spec, decoded)
    write_report(run, pool, results, decoded, **options)
    return results
