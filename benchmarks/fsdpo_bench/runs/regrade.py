"""Grade the solutions of a finished run again, and apply its decoders, without the model."""

import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from fsdpo_bench.decode.decoder import DecoderSetup
from fsdpo_bench.decode.decoders import DECODERS, parse_result_name
from fsdpo_bench.decode.plan import DecodingPlan
from fsdpo_bench.decode.records import DecodedProblem, ProblemRecord
from fsdpo_bench.runs.answer_judge import judge_run
from fsdpo_bench.runs.grade import grade_problems
from fsdpo_bench.runs.records import (
    RunConfig,
    append_records,
    open_records,
    read_config,
    read_records,
    record_key,
)
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.jsonl_log import encode_line
from fsdpo_data.core.progress import Progress
from fsdpo_data.dataset.run import RUN_KEYS, lock_run_directory
from fsdpo_data.engines.answer_judge import AnswerJudge
from fsdpo_data.steps.rewards import DEFAULT_AGGREGATE, check_aggregate

CHUNK_PROBLEMS = 256  #: Number of problems to grade at a time.


def regrade_run(
    source: Path,
    out: Path,
    ks: Sequence[int],
    aggregate: str | None,
    workers: int | None,
    progress: Progress,
    *,
    resume: bool = False,
    answer_judge: AnswerJudge | None = None,
) -> None:
    """Write a new run with the solutions of a run, and with verdicts of the current grader.

    Args:
        source: The run to grade again.
        out: Directory of the new run.
        ks: Numbers of samples to choose from. The default is the numbers of the old run.
        aggregate: Name of the aggregate of step rewards. The default is the old run's aggregate.
        workers: Number of grading processes.
        progress: Progress bar.
        resume: Whether to continue an interrupted run in ``out``.
        answer_judge: Decides the answers that the grader leaves undecided; None without a judge.

    Raises:
        InputError: if ``source`` is not a run, or has fewer samples than a K.
        RunMismatchError: if ``out`` contains another run.
    """
    old_config = read_config(source)
    old_setups = _parse_setups(source, old_config.decoders)
    plan = _make_plan(source, old_setups, ks, aggregate)
    config = _make_config(old_config, old_setups, plan, answer_judge)
    run_values = {"prm_format_evidence": old_config.prm_format_evidence}
    with lock_run_directory(out, config, resume=resume, run_values=run_values):
        for name, entry in old_config.tasks.items():
            with open_records(out, name) as log:
                finished_keys = log.line_spans
                progress.phase(name, entry.problems, done=len(finished_keys))
                missing_records = (
                    record
                    for record in read_records(source, name)
                    if record_key(record.problem_id, record.row) not in finished_keys
                )
                while chunk := list(islice(missing_records, CHUNK_PROBLEMS)):
                    records = grade_problems(
                        [_decoded_problem(record, plan, config["decoders"]) for record in chunk],
                        setups=plan.setups,
                        result_names=config["decoders"],
                        workers=workers,
                    )
                    append_records(log, records)
                    progress.advance(len(chunk))
        if answer_judge is not None:
            judge_run(answer_judge, out, old_config.tasks, progress)


def _decoded_problem(
    record: ProblemRecord, plan: DecodingPlan, result_names: Sequence[str]
) -> DecodedProblem:
    """Return the solutions of a record.

    Raises:
        InputError: if the record lacks solutions or costs of a result.
    """
    own_names = set(result_names) - set(plan.result_names)
    has_own_solutions = own_names == record.own_solutions.keys()
    if (
        not has_own_solutions
        or not own_names <= record.cost.keys()
        or len(record.samples) < plan.n_samples
    ):
        raise InputError(
            f"problem {record.problem_id} of {record.task} lacks solutions or costs that "
            "the config of the run lists. Expected a record that `fsdpo-bench run` wrote."
        )
    return DecodedProblem.from_record(record)


def _parse_setups(source: Path, names: Sequence[str]) -> list[DecoderSetup]:
    """Return the decoders of a run with their parameters.

    Raises:
        InputError: if a decoder is unknown.
    """
    setups = []
    for name in names:
        setup = parse_result_name(name)
        if setup is None:
            raise InputError(
                f"{source} contains a result of an unknown decoder, so it cannot be decoded again. "
                f"Known decoders are {', '.join(DECODERS)}. {DECODERS.source_of_names}",
                field="decoder",
                value=name,
            )
        setups.append(setup)
    return setups


def _make_plan(
    source: Path, old_setups: Sequence[DecoderSetup], ks: Sequence[int], aggregate: str | None
) -> DecodingPlan:
    """Return the sample decoders of the old run, with new values of K and the aggregate."""
    setups = [setup for setup in old_setups if setup.decoder.choose is not None]
    old_ks = [setup.k for setup in setups]
    n_samples = max(old_ks, default=0)
    if ks and not setups:
        raise InputError(
            f"{source} contains no samples to choose from. Remove `k`.", field="k", value=ks[0]
        )
    for k in ks:
        if not 1 <= k <= n_samples:
            raise InputError(
                f"{source} contains {n_samples} samples of each problem. Use `k={n_samples}` or "
                "less, or run the benchmark again with more samples.",
                field="k",
                value=k,
            )
    old_aggregates = [setup.aggregate for setup in setups if setup.aggregate]
    old_aggregate = old_aggregates[0] if old_aggregates else DEFAULT_AGGREGATE
    return DecodingPlan(
        decoders=tuple(dict.fromkeys(setup.decoder.name for setup in setups)),
        ks=tuple(sorted(set(ks or old_ks))),
        aggregate=check_aggregate(aggregate or old_aggregate),
    )


def _make_config(
    old_config: RunConfig,
    old_setups: Sequence[DecoderSetup],
    plan: DecodingPlan,
    answer_judge: AnswerJudge | None,
) -> dict[str, Any]:
    """Return the config of the new run: the grader, the decoders, the judge, the old digest."""
    own_setups = [setup for setup in old_setups if setup.decoder.choose is None]
    ranks = {name: rank for rank, name in enumerate(DECODERS)}
    setups = sorted([*plan.setups, *own_setups], key=lambda setup: ranks[setup.decoder.name])
    # The round trip through JSON removes lone surrogates.
    config: dict[str, Any] = json.loads(encode_line(old_config.to_json()))
    for key in (*RUN_KEYS, "answer_judge"):
        config.pop(key, None)
    if answer_judge is not None:
        config["answer_judge"] = answer_judge.settings.to_dict()
    return config | {
        "grader": MathGrader().version,
        "decoders": [setup.name for setup in setups],
        "regraded_from": old_config.config_digest,
    }
