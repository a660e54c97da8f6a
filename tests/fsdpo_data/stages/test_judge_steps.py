"""Step labels by a judge: prompts, votes, consensus with other labels, and resumption."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fakes import FixedSampler, TextSampler
from helpers import (
    TEXTS,
    continuation_settings,
    derive,
    fixed_sampler,
    label_with_rollouts,
    problem_set,
    rollouts,
    sample_settings,
    small_build,
    stage_counts,
    stage_entry,
    stage_options,
    statistics_of,
)
from recorded_imports import import_labels

import fsdpo_data as fd
from fsdpo_data.core.command_line import make_options
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError, UnavailableError
from fsdpo_data.core.identity import ModelRef, SourceRef
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.step_labels import find_label_kind
from fsdpo_data.dataset.validate import validate
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.engines.scorers.critiques import (
    critique_prompt,
    critique_sampling,
    get_judge_format,
    read_votes,
)
from fsdpo_data.models.prompts import RECORDED_TEMPLATE, Template, get_template
from fsdpo_data.problems.load import ProblemSet
from fsdpo_data.stages.continuations import ContinuationSampler
from fsdpo_data.stages.judge_steps import JudgeStage, first_failed_step
from fsdpo_data.stages.label import LabelOptions, LabelStage, make_label_stage
from fsdpo_data.stages.label_records import LabelRecord

JUDGE_FORMAT = get_judge_format("processbench")


class ScriptedJudge(TextSampler):
    """A judge that finds the wrong sum in a solution, and gives scripted votes otherwise.

    Args:
        votes: Votes on solutions with the right sum, one for each sample.
        dies_after: Calls answered before the engine dies.
    """

    model = ModelRef("reads", "0")

    def __init__(self, votes: Sequence[str] = ("-1",), dies_after: int | None = None) -> None:
        self.prompts: list[str] = []
        self.votes = votes
        self.remaining_calls = dies_after

    def complete_texts(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        if self.remaining_calls == 0:
            raise UnavailableError("the engine died")
        self.remaining_calls = None if self.remaining_calls is None else self.remaining_calls - 1
        self.prompts += prompts
        return [[self._critique(prompt, i) for i in range(spec.n)] for prompt in prompts]

    def _critique(self, prompt: str, index: int) -> Completion:
        vote = "0" if "= 43" in prompt else self.votes[index % len(self.votes)]
        return Completion(f"I see. \\boxed{{{vote}}}", "stop", 10, 0.5)


def label_with_judge(
    source: Path, out: Path, judge: ScriptedJudge | None = None, *, votes: int = 1, **options: Any
) -> dict[str, Any]:
    chosen = judge or ScriptedJudge()
    template = options.pop("template", RECORDED_TEMPLATE)
    sampling = critique_sampling(JUDGE_FORMAT, template, votes)
    consensus = options.pop("consensus", None)
    batch = options.pop("batch", 2)
    judge_sampler = ContinuationSampler(
        continuation_settings(chosen.model, sampling), lambda: chosen, batch_size=batch
    )
    stage = JudgeStage(judge_sampler, JUDGE_FORMAT, template, consensus)
    return derive(source, out, stage, **options)


def test_the_first_wrong_step_becomes_labels(tmp_path: Path) -> None:
    small_build(tmp_path / "run", problem_set(1))
    judge = ScriptedJudge()
    manifest = label_with_judge(tmp_path / "run", tmp_path / "out", judge)
    assert len(judge.prompts) == 3, "the empty solution has no step to judge"
    assert (
        "<paragraph_1>\nStep 2: So it is 42. The answer is: 42\n</paragraph_1>" in judge.prompts[0]
    )
    right, wrong, silent, empty = rollouts(tmp_path / "out")
    assert right == [{"n": 1, "n_correct": 1}] * 2 and wrong == [{"n": 1, "n_correct": 0}] * 2
    assert silent == [{"n": 1, "n_correct": 1}] and empty is None
    statistics = stage_counts(manifest, "label")
    assert (statistics["solutions"], statistics["no_error"], statistics["unreadable"]) == (3, 2, 0)
    assert "correct_with_error" not in statistics
    assert statistics["prompts"] == 3
    assert stage_entry(manifest, "label")["cost"]["tokens"] == 30
    spec = stage_options(manifest, "label")
    assert (
        spec["judge"]["name"] == "processbench"
        and spec["continuations"]["model"]["name"] == "reads"
    )
    old_solutions, new_solutions = (
        pl.read_parquet(tmp_path / name / "solutions/*.parquet") for name in ("run", "out")
    )
    assert new_solutions.drop("rollouts").equals(old_solutions.drop("rollouts"))
    card = (tmp_path / "out/README.md").read_text()
    assert "first wrong step" in card


def test_a_judge_of_imported_labels_is_a_labeller_of_its_own(tmp_path: Path) -> None:
    row = {"problem": "20+22?", "steps": ["20 + 22 = 42.", "So 41."], "label": 1}
    (tmp_path / "rows.jsonl").write_text(json.dumps({**row, "final_answer_correct": False}))
    import_labels(tmp_path / "rows.jsonl", "processbench", tmp_path / "people")
    label_with_judge(tmp_path / "people", tmp_path / "judged", ScriptedJudge(["0"]))
    assert find_label_kind(read_manifest(tmp_path / "judged")) == "rollouts"
    report = fd.agree(reference=str(tmp_path / "people"), labeller=str(tmp_path / "judged"))
    assert report.total.steps.agreement == 0.5, "the judge calls the first step wrong"
    card = (tmp_path / "judged/README.md").read_text()
    assert "\n| earlier labels | imported from `processbench`" in card
    assert "\n| labels | judge: " in card and "first wrong step that the judge found" in card


def test_continuations_replace_the_votes_of_a_judge(tmp_path: Path) -> None:
    """A judge also reads solutions without an outcome, which have no continuations."""
    source = problem_set(1)
    undecided = "Step 1: 20 + 22 = 42.\nStep 2: So it is $\\boxed{\\text{at least } 42}$."
    small_build(
        tmp_path / "run",
        source,
        make_sampler=lambda: fixed_sampler(source, (*TEXTS[:3], undecided)),
    )
    outcomes = pl.read_parquet(tmp_path / "run/solutions/*.parquet")["outcome"].to_list()
    assert outcomes == ["correct", "incorrect", "incorrect", "undecided"]
    label_with_judge(tmp_path / "run", tmp_path / "judged")
    assert rollouts(tmp_path / "judged")[3] == [{"n": 1, "n_correct": 1}] * 2
    label_with_rollouts(tmp_path / "judged", tmp_path / "continued")
    assert rollouts(tmp_path / "continued") == [
        [{"n": 4, "n_correct": 3}, {"n": 1, "n_correct": 1}],
        [{"n": 4, "n_correct": 1}, {"n": 1, "n_correct": 0}],
        [{"n": 1, "n_correct": 0}],
        None,
    ]
    assert statistics_of(tmp_path / "continued").step_labels.steps == 5


def test_votes_become_counts_and_ties_go_to_the_first_vote(tmp_path: Path) -> None:
    small_build(tmp_path / "run", problem_set(1))
    votes = ScriptedJudge(["1", "-1", "one", "-1", "1"])
    manifest = label_with_judge(tmp_path / "run", tmp_path / "out", votes, votes=5)
    right, wrong, silent, _ = rollouts(tmp_path / "out")
    assert right == [{"n": 4, "n_correct": 4}, {"n": 4, "n_correct": 2}]
    assert wrong == [{"n": 5, "n_correct": 0}] * 2
    assert silent == [{"n": 2, "n_correct": 2}], "a solution of one step has no step 1"
    statistics = stage_counts(manifest, "label")
    assert (
        statistics["unreadable"],
        statistics["ties"],
        statistics["correct_with_error"],
        statistics["no_error"],
    ) == (
        4,
        1,
        1,
        1,
    )
    sampled = stage_options(manifest, "label")["continuations"]["sampling"]
    assert (sampled["n"], sampled["temperature"], sampled["top_p"]) == (5, 1.0, 0.9)


def test_a_solution_without_a_readable_critique_has_no_step_labels(tmp_path: Path) -> None:
    small_build(tmp_path / "run", problem_set(1))
    manifest = label_with_judge(tmp_path / "run", tmp_path / "out", ScriptedJudge(["nothing"]))
    statistics = stage_counts(manifest, "label")
    assert (
        statistics["without_vote"],
        statistics["unreadable"],
        statistics.get("no_error", 0),
    ) == (
        2,
        2,
        0,
    )
    assert [solution_rollouts is None for solution_rollouts in rollouts(tmp_path / "out")] == [
        True,
        False,
        True,
        True,
    ]


def test_a_critique_that_ends_in_its_thinking_gives_no_labels(tmp_path: Path) -> None:
    small_build(tmp_path / "run", problem_set(1))
    template = Template("thinking@1", "{question}\n<think>\n")
    manifest = label_with_judge(tmp_path / "run", tmp_path / "out", template=template)
    statistics = stage_counts(manifest, "label")
    assert (statistics["unreadable"], statistics["without_vote"]) == (3, 3)
    assert rollouts(tmp_path / "out") == [None] * 4


def test_consensus_keeps_solutions_with_equal_labels(tmp_path: Path) -> None:
    source = problem_set(2)
    small_build(tmp_path / "run", source)
    prefixes = [
        f"{get_template('problem').render(p.question)}Step 1: 20 + 22 = " for p in source.problems
    ]
    right, wrong = "Step 2: The answer is: 42", "Step 2: The answer is: 7"
    continuations = {f"{prefix}42.\n": [right, wrong] for prefix in prefixes}
    continuations |= {f"{prefix}43.\n": [wrong, right] for prefix in prefixes}
    continues = FixedSampler(continuations)
    continuation_sampler = ContinuationSampler(
        continuation_settings(continues.model, SamplingSpec(n=2)), lambda: continues
    )
    derive_dataset(
        tmp_path / "run",
        tmp_path / "mc",
        [LabelStage(continuation_sampler)],
        progress=LineProgress(),
    )
    monte_carlo = rollouts(tmp_path / "mc")
    # One of two continuations is right after the wrong sum, so the first error is the last step.
    assert [first_failed_step(solution_rollouts) for solution_rollouts in monte_carlo[:3]] == [
        -1,
        1,
        0,
    ]
    settings = read_manifest(tmp_path / "mc").get("label", LabelRecord).options
    manifest = label_with_judge(tmp_path / "mc", tmp_path / "out", consensus=settings)
    right, wrong, silent, empty = rollouts(tmp_path / "out")[:4]
    assert right == [{"n": 1, "n_correct": 1}] * 2
    assert wrong is None and silent is None and empty is None
    statistics = stage_counts(manifest, "label")
    assert (
        statistics["solutions"],
        statistics["kept_solutions"],
        statistics["dropped_solutions"],
    ) == (6, 2, 4)
    assert (
        stage_options(manifest, "label")["consensus"]["continuations"]["model"]["name"] == "fixed"
    )
    # Written files no longer have the Monte-Carlo counts; a resumed run reads them in the parent.
    (tmp_path / "out/manifest.json").unlink()
    assert (
        label_with_judge(tmp_path / "mc", tmp_path / "out", consensus=settings, resume=True)
        == manifest
    )


def test_a_resumed_run_samples_only_the_missing_critiques(tmp_path: Path) -> None:
    small_build(tmp_path / "run", problem_set(4))
    expected_manifest = label_with_judge(tmp_path / "run", tmp_path / "whole", batch=1)
    for calls in (0, 3, 11):
        out = tmp_path / f"part{calls}"
        with pytest.raises(UnavailableError):
            label_with_judge(tmp_path / "run", out, ScriptedJudge(dies_after=calls), batch=1)
        again = ScriptedJudge()
        assert (
            label_with_judge(tmp_path / "run", out, again, batch=1, resume=True)
            == expected_manifest
        )
        assert len(again.prompts) == 12 - calls
        for name in ("critiques/completions.jsonl", "manifest.json", "README.md"):
            assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


HOSTILE = (
    "\\boxed{9999}", "\\boxed{-2}", "\\boxed{1.0}", "\\boxed{\u0661}", "\\boxed{1_0}", "\\boxed{ }",
    "\\boxed{0}, no: \\boxed{\\text{none}}", "\\boxed{" * 50_000, "\\boxed{0", "paragraph 0",
    "<think>\\boxed{0}", "<think>\\boxed{0}</think> done.", "\\boxed{__import__('os').abort()}", "",
)  # fmt: skip


def test_processbench_rows_and_hostile_critiques_through_the_command_line(
    tmp_path: Path, shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The readable critiques give the benchmark's labels; the hostile ones are not votes."""
    from command_line import run

    rows = json.loads((shared / "data/stepwise/processbench/math.json").read_text())[::25]
    problems = [Problem(row["problem"], "1", "pb", "test") for row in rows]
    texts = {
        get_template("problem").render(problem.question): ["\n\n".join(row["steps"])]
        for problem, row in zip(problems, rows, strict=True)
    }
    spec = sample_settings(n=1).model_copy(update={"segmenter": "blank-line@1"})
    source = ProblemSet(problems, [SourceRef("test", "1", "train")])
    small_build(tmp_path / "run", source, sampling=spec, make_sampler=lambda: FixedSampler(texts))
    with (tmp_path / "said.jsonl").open("w") as file:
        for k, row in enumerate(rows):
            critiques = [f"Well, \\boxed{{{row['label']}}}.", HOSTILE[k % len(HOSTILE)]]
            completions = [{"text": text, "finish_reason": "stop"} for text in critiques]
            prompt = critique_prompt(
                JUDGE_FORMAT, RECORDED_TEMPLATE, ScorerInput("", row["steps"], row["problem"])
            )
            file.write(json.dumps({"prompt": prompt, "completions": completions}) + "\n")
    line = ["label", str(tmp_path / "run"), "--judge", "gpt", "--votes", "2", "--api", "chat"]
    line += ["--engine", "replay", "--replay", str(tmp_path / "said.jsonl")]
    code, out, err = run(capsys, *line, "--out", str(tmp_path / "out"))
    assert code == 0, err
    assert f"gpt, 2 votes on each of {len(rows)} solutions" in " ".join(out.split())
    statistics = validate(tmp_path / "out").get("label", LabelRecord).counts
    assert statistics is not None and (statistics.unreadable, statistics.ties) == (len(rows), 0)
    solution_rollouts = pl.read_parquet(tmp_path / "out/solutions/*.parquet")["rollouts"].to_list()
    assert [first_failed_step(step_rollouts) for step_rollouts in solution_rollouts] == [
        row["label"] for row in rows
    ]
    assert {step["n"] for steps in solution_rollouts for step in steps} == {1}
    # A truncated critique is not a vote.
    critiques = [Completion("\\boxed{0}", "length"), Completion("\\boxed{-1}", "stop")]
    assert read_votes(JUDGE_FORMAT, "", critiques, 3) == [-1]


def test_a_custom_judge_format_is_sent_to_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from command_line import run
    from openai_server import Script, serving

    small_build(tmp_path / "run", problem_set(1))
    (tmp_path / "mine.toml").write_text(
        'based_on = "processbench"\nprompt = "{question} {steps}"\n'
    )
    script = Script(reply=lambda body, i: "\\boxed{1}")
    with serving(script) as url:
        line = ["label", str(tmp_path / "run"), "--judge", "tiny", "--engine", "openai"]
        line += ["--judge-format", str(tmp_path / "mine.toml"), "--api", "chat", "--base-url", url]
        code, _, err = run(capsys, *line, "--out", str(tmp_path / "out"))
    assert code == 0, err
    # Requests are under way together, so they come in any order.
    prompts = [body["messages"][0]["content"] for body in script.requests]
    begins = "What is 20 + 22, asked for the 0th time? <paragraph_0>\n"
    assert prompts and all(prompt.startswith(begins) for prompt in prompts)
    assert any(prompt.startswith(f"{begins}Step 1:") for prompt in prompts)
    statistics = validate(tmp_path / "out").get("label", LabelRecord).counts
    assert statistics is not None and statistics.without_vote == 1, (
        "the solution of one step has no step 1"
    )


def test_a_local_model_can_be_the_judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A random model writes no readable critique; its prompt has the tokenizer's chat format."""
    pytest.importorskip("torch")
    from command_line import run
    from random_model import save_random_model

    small_build(tmp_path / "run", problem_set(1))
    model = save_random_model(tmp_path / "judge", context=1024)
    (model / "chat_template.jinja").write_text("<{{ messages[-1].content }}>")
    line = ["label", str(tmp_path / "run"), "--judge", str(model), "--out", str(tmp_path / "out")]
    line += ["--engine", "transformers", "--device", "cpu", "--max-tokens", "4", "--votes", "2"]
    code, _, err = run(capsys, *line)
    assert code == 0, err
    statistics = validate(tmp_path / "out").get("label", LabelRecord).counts
    assert statistics is not None and (statistics.without_vote, statistics.unreadable) == (3, 6)
    lines = (tmp_path / "out/critiques/completions.jsonl").read_text().splitlines()
    prompts = [json.loads(line)["prompt"] for line in lines]
    assert len(prompts) == 3 and all(prompt[0] + prompt[-1] == "<>" for prompt in prompts)


def test_a_judge_without_a_chat_template_needs_a_format_with_another_template(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    from command_line import run
    from random_model import save_random_model

    small_build(tmp_path / "run", problem_set(1))
    model = save_random_model(tmp_path / "judge")
    line = ["label", str(tmp_path / "run"), "--judge", str(model), "--out", str(tmp_path / "out")]
    code, _, err = run(capsys, *line, "--engine", "transformers", "--device", "cpu")
    text = " ".join(err.split())
    assert code != 0 and "Give a judge format of your own, whose key template names" in text
    assert "--template" not in text and "Choose another" not in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"LabelOptions\.rollouts = None: a source of labels is missing\. Give `rollouts`"),
        ({"judge": "j", "rollouts": 4}, "labels come from `rollouts` or from a `judge`"),
        ({"judge": "j", "model": "m"}, r"model = 'm': the `judge` is the only model"),
        ({"rollouts": 4, "consensus": True}, "consensus = True: only `judge` reads this option"),
        (
            {"judge": "j", "judge_format": "nope"},
            r"judge_format = 'nope': there is no such format\. Expected processbench, thinkprm, or",
        ),
        ({"judge": "j", "judge_format": "qwen"}, "Expected processbench, thinkprm, or a .toml"),
        ({"judge": "j", "judge_format": "genprm"}, "runs Python code that the model writes"),
        ({"judge": "nowhere/at/all"}, r"judge = 'nowhere/at/all'"),
        ({"judge": "tiny", "judge_format": "mine.toml", "consensus": True}, "Make them first"),
    ],
)
def test_mistakes(
    options: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text('based_on = "processbench"\ntemplate = "problem"\n')
    small_build(tmp_path / "run", problem_set(1))
    with pytest.raises(InputError, match=message):
        values = {"data": tmp_path / "run", "out": "b", "engine": "transformers"}
        make_label_stage(make_options(LabelOptions, values | options))
