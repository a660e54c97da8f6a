"""A judge decides the undecided answers of benchmark runs, while they run and when graded again."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fsdpo_bench.cli.app import app
from fsdpo_bench.decode.plan import DecodingPlan
from fsdpo_bench.report.problem_list import explain_verdict
from fsdpo_bench.report.render import write_report
from fsdpo_bench.results.numbers import decoder_accuracy
from fsdpo_bench.results.outcomes import read_problem_results
from fsdpo_bench.runs.records import read_records
from fsdpo_bench.runs.regrade import regrade_run
from fsdpo_bench.runs.run import BenchJob, RunSpec, decode_tasks
from fsdpo_bench.tasks.load import LoadedTask, load_task
from fsdpo_bench.tasks.table import get_task
from hashes import hashes
from openai_server import Script, serving
from paused_commands import kill_when_written
from typer.testing import CliRunner

from fsdpo_data.core.errors import InputError, RunMismatchError, UnavailableError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.engines.answer_judge import AnswerJudge
from fsdpo_data.engines.answer_judge_formats import get_answer_judge_format
from fsdpo_data.models.prompts import RECORDED_TEMPLATE, get_template

RULE = "judge/reads@0"
#: Responses of the policy; the grader leaves all but the first two undecided.
RESPONSES = (
    "The answer is 42.",
    "The answer is 41.",
    "So $\\boxed{\\text{at least } 42}$.",
    "So $\\boxed{\\text{at most } 42}$.",
    "So $\\boxed{42 \\text{ with remainder } 2}$.",
)


class Policy:
    """A policy whose sample i of problem p is response p + i."""

    model = ModelRef("policy", "0")

    def __init__(self) -> None:
        self.is_open = False

    def load(self) -> Policy:
        self.is_open = True
        return self

    def sample(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        return [
            [self._complete(int(re.findall(r"number (\d)", p)[0]) + i) for i in range(spec.n)]
            for p in prompts
        ]

    def _complete(self, index: int) -> Completion:
        return Completion(RESPONSES[index % len(RESPONSES)], "stop", 5, 0.25)

    def close(self) -> None:
        self.is_open = False


class FakeJudge:
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

    def sample(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        assert self.policy is None or not self.policy.is_open
        if self.remaining_calls == 0:
            raise UnavailableError("the engine died")
        self.remaining_calls = None if self.remaining_calls is None else self.remaining_calls - 1
        self.prompts += prompts
        return [[Completion(verdict(prompt), "stop", 7, 0.5)] for prompt in prompts]


def verdict(prompt: str) -> str:
    answer = re.findall(r"as a program read it ===\n(.*)", prompt)[0]
    for phrase, word in (("at least", "correct"), ("at most", "incorrect")):
        if phrase in answer:
            return f"<verdict>{word}</verdict>"
    return "I cannot say"


def answer_judge(judge: FakeJudge) -> AnswerJudge:
    return AnswerJudge(
        model=judge.model,
        judge_format=get_answer_judge_format("chat"),
        template=RECORDED_TEMPLATE,
        sampling=SamplingSpec(n=1, temperature=0.0),
        engine={"name": "replay", "dtype": "auto"},
        make_sampler=lambda: judge,
        batch_size=2,
    )


@pytest.fixture
def task(tmp_path: Path) -> LoadedTask:
    rows = [{"question": f"What is number {i}?", "answer": "42"} for i in range(5)]
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_task(get_task(str(file)), None)


def run(
    out: Path, task: LoadedTask, judge: FakeJudge | None = None, *, resume: bool = False
) -> Path:
    plan = DecodingPlan(("greedy", "sc"), (3,), "min")
    spec = RunSpec(
        model=Policy.model,
        template=get_template("problem"),
        sampling=SamplingSpec(n=3),
        engine={"name": "replay", "dtype": "auto"},
        segmenter="newline@1",
        plan=plan,
        answer_judge=None if judge is None else answer_judge(judge),
    )
    policy = Policy()
    if judge is not None:
        judge.policy = policy
    job = BenchJob(spec, [task], policy.load, lambda: pytest.fail("no scorer"), 2, workers=1)
    decode_tasks(job, out, resume=resume, progress=LineProgress())
    return out


def statuses(out: Path, decoder: str = "greedy") -> list[tuple[str, bool]]:
    return [
        (record.decoded[decoder].status, record.decoded[decoder].has_judge_rule)
        for record in read_records(out)
    ]


def test_a_judge_decides_undecided_answers_of_samples_and_decoders(
    tmp_path: Path, task: LoadedTask
) -> None:
    plain = run(tmp_path / "plain", task)
    judge_run = run(tmp_path / "judged", task, FakeJudge())
    assert statuses(plain) == [
        ("correct", False),
        ("incorrect", False),
        *[("undecided", False)] * 3,
    ]
    assert statuses(judge_run) == [
        ("correct", False),
        ("incorrect", False),
        ("correct", True),
        ("incorrect", True),
        ("undecided", False),
    ]
    for old, new in zip(read_records(plain), read_records(judge_run), strict=True):
        for old_sample, new_sample in zip(old.samples, new.samples, strict=True):
            assert new_sample.to_solution() == old_sample.to_solution()
            assert new_sample.answer == old_sample.answer
            if old_sample.status != "undecided":
                assert new_sample == old_sample
        chosen = new.decoded["sc@3"]
        assert chosen.sample == old.decoded["sc@3"].sample, "a judge changes no choice"
        assert chosen.status == new.samples[chosen.sample or 0].status
    assert "answer_judge" not in json.loads((plain / "config.json").read_text())


def test_results_show_the_accuracy_with_and_without_the_judge(
    tmp_path: Path, task: LoadedTask
) -> None:
    plain = write_report(run(tmp_path / "plain", task)).tasks["mine"].decoders["greedy"]
    assert plain.upper_bound is not None and plain.without_judge is None
    out = run(tmp_path / "judged", task, FakeJudge())
    results = write_report(out)
    judge_run = results.tasks["mine"].decoders["greedy"]
    assert (judge_run.correct, judge_run.outcomes["undecided"]) == (2, 1)
    assert judge_run.upper_bound is not None and judge_run.upper_bound.correct == 3
    assert (
        judge_run.without_judge is not None
        and judge_run.without_judge.correct == plain.correct == 1
    )
    assert judge_run.upper_bound_without_judge == plain.upper_bound
    text = json.loads((out / "results.json").read_text())
    # 5 greedy answers and 15 samples: each response occurs 1 + 3 times.
    assert text["answer_judge"] == {
        "answers": 12,
        "correct": 4,
        "incorrect": 4,
        "undecided": 4,
        "unreadable": 4,
        "replies": count_replies(out),
        "tokens": 7 * count_replies(out),
        "seconds": 0.5 * count_replies(out),
    }
    chat = get_answer_judge_format("chat")
    entry = text["run"]["answer_judge"]
    assert entry["model"] == {"name": "reads", "revision": "0"}
    assert entry["format"]["prompt_sha256"] == chat.prompt_digest
    for name in ("report.md", "report.html"):
        assert "without the judge" in (out / name).read_text()
    assert "A language model decided 8 of the 12 answers" in (out / "README.md").read_text()


def count_replies(out: Path) -> int:
    return len((out / "answer_judge/completions.jsonl").read_text().splitlines())


@pytest.mark.parametrize("calls", [0, 1, 3])
def test_a_judge_that_dies_resumes_to_the_same_bytes(
    tmp_path: Path, task: LoadedTask, calls: int
) -> None:
    complete = run(tmp_path / "whole", task, FakeJudge())
    out = tmp_path / "out"
    with pytest.raises(UnavailableError):
        run(out, task, FakeJudge(dies_after=calls))
    with pytest.raises(RunMismatchError):
        run(out, task, FakeJudge())
    second = FakeJudge()
    run(out, task, second, resume=True)
    assert hashes(out) == hashes(complete)
    assert len(second.prompts) == count_replies(out) - 2 * calls
    third = FakeJudge(dies_after=0)
    run(out, task, third, resume=True)
    assert hashes(out) == hashes(complete), "a complete run stays as it is"


def test_a_run_that_stops_between_two_benchmarks_counts_all_decisions(
    tmp_path: Path, task: LoadedTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = run(tmp_path / "whole", task, FakeJudge())
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(
            "fsdpo_bench.runs.answer_judge.write_text",
            lambda *_: (_ for _ in ()).throw(KeyboardInterrupt),
        )
        run(tmp_path / "out", task, FakeJudge())
    assert statuses(tmp_path / "out") == statuses(complete)
    run(tmp_path / "out", task, FakeJudge(dies_after=0), resume=True)
    assert hashes(tmp_path / "out") == hashes(complete)


def regrade(source: Path, out: Path, judge: FakeJudge | None = None) -> Path:
    chosen = None if judge is None else answer_judge(judge)
    regrade_run(source, out, (), None, 1, LineProgress(), answer_judge=chosen)
    return out


def test_a_finished_run_is_graded_with_and_without_a_judge(
    tmp_path: Path, task: LoadedTask
) -> None:
    plain = run(tmp_path / "plain", task)
    judge_run = run(tmp_path / "judged", task, FakeJudge())
    again = regrade(plain, tmp_path / "again", FakeJudge())
    assert hashes(again / "records") == hashes(judge_run / "records")
    back = regrade(judge_run, tmp_path / "back")
    assert hashes(back / "records") == hashes(plain / "records")
    assert "answer_judge" not in json.loads((back / "config.json").read_text())
    assert not (back / "answer_judge").exists()


def test_strict_accuracy_follows_the_judge(tmp_path: Path, task: LoadedTask) -> None:
    out = run(tmp_path / "judged", task, FakeJudge())
    results = read_problem_results(read_records(out))["mine"]
    strict = decoder_accuracy(results, "greedy", strict=True)
    assert strict == decoder_accuracy(results, "greedy")


def test_damaged_counts_are_reported(tmp_path: Path, task: LoadedTask) -> None:
    out = run(tmp_path / "judged", task, FakeJudge())
    (out / "answer_judge" / "stats.json").write_text('{"answers": "many"}')
    with pytest.raises(InputError, match="stats"):
        write_report(out)


def test_the_page_explains_the_decision_of_a_judge() -> None:
    text = explain_verdict("correct", RULE)
    assert text == "A part was not read, so the judge reads@0 decided. They agree."


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def test_a_served_judge_on_the_command_line(tmp_path: Path, task: LoadedTask) -> None:
    plain = run(tmp_path / "plain", task)
    write_report(plain)
    responses = tmp_path / "responses.jsonl"
    responses.write_text(
        "".join(
            json.dumps({"question": f"What is number {i}?", "answer": "42", "response": text})
            + "\n"
            for i, text in enumerate(RESPONSES)
        )
    )
    script = Script(reply=lambda body, _: verdict(body["messages"][0]["content"]))
    with serving(script) as url:
        served = ("--judge", "tiny", "--judge-engine", "openai", "--judge-base-url", url)
        chat = ("--judge-api", "chat")
        graded = invoke("grade", str(plain), *served, *chat, "--out", str(tmp_path / "graded"))
        replayed = invoke(
            *("run", "--engine", "replay", "--replay", str(responses), *served, *chat),
            *("--out", str(tmp_path / "replayed")),
        )
    assert graded.exit_code == 0, graded.output
    assert replayed.exit_code == 0, replayed.output
    for result in (graded, replayed):
        assert "without the judge" in result.output
    assert "asked about 3 undecided answers: 1 correct, 1 incorrect" in replayed.output
    config = json.loads((tmp_path / "replayed" / "config.json").read_text())
    assert config["answer_judge"]["model"] == {"name": "tiny", "revision": "served"}
    assert config["answer_judge"]["format"]["name"] == "chat"
    assert url not in json.dumps(config)


@pytest.mark.proof
def test_a_judge_gets_no_question_twice_after_a_kill(tmp_path: Path, task: LoadedTask) -> None:
    """Kill the command with SIGKILL between two saves of replies, and resume."""
    plain = run(tmp_path / "plain", task)
    prompts: list[str] = []

    def reply(body: dict[str, Any], _: int) -> str:
        """Answer slowly, so that the replies are saved in several parts."""
        prompt = body["messages"][0]["content"]
        prompts.append(prompt)
        time.sleep(0.3)
        return verdict(prompt)

    out = tmp_path / "out"
    replies = out / "answer_judge" / "completions.jsonl"
    with serving(Script(reply=reply)) as url:
        line = ["grade", str(plain), "--workers", "1", "--judge", "tiny", "--judge-api", "chat"]
        line += ["--judge-engine", "openai", "--judge-base-url", url, "--judge-concurrency", "1"]
        # The records of the five problems are written at once, so only the replies have a pause.
        kill_when_written([*line, "--out", str(out)], replies, min_records=6, pause_at=6)
        saved = {json.loads(text)["prompt"] for text in replies.read_text().splitlines()}
        assert 6 <= len(saved) < 9
        prompts.clear()
        result = invoke(*line, "--resume", "--out", str(out))
        assert result.exit_code == 0, result.output
        assert len(prompts) == 9 - len(saved)
        assert saved.isdisjoint(prompts)
        result = invoke(*line, "--out", str(tmp_path / "whole"))
    assert result.exit_code == 0, result.output
    assert hashes(out / "records") == hashes(tmp_path / "whole" / "records")


def test_a_judge_needs_a_run(tmp_path: Path) -> None:
    file = tmp_path / "responses.jsonl"
    file.write_text('{"answer": "42", "response": "42"}\n')
    result = invoke("grade", str(file), "--judge", "tiny")
    assert result.exit_code == 1 and "fsdpo-bench run --engine replay" in str(result.exception)
