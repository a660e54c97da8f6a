"""Labels of a judge: what it is asked, how it is read, what is kept, what survives a stop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fakes import FixedSampler
from helpers import build_spec, derived, problem_set, rollouts, small_build

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError, UnavailableError
from fsdpo_data.core.identity import ModelRef, SourceRef
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.stage import derive_dataset
from fsdpo_data.dataset.validate import validate
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.engines.scorers.critiques import (
    critique_prompt,
    critique_sampling,
    get_judge_format,
    read_votes,
)
from fsdpo_data.models.prompts import RECORDED_TEMPLATE, get_template
from fsdpo_data.problems.load import ProblemSet
from fsdpo_data.stages.continuations import ContinuationSampler
from fsdpo_data.stages.judge import JudgeStage, first_failed_step
from fsdpo_data.stages.label import LabelOptions, LabelStage

FORM = get_judge_format("processbench")


class Reads:
    """Finds the wrong sum in a solution; votes as it is told where it is right.

    Args:
        dies_after: Calls answered before the engine dies.
    """

    model = ModelRef("reads", "0")

    def __init__(self, votes: Sequence[str] = ("-1",), dies_after: int | None = None) -> None:
        self.asked: list[str] = []
        self.votes, self.left = votes, dies_after

    def sample(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        if self.left == 0:
            raise UnavailableError("the engine died")
        self.left = None if self.left is None else self.left - 1
        self.asked += prompts
        return [[self._one(prompt, i) for i in range(spec.n)] for prompt in prompts]

    def _one(self, prompt: str, index: int) -> Completion:
        said = "0" if "= 43" in prompt else self.votes[index % len(self.votes)]
        return Completion(f"I see. \\boxed{{{said}}}", "stop", 10, 0.5)


def judged(
    source: Path, out: Path, judge: Reads | None = None, *, votes: int = 1, **options: Any
) -> dict[str, Any]:
    chosen = judge or Reads()
    sampling = critique_sampling(FORM, RECORDED_TEMPLATE, votes)
    engine = {"name": "replay", "dtype": "auto"}
    agreed = options.pop("consensus", None)
    batch = options.pop("batch", 2)
    asking = ContinuationSampler(chosen.model, sampling, engine, lambda: chosen, batch_size=batch)
    stage = JudgeStage(asking, FORM, RECORDED_TEMPLATE, agreed)
    return derived(source, out, stage, **options)


def test_the_first_wrong_step_becomes_labels(tmp_path: Path) -> None:
    small_build(tmp_path / "run", problem_set(1))
    judge = Reads()
    manifest = judged(tmp_path / "run", tmp_path / "out", judge)
    assert len(judge.asked) == 3, "the empty solution has no step to judge"
    assert "<paragraph_1>\nStep 2: So it is 42. The answer is: 42\n</paragraph_1>" in judge.asked[0]
    right, wrong, silent, empty = rollouts(tmp_path / "out")
    assert right == [{"n": 1, "n_correct": 1}] * 2 and wrong == [{"n": 1, "n_correct": 0}] * 2
    assert silent == [{"n": 1, "n_correct": 1}] and empty is None
    told = manifest["judge"]
    assert (
        told["solutions"],
        told["no_error"],
        told["unreadable"],
        told["correct_with_error"],
    ) == (3, 2, 0, 0)
    assert (told["n"], told["continuations"], told["tokens"]) == (1, 3, 30)
    spec = manifest["spec"]["label"]
    assert spec["judge"]["name"] == "processbench" and spec["model"]["name"] == "reads"
    before, after = (
        pl.read_parquet(tmp_path / name / "solutions/*.parquet") for name in ("run", "out")
    )
    assert after.drop("rollouts").equals(before.drop("rollouts"))
    card = (tmp_path / "out/README.md").read_text()
    assert "--judge reads" in card and "first wrong step" in card


def test_votes_are_kept_in_the_counts_and_a_tie_goes_to_the_first(tmp_path: Path) -> None:
    small_build(tmp_path / "run", problem_set(1))
    votes = Reads(["1", "-1", "one", "-1", "1"])
    manifest = judged(tmp_path / "run", tmp_path / "out", votes, votes=5)
    right, wrong, silent, _ = rollouts(tmp_path / "out")
    assert right == [{"n": 4, "n_correct": 4}, {"n": 4, "n_correct": 2}]
    assert wrong == [{"n": 5, "n_correct": 0}] * 2
    assert silent == [{"n": 2, "n_correct": 2}], "a solution of one step has no step 1"
    told = manifest["judge"]
    assert (told["unreadable"], told["ties"], told["correct_with_error"], told["no_error"]) == (
        4,
        1,
        1,
        1,
    )
    sampled = manifest["spec"]["label"]["sampling"]
    assert (sampled["n"], sampled["temperature"], sampled["top_p"]) == (5, 1.0, 0.9)


def test_a_solution_without_a_readable_critique_has_no_labels_of_steps(tmp_path: Path) -> None:
    small_build(tmp_path / "run", problem_set(1))
    told = judged(tmp_path / "run", tmp_path / "out", Reads(["nothing"]))["judge"]
    assert (told["without_vote"], told["unreadable"], told["no_error"]) == (2, 2, 0)
    assert [each is None for each in rollouts(tmp_path / "out")] == [True, False, True, True]


def test_consensus_keeps_what_both_say(tmp_path: Path) -> None:
    source = problem_set(2)
    small_build(tmp_path / "run", source)
    begun = [
        f"{get_template('problem').render(p.question)}Step 1: 20 + 22 = " for p in source.problems
    ]
    right, wrong = "Step 2: The answer is: 42", "Step 2: The answer is: 7"
    rest = {f"{each}42.\n": [right, wrong] for each in begun}
    rest |= {f"{each}43.\n": [wrong, right] for each in begun}
    continues = FixedSampler(rest)
    how = ContinuationSampler(
        continues.model, SamplingSpec(n=2), {"name": "x", "dtype": "auto"}, lambda: continues
    )
    derive_dataset(tmp_path / "run", tmp_path / "mc", [LabelStage(how)], progress=LineProgress())
    before = rollouts(tmp_path / "mc")
    # Of two continuations one is right after the wrong sum, so its first error is the last step.
    assert [first_failed_step(each) for each in before[:3]] == [-1, 1, 0]
    agreed = read_manifest(tmp_path / "mc").spec.label
    assert agreed is not None
    spec = agreed.to_dict()
    manifest = judged(tmp_path / "mc", tmp_path / "out", consensus=spec)
    right, wrong, silent, empty = rollouts(tmp_path / "out")[:4]
    assert right == [{"n": 1, "n_correct": 1}] * 2
    assert wrong is None and silent is None and empty is None
    told = manifest["judge"]
    assert (told["solutions"], told["kept"], told["dropped"]) == (6, 2, 4)
    assert manifest["spec"]["label"]["consensus"]["model"]["name"] == "fixed"
    assert "rollouts" not in manifest
    # Files already written have lost the counts; a run that goes on reads the parent's.
    (tmp_path / "out/manifest.json").unlink()
    assert judged(tmp_path / "mc", tmp_path / "out", consensus=spec, resume=True) == manifest


def test_stopped_at_any_critique_it_owes_only_the_rest(tmp_path: Path) -> None:
    small_build(tmp_path / "run", problem_set(4))
    whole = judged(tmp_path / "run", tmp_path / "whole", batch=1)
    for calls in (0, 3, 11):
        out = tmp_path / f"part{calls}"
        with pytest.raises(UnavailableError):
            judged(tmp_path / "run", out, Reads(dies_after=calls), batch=1)
        again = Reads()
        assert judged(tmp_path / "run", out, again, batch=1, resume=True) == whole
        assert len(again.asked) == 12 - calls
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
    """Real solutions and recorded critiques: the label of the benchmark, or what is none."""
    from command_line import run

    rows = json.loads((shared / "data/stepwise/processbench/math.json").read_text())[::25]
    problems = [Problem(row["problem"], "1", "pb", "test") for row in rows]
    texts = {
        get_template("problem").render(each.question): ["\n\n".join(row["steps"])]
        for each, row in zip(problems, rows, strict=True)
    }
    spec = replace(build_spec(n=1), segmenter="blank-line@1")
    source = ProblemSet(problems, [SourceRef("test", "1", "train")])
    small_build(tmp_path / "run", source, spec=spec, make_sampler=lambda: FixedSampler(texts))
    with (tmp_path / "said.jsonl").open("w") as file:
        for k, row in enumerate(rows):
            said = [f"Well, \\boxed{{{row['label']}}}.", HOSTILE[k % len(HOSTILE)]]
            made = [{"text": text, "finish_reason": "stop"} for text in said]
            prompt = critique_prompt(
                FORM, RECORDED_TEMPLATE, ScorerInput("", row["steps"], row["problem"])
            )
            file.write(json.dumps({"prompt": prompt, "completions": made}) + "\n")
    line = ["label", str(tmp_path / "run"), "--judge", "gpt", "--votes", "2", "--api", "chat"]
    line += ["--engine", "replay", "--replay", str(tmp_path / "said.jsonl")]
    code, out, err = run(capsys, *line, "--out", str(tmp_path / "out"))
    assert code == 0, err
    assert f"gpt, 2 votes on each of {len(rows)} solutions" in " ".join(out.split())
    told = validate(tmp_path / "out").judge
    assert told is not None and (told.unreadable, told.ties) == (len(rows), 0)
    found = pl.read_parquet(tmp_path / "out/solutions/*.parquet")["rollouts"].to_list()
    assert [first_failed_step(each) for each in found] == [row["label"] for row in rows]
    assert {each["n"] for steps in found for each in steps} == {1}
    # What was cut is no vote, whatever is in it.
    assert read_votes(FORM, [("\\boxed{0}", "length"), ("\\boxed{-1}", "stop")], 3) == [-1]


def test_a_judge_is_asked_in_its_own_words_by_a_server(
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
    asked = [body["messages"][0]["content"] for body in script.requests]
    begins = "What is 20 + 22, asked for the 0th time? <paragraph_0>\n"
    assert asked and all(each.startswith(begins) for each in asked)
    assert any(each.startswith(f"{begins}Step 1:") for each in asked)
    told = validate(tmp_path / "out").judge
    assert told is not None and told.without_vote == 1, "the solution of one step has no step 1"


def test_a_judge_of_the_machines_own_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A random model says nothing that can be read, in the chat format of its tokenizer."""
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
    told = validate(tmp_path / "out").judge
    assert told is not None and (told.without_vote, told.unreadable) == (3, 6)
    lines = (tmp_path / "out/critiques/completions.jsonl").read_text().splitlines()
    prompts = [json.loads(each)["prompt"] for each in lines]
    assert len(prompts) == 3 and all(each[0] + each[-1] == "<>" for each in prompts)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, r"LabelOptions\.rollouts = None: a source of labels is missing\. Give `rollouts`"),
        ({"judge": "j", "rollouts": 4}, "labels come from `rollouts` or from a `judge`"),
        ({"judge": "j", "model": "m"}, r"model = 'm': the `judge` is the only model"),
        ({"rollouts": 4, "consensus": True}, "consensus needs a `judge`"),
        ({"judge": "j", "judge_format": "qwen"}, "expected processbench, thinkprm, or a .toml"),
        ({"judge": "j", "judge_format": "genprm"}, "runs Python that the model writes"),
        ({"judge": "nowhere/at/all"}, r"judge = 'nowhere/at/all'"),
        ({"judge": "tiny", "judge_format": "mine.toml", "consensus": True}, "Make them first"),
    ],
)
def test_mistakes(
    asked: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text('based_on = "processbench"\ntemplate = "problem"\n')
    small_build(tmp_path / "run", problem_set(1))
    with pytest.raises(InputError, match=message):
        LabelOptions(tmp_path / "run", out="b", engine="transformers", **asked).stage()
