"""A judge decides the undecided answers of all parts of a run."""

from __future__ import annotations

import gc
import json
import re
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes import TextSampler
from fsdpo_bench import benchmark_run, run_shards
from fsdpo_bench.cli.app import app
from fsdpo_bench.run_folder import is_run, read_run_record
from fsdpo_bench.run_options import RunOptions
from fsdpo_bench.tasks.load import LoadedTask, load_task
from fsdpo_bench.tasks.table import get_task
from helpers import continuation_settings, statistics_of
from made_runs import make, prepare, solutions, table_digests, written
from openai_server import Script, serving
from typer.testing import CliRunner

from fsdpo_data.core.errors import RunMismatchError, UnavailableError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.stage_records import GradeRecord
from fsdpo_data.dataset.validate import validate
from fsdpo_data.engines.answer_judge_formats import ANSWER_JUDGE_FORMATS
from fsdpo_data.models.prompts import RECORDED_TEMPLATE, get_template
from fsdpo_data.stages.continuations import ContinuationSampler
from fsdpo_data.stages.judge_answers import AnswerJudge
from fsdpo_data.stages.merge import MergeOptions

RULE = "judge/reads@0/boxed"
#: Responses of the policy; the grader leaves all but the first two undecided.
RESPONSES = (
    "The answer is 42.",
    "The answer is 41.",
    "So $\\boxed{\\text{at least } 42}$.",
    "So $\\boxed{\\text{at most } 42}$.",
    "So $\\boxed{42 \\text{ with remainder } 2}$.",
)
PARTS = ("greedy", "samples")


class Policy(TextSampler):
    """A policy whose sample i of problem p is response p + i."""

    model = ModelRef("policy", "0")

    def __init__(self) -> None:
        self.is_open = False

    def load(self) -> Policy:
        self.is_open = True
        return self

    def complete_texts(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        return [
            [self._complete(int(re.findall(r"number (\d)", p)[0]) + i) for i in range(spec.n)]
            for p in prompts
        ]

    def _complete(self, index: int) -> Completion:
        return Completion(RESPONSES[index % len(RESPONSES)], "stop", 5, 0.25)

    def close(self) -> None:
        self.is_open = False


class FakeJudge(TextSampler):
    """A judge that accepts "at least" and rejects "at most".

    Args:
        dies_after: Calls answered before the engine dies; None for no limit.
        policy: The policy, which must not be loaded while the judge runs; None for none.
    """

    model = ModelRef("reads", "0")

    def __init__(self, dies_after: int | None = None, policy: Policy | None = None) -> None:
        self.prompts: list[str] = []
        self.remaining_calls = dies_after
        self.policy = policy
        self.loads = 0
        self.is_open = False

    def load(self) -> FakeJudge:
        self.loads += 1
        self.is_open = True
        return self

    def complete_texts(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        assert self.is_open and (self.policy is None or not self.policy.is_open)
        if self.remaining_calls == 0:
            raise UnavailableError("the engine died")
        self.remaining_calls = None if self.remaining_calls is None else self.remaining_calls - 1
        self.prompts += prompts
        return [[Completion(verdict(prompt), "stop", 7, 0.5)] for prompt in prompts]

    def close(self) -> None:
        self.is_open = False


def verdict(prompt: str) -> str:
    answer = re.findall(r"as a program read it ===\n(.*)", prompt)[0]
    for phrase, word in (("at least", "correct"), ("at most", "incorrect")):
        if phrase in answer:
            return f"<verdict>{word}</verdict>"
    return "I cannot say"


def answer_judge(judge: FakeJudge) -> AnswerJudge:
    settings = continuation_settings(judge.model, SamplingSpec(n=1, temperature=0.0))
    return AnswerJudge(
        judge_format=ANSWER_JUDGE_FORMATS.find("chat"),
        template=RECORDED_TEMPLATE,
        reply_sampler=ContinuationSampler(settings, judge.load, batch_size=2),
    )


ROWS = [{"question": f"What is number {i}?", "answer": "42"} for i in range(5)]


@pytest.fixture
def task(tmp_path: Path) -> LoadedTask:
    return load_task(get_task(str(written(tmp_path / "mine.jsonl", ROWS))))


def run(
    out: Path,
    task: LoadedTask,
    judge: FakeJudge | None = None,
    *,
    policy: Policy | None = None,
    resume: bool = False,
    **options: Any,
) -> Path:
    policy = policy or Policy()
    if judge is not None:
        judge.policy = policy
    return make(
        out,
        decoder="greedy,sc",
        k=(3,),
        tasks=[task],
        make_writer=policy.load,
        answer_judge=None if judge is None else answer_judge(judge),
        batch_size=2,
        resume=resume,
        **options,
    )


def outcomes(out: Path, part: str) -> list[tuple[str, str | None]]:
    """Return outcome and judge of all solutions; None where the grader decided."""
    rows = [row for rows in solutions(out, part).values() for row in rows]
    return [
        (row["outcome"], None if row["verdict_by"].startswith("math@") else row["verdict_by"])
        for row in rows
    ]


def test_a_judge_decides_the_undecided_answers_of_all_parts(
    tmp_path: Path, task: LoadedTask
) -> None:
    plain = run(tmp_path / "plain", task)
    judge = FakeJudge()
    judge_run = run(tmp_path / "judged", task, judge)
    undecided = ("undecided", None)
    assert outcomes(plain, "greedy") == [("correct", None), ("incorrect", None), *[undecided] * 3]
    assert outcomes(judge_run, "greedy") == [
        ("correct", None),
        ("incorrect", None),
        ("correct", RULE),
        ("incorrect", RULE),
        undecided,
    ]
    assert read_run_record(judge_run) == read_run_record(plain)
    for part in PARTS:
        validate(judge_run / part)
        for old, new in zip(outcomes(plain, part), outcomes(judge_run, part), strict=True):
            assert old == undecided or new == old
        assert outcomes(judge_run / "build", part) == outcomes(plain, part)
    assert judge.loads == 1 and not judge.is_open, "the judge is loaded once for all parts"
    stats = read_manifest(judge_run / "samples").get("grade", GradeRecord).counts.answer_judge
    assert stats is not None
    assert (stats.answers, stats.correct, stats.incorrect, stats.unreadable) == (9, 3, 3, 3)
    assert stats.replies == 9 and stats.tokens == 63
    statistics = statistics_of(judge_run / "samples")
    accuracy = statistics_of(plain / "samples").solutions.accuracy
    assert statistics.accuracy_without_judge == accuracy
    assert statistics.solutions.accuracy.n == accuracy.n > 0
    assert (statistics.solutions.accuracy.value or 0) > (accuracy.value or 0)


def test_a_policy_without_close_is_freed_before_the_judge_loads(
    tmp_path: Path, task: LoadedTask
) -> None:
    """Engines without processes of their own have no close method; their last reference goes."""

    class PlainPolicy(TextSampler):
        model = Policy.model
        complete_texts = Policy.complete_texts
        _complete = Policy._complete

    policies: list[weakref.ref[PlainPolicy]] = []

    def load_policy() -> PlainPolicy:
        policy = PlainPolicy()
        policies.append(weakref.ref(policy))
        return policy

    class LateJudge(FakeJudge):
        def load(self) -> FakeJudge:
            gc.collect()
            assert [policy() for policy in policies] == [None]
            return super().load()

    judge = LateJudge()
    make(
        tmp_path / "run",
        decoder="greedy,sc",
        k=(3,),
        tasks=[task],
        make_writer=load_policy,
        answer_judge=answer_judge(judge),
        batch_size=2,
    )
    assert judge.loads == 1


def test_a_judge_decides_the_answers_of_merged_shards(
    tmp_path: Path, task: LoadedTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = run(tmp_path / "complete", task, FakeJudge())
    judge = FakeJudge()
    loaders = [Policy().load, Policy().load, lambda: pytest.fail("the merge loads a policy")]
    settings: dict[str, Any] = {"tasks": [task], "answer_judge": answer_judge(judge)}
    runs = [
        prepare(decoder="greedy,sc", k=(3,), batch_size=2, make_writer=load, **settings)
        for load in loaders
    ]
    for module in (run_shards, benchmark_run):
        monkeypatch.setattr(module, "prepare_run", lambda options: runs.pop(0))
    shards = [tmp_path / f"shard-{index}" for index in (1, 2)]
    for index, shard in enumerate(shards, start=1):
        run_shards.run_shard(RunOptions(shard=f"{index}/2", out=shard), print)
    assert judge.loads == 0
    merge_options = MergeOptions(shards=shards, out=tmp_path / "merged")
    with run_shards.merged_shards(merge_options) as run_options:
        merged = benchmark_run.run_benchmarks(run_options)
    assert judge.loads == 1
    for part in PARTS:
        validate(merged / part)
        assert outcomes(merged, part) == outcomes(complete, part)


@pytest.mark.parametrize("calls", [0, 1, 3])
def test_a_judge_that_dies_resumes_to_the_same_bytes(
    tmp_path: Path, task: LoadedTask, calls: int
) -> None:
    complete_judge = FakeJudge()
    complete = run(tmp_path / "whole", task, complete_judge)
    out = tmp_path / "out"
    first = FakeJudge(dies_after=calls)
    with pytest.raises(UnavailableError):
        run(out, task, first)
    assert not is_run(out)
    with pytest.raises(RunMismatchError):
        run(out, task, FakeJudge())
    second = FakeJudge()
    run(out, task, second, resume=True)
    assert table_digests(out) == table_digests(complete)
    assert len(second.prompts) == len(complete_judge.prompts) - len(first.prompts)
    run(out, task, FakeJudge(dies_after=0), resume=True)
    assert table_digests(out) == table_digests(complete), "a complete run stays as it is"


def test_the_judge_decides_on_problems_that_failed_before(tmp_path: Path, task: LoadedTask) -> None:
    class FussyPolicy(Policy):
        refuses = True

        def complete_texts(
            self, prompts: Sequence[str], spec: SamplingSpec
        ) -> list[list[Completion]]:
            if self.refuses and any("number 2" in prompt for prompt in prompts):
                raise ValueError("too long")
            return super().complete_texts(prompts, spec)

    policy = FussyPolicy()
    out = run(tmp_path / "run", task, FakeJudge(), policy=policy, max_failed="50%")
    assert len(outcomes(out, "greedy")) == 4
    policy.refuses = False
    run(out, task, FakeJudge(), policy=policy, max_failed="50%", resume=True)
    complete = run(tmp_path / "whole", task, FakeJudge())
    assert [outcomes(out, part) for part in PARTS] == [outcomes(complete, part) for part in PARTS]
    for part in PARTS:
        assert read_manifest(out / part).failed == {}
        validate(out / part)


def test_a_served_judge_on_the_command_line(tmp_path: Path) -> None:
    task = written(tmp_path / "mine.jsonl", ROWS)
    recorded = [
        {
            "prompt": get_template("problem").render(row["question"]),
            "completions": [{"text": text, "finish_reason": "stop"}],
        }
        for row, text in zip(ROWS, RESPONSES, strict=True)
    ]
    responses = written(tmp_path / "responses.jsonl", recorded)
    script = Script(reply=lambda body, _: verdict(body["messages"][0]["content"]))
    out = tmp_path / "run"
    with serving(script) as url:
        line = ["run", "--task", task, "--engine", "replay", "--replay", responses]
        judge = tmp_path / "judge.toml"
        judge.write_text(f'model = "tiny"\nengine = "openai"\nbase_url = "{url}"\napi = "chat"\n')
        line += ["--template", "problem", "--judge", judge, "--out", out]
        result = CliRunner().invoke(app, [str(word) for word in line])
    assert result.exit_code == 0, result.output
    assert [outcome for outcome, _ in outcomes(out, "greedy")] == [
        *("correct", "incorrect", "correct", "incorrect", "undecided")
    ]
    config = json.loads((out / "config.json").read_text())
    assert config["answer_judge"]["model"] == {"name": "tiny", "revision": "served"}
    assert config["answer_judge"]["format"] == "chat"
    assert url not in json.dumps(config)
