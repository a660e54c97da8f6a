"""Compare beam search with a simple reference implementation, and its rounds with Algorithm 1."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import pytest
from fakes import (
    ANSWER,
    THOUGHT,
    BatchScorer,
    Judge,
    TextSampler,
    ThinkingSampler,
    Writer,
    sample_all,
)

from fsdpo_data.answers.thinking import find_thinking
from fsdpo_data.core.errors import InputError, ItemError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.sampling import Completion, Prompt, SamplingSpec, SearchCost
from fsdpo_data.engines import beam_search
from fsdpo_data.engines.beam_search import BeamSampler, BeamSpec
from fsdpo_data.engines.samplers import LoadedSampler, SampleResult
from fsdpo_data.engines.samplers.tokenization import cut_at_stop
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.steps.segment import (
    SEGMENTERS,
    split_at_lengths,
    split_at_newlines,
    step_ending,
    step_stops,
)

CASES = 500


@pytest.mark.parametrize("segmenter", ["auto@1", "newline@1", "both@2"])
@pytest.mark.parametrize("step_tokens", [20, 64])
def test_beam_search_keeps_the_stop_strings_of_steps_out_of_the_thinking(
    segmenter: str, step_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beam_search, "MAX_STEP_TOKENS", step_tokens)
    sampler = LoadedSampler(ThinkingSampler())
    spec = BeamSpec(b1=2, b2=1, max_steps=90)
    sampling = SamplingSpec(n=1, max_tokens=400)
    prompt = "2+2?<think>\n"
    searcher = BeamSampler(sampler, Judge(0), segmenter, spec)
    [[solution]] = sample_all(searcher, [prompt], sampling)
    thinking = find_thinking(prompt, solution.text)
    assert thinking.closed and solution.finish_reason == "stop"
    assert solution.text[: thinking.end] == f"{THOUGHT}</think>\n\n"
    assert solution.text.endswith(ANSWER)


@pytest.mark.parametrize(("opens", "prompt"), [("", "2+2?<think>\n"), ("<think>\n", "2+2?")])
def test_stop_strings_end_steps_of_the_thinking_only_if_the_segmenter_splits_it(
    opens: str, prompt: str
) -> None:
    thoughts = [f"Thought {i}: {'we add the numbers again. ' * 4}" for i in range(9)]
    requests = {}
    for segmenter, n_steps in (("auto@1", 1 + 2), ("both@2", 9 + 1)):
        sampler = ThinkingSampler("\n\n".join(thoughts), opens=opens)
        spec = BeamSpec(b1=1, b2=1, max_steps=90)
        searcher = BeamSampler(LoadedSampler(sampler), Judge(0), segmenter, spec)
        [[solution]] = sample_all(searcher, [prompt], SamplingSpec(n=1, max_tokens=2000))
        assert solution.finish_reason == "stop" and solution.text.endswith(ANSWER)
        assert len(steps_of(solution)) == n_steps
        assert solution.n_tokens == len(solution.text)  # no text was generated twice
        requests[segmenter] = sampler.requests
    contexts = [(context, spec.stop) for [context], spec in requests["auto@1"]]
    stops = {stop for context, stop in contexts[1:] if "</think>" not in context}
    assert stops == {("</think>",)}
    contexts = [(context, spec.stop) for [context], spec in requests["both@2"]]
    stops = {stop for context, stop in contexts[1:] if "</think>" not in context}
    assert stops == {("</think>", "\n\n")}


@pytest.mark.parametrize("segmenter", ["auto@1", "thinking@2", "both@2"])
def test_stop_strings_of_the_prompt_do_not_end_a_solution_inside_its_thinking(
    segmenter: str,
) -> None:
    long_thinking = (
        "A page of problems has this form:\n\nQ: What is 2 + 2?\n\nSo I write an answer."
    )
    searcher = BeamSampler(
        LoadedSampler(ThinkingSampler(long_thinking)), Judge(0), segmenter, BeamSpec(b1=1, b2=1)
    )
    sampling = SamplingSpec(n=1, max_tokens=2000, stop=("\n\nQ:",))
    [[solution]] = sample_all(searcher, ["2+2?<think>\n"], sampling)
    assert long_thinking in solution.text and solution.text.endswith(ANSWER)


def reference_search(
    prompt: str, writer: Writer, judge: Judge, sampling: SamplingSpec, spec: BeamSpec
) -> list[tuple[str, tuple[str, ...], bool]]:
    """Run algorithm 1 of the paper line by line, with lines as steps; return the n best."""
    counts: Counter[str] = Counter()

    def next_step(text: str, first: bool) -> tuple[str, bool]:
        index = counts[text] if not first else counts[""]
        counts[text] += 1
        step = sampling.replace(n=1, stop=("\n",), max_tokens=beam_search.MAX_STEP_TOKENS)
        completion = writer.one(prompt + text, index, step)
        if completion.stop_string:
            return text + completion.text + "\n", False
        return text + completion.text, completion.finish_reason == "stop"

    def reward(text: str) -> float:
        rewards = judge.one(prompt, split_at_newlines(text))
        return rewards[-1] if rewards else -math.inf

    def top(count: int, new: list[Any]) -> list[Any]:
        order = sorted(range(len(new)), key=lambda i: (-new[i][2], i))
        return [new[i] for i in order[:count]]

    first = [next_step("", True) for _ in range(spec.b1)]  # line 6
    scored = [(text, done, reward(text)) for text, done in first]  # line 7
    beam = top(spec.b1 if spec.first_keep == "b1" else spec.b2, scored)  # line 8
    t = 1  # line 9
    while t < spec.max_steps:  # line 10
        if all(done for _, done, _ in beam):  # line 11
            break  # line 12
        new = []  # lines 14, 15
        counts.clear()
        for text, done, score in beam:  # line 16
            if done:
                new.append((text, done, score))
                continue
            for _ in range(spec.b1):  # line 17
                longer, ended = next_step(text, False)  # line 18
                new.append((longer, ended, reward(longer)))  # lines 19-21
        beam = top(spec.b2, new)  # lines 24, 25
        t += 1  # line 26
    best = top(sampling.n, beam)  # line 28
    return [(text, tuple(split_at_newlines(text)), done) for text, done, _ in best]


def random_spec(draw: random.Random) -> BeamSpec:
    return BeamSpec(
        b1=draw.randint(1, 5),
        b2=draw.randint(1, 4),
        max_steps=draw.randint(1, 6),
        first_keep=draw.choice(["b1", "b2"]),
    )


def test_beam_search_equals_the_reference_on_hundreds_of_random_cases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lengths = Counter[int]()
    finished = Counter[bool]()
    for case in range(CASES):
        draw = random.Random(case)
        spec = random_spec(draw)
        monkeypatch.setattr(beam_search, "MAX_STEP_TOKENS", draw.choice([2, 50]))
        writer = Writer(case)
        judge = Judge(case, unread=draw.choice([0.0, 0.2]))
        prompts = [f"p{i}\n" for i in range(draw.randint(1, 3))]
        sampling = SamplingSpec(n=1, temperature=0.8)
        sampling = sampling.replace(n=draw.randint(1, min(spec.b1, spec.b2)))
        results = sample_all(BeamSampler(writer, judge, "newline@1", spec), prompts, sampling)
        for prompt, solutions in zip(prompts, results, strict=True):
            expected = reference_search(prompt, writer, judge, sampling, spec)
            assert len(solutions) == len(expected) == sampling.n
            for solution, (text, steps, done) in zip(solutions, expected, strict=True):
                assert (solution.text, steps_of(solution)) == (text, steps)
                assert (solution.finish_reason == "stop") == done
                assert solution.step_rewards == _tuple(judge.one(prompt, steps))
                lengths[len(steps)] += 1
                finished[done] += 1
    # The random cases contain finished and unfinished searches of many lengths.
    assert len(lengths) >= 5 and min(finished.values()) > CASES // 4


def steps_of(solution: Completion) -> tuple[str, ...]:
    return tuple(split_at_lengths(solution.text, solution.step_chars or ()))


def _tuple(rewards: list[float] | None) -> tuple[float, ...] | None:
    return None if rewards is None else tuple(rewards)


class Tree(TextSampler):
    """Sampler that continues a text by its listed branches; sample i takes branch i."""

    model = ModelRef("tree", "0")

    def __init__(self, branches: dict[str, list[str]]) -> None:
        self.branches = branches
        self.requests: list[list[tuple[str, int]]] = []

    def complete_texts(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        self.requests.append([(prompt, spec.n) for prompt in prompts])
        return [
            [self._one(branch, spec) for branch in self.branches[prompt][: spec.n]]
            for prompt in prompts
        ]

    def _one(self, branch: str, spec: SamplingSpec) -> Completion:
        if branch.endswith("…"):
            return Completion(branch.removesuffix("…"), "length", 1)
        text, stop = cut_at_stop(branch, spec.stop)
        return Completion(text, "stop", 1, stop_string=stop)


class StepTableScorer(BatchScorer):
    """Scorer that looks up the reward of every step in a table."""

    model = ModelRef("by-last-step", "0")

    def __init__(self, rewards: dict[str, float]) -> None:
        self.rewards = rewards
        self.seen: list[tuple[str, ...]] = []

    def compute_rewards(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        self.seen += [tuple(item.steps) for item in items]
        return [[self.rewards[step.strip()] for step in item.steps] for item in items]


def search(
    tree: Tree, rewards: dict[str, float], **spec: Any
) -> tuple[Completion, StepTableScorer]:
    scorer = StepTableScorer(rewards)
    searcher = BeamSampler(tree, scorer, "newline@1", BeamSpec(**spec))
    [[solution]] = sample_all(searcher, ["q:"], SamplingSpec(n=1))
    return solution, scorer


FIRST = {"q:": ["a\n", "b\n", "c\n"]}
REWARDS = {"a": 0.9, "b": 0.5, "c": 0.7, "end": 0.6, "low": 0.1, "high": 0.95, "more": 0.2}


def test_lines_6_to_8_keep_b1_first_steps_or_b2_with_the_option_first_keep() -> None:
    tree = Tree(FIRST | {f"q:{step}\n": ["end"] * 3 for step in "abc"})
    search(tree, REWARDS, b1=3, b2=1, max_steps=2)
    assert tree.requests[0] == [("q:", 3)]  # line 6
    assert tree.requests[1] == [("q:a\n", 3), ("q:c\n", 3), ("q:b\n", 3)]  # line 8: top-b1 is all
    text = Tree(tree.branches)
    search(text, REWARDS, b1=3, b2=2, max_steps=2, first_keep="b2")
    assert text.requests[1] == [("q:a\n", 3), ("q:c\n", 3)]


def test_the_limit_counts_generations_as_the_help_says() -> None:
    """A step that is longer than the maximum of a generation takes several generations."""
    tree = Tree({"q:": ["a…"], "q:a": ["b…"], "q:ab": ["c\n"]})
    solution, _ = search(tree, {"a": 0.5, "ab": 0.5, "abc": 0.5}, b1=1, b2=1, max_steps=2)
    assert (steps_of(solution), len(tree.requests)) == (("ab",), 2)
    text = " ".join(str(BeamSpec.model_fields["max_steps"].description).split())
    assert text.startswith("Maximum number of generations per solution")


def test_line_10_limits_the_number_of_steps() -> None:
    tree = Tree({"q:": ["a\n"], "q:a\n": ["a\n"], "q:a\na\n": ["a\n"]})
    solution, _ = search(tree, REWARDS, b1=1, b2=1, max_steps=1)
    assert (solution.text, solution.finish_reason, len(tree.requests)) == ("a\n", "length", 1)
    solution, _ = search(tree, REWARDS, b1=1, b2=1, max_steps=3)
    assert steps_of(solution) == ("a\n", "a\n", "a\n") and solution.finish_reason == "length"


def test_line_11_stops_when_every_solution_is_complete() -> None:
    tree = Tree({"q:": ["a", "b"]})
    solution, scorer = search(tree, REWARDS, b1=2, b2=2, max_steps=9)
    assert len(tree.requests) == 1 and len(scorer.seen) == 2
    assert (solution.text, solution.finish_reason) == ("a", "stop")


def test_lines_16_to_24_keep_the_best_of_all_next_steps() -> None:
    tree = Tree(
        {"q:": ["a\n", "b\n"], "q:a\n": ["low\n", "more\n"], "q:b\n": ["high\n", "end\n"]}
        | {"q:b\nhigh\n": ["end", "low"], "q:b\nend\n": ["low", "more"]}
    )
    solution, scorer = search(tree, REWARDS, b1=2, b2=2, max_steps=3)
    pairs = [("a\n", "low\n"), ("a\n", "more\n"), ("b\n", "high\n"), ("b\n", "end\n")]
    assert scorer.seen[2:6] == pairs
    # Line 24 keeps no continuation of a.
    assert tree.requests[2] == [("q:b\nhigh\n", 2), ("q:b\nend\n", 2)]
    assert solution.text == "b\nhigh\nend"  # line 28: 0.6 of 0.6, 0.1, 0.1, 0.2
    assert solution.n_tokens == 3
    assert solution.search_cost == SearchCost(discarded_tokens=2 + 4 + 4 - 3, prm_calls=2 + 4 + 4)


def test_a_finished_solution_stays_in_the_beam_and_is_scored_once() -> None:
    tree = Tree({"q:": ["a", "b\n"], "q:b\n": ["high\n", "low\n"], "q:b\nhigh\n": ["low", "low"]})
    solution, scorer = search(tree, REWARDS, b1=2, b2=2, max_steps=4)
    assert solution.text == "a" and solution.step_rewards == (0.9,)
    assert scorer.seen.count(("a",)) == 1


def test_a_step_that_stopped_on_length_is_not_finished() -> None:
    tree = Tree({"q:": ["en…"], "q:en": ["d"]})
    solution, scorer = search(tree, REWARDS | {"en": 0.4}, b1=1, b2=1, max_steps=4)
    assert (solution.text, solution.finish_reason) == ("end", "stop")
    assert scorer.seen == [("en",), ("end",)]


def test_a_full_context_ends_the_search() -> None:
    class Full(Tree):
        def complete_texts(
            self, prompts: Sequence[str], spec: SamplingSpec
        ) -> list[list[Completion]]:
            self.requests.append([])
            return [[Completion("", "length", 0)] * spec.n for _ in prompts]

    full = Full({})
    solution, _ = search(full, REWARDS, b1=2, b2=1, max_steps=9)
    assert (solution.text, solution.finish_reason, len(full.requests)) == ("", "length", 1)


def test_equal_solutions_in_the_beam_are_continued_by_different_samples() -> None:
    tree = Tree({"q:": ["a\n", "a\n"], "q:a\n": ["low", "more", "end", "high"]})
    solution, _ = search(tree, REWARDS, b1=2, b2=1, max_steps=2)
    assert tree.requests[1] == [("q:a\n", 4)]
    assert solution.text == "a\nhigh"


@pytest.mark.parametrize(
    ("segmenter", "separator", "mark"),
    [
        ("newline@1", "\n", ""),
        ("blank-line@1", "\n\n", ""),
        ("step-marker@1", "\n", "Step {}: "),
        ("step-marker@1", "\n\n", "**Step {}:** "),
        ("auto@1", "\n", ""),
        ("auto@1", "\n\n", ""),
        ("auto@1", "\n", "Step {}: "),
        ("auto@1", "\n\n", "Step {}: "),
    ],
)
def test_search_rounds_end_at_step_boundaries(segmenter: str, separator: str, mark: str) -> None:
    """Scored texts have the same steps as complete solutions, and a round adds one step."""
    for case in range(50):
        writer = Writer(case, separator, mark)
        seen: list[ScorerInput] = []

        class RecordingJudge(Judge):
            def compute_rewards(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
                seen.extend(items)  # noqa: B023
                return super().compute_rewards(items)

        spec = BeamSpec(b1=2, b2=1, max_steps=5)
        searcher = BeamSampler(writer, RecordingJudge(case), segmenter, spec)
        [[solution]] = sample_all(searcher, ["p"], SamplingSpec(n=1))
        assert list(steps_of(solution)) == SEGMENTERS[segmenter].split(solution.text)
        for item in seen:
            assert SEGMENTERS[segmenter].split("".join(item.steps)) == list(item.steps)
        lengths = [len(item.steps) for item in seen]
        assert all(later - earlier <= 1 for earlier, later in pairwise(lengths))
        assert max(lengths) <= 5


class ScriptSampler(TextSampler):
    """A sampler that continues one text, one token per character, and records stop strings."""

    def __init__(self, script: str) -> None:
        self.script = script
        self.requests: list[tuple[str, tuple[str, ...]]] = []

    def complete_texts(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        self.requests += [(prompt, spec.stop) for prompt in prompts]
        return [[self.one(prompt, spec)] * spec.n for prompt in prompts]

    def one(self, prompt: str, spec: SamplingSpec) -> Completion:
        remaining = self.script.removeprefix(prompt.removeprefix("q:"))
        text, stop = cut_at_stop(remaining[: spec.max_tokens], spec.stop)
        is_finished = stop is not None or len(remaining) <= spec.max_tokens
        n_tokens = len(text) + len(stop or "")
        return Completion(text, "stop" if is_finished else "length", n_tokens, stop_string=stop)


def test_blank_lines_in_the_thinking_do_not_choose_the_stop_strings_of_the_answer() -> None:
    thinking = "<think>\nOne.\n\nTwo.\n</think>\n\n"
    lines = [f"We add {number}.\n" for number in range(9)]
    sampler = ScriptSampler(thinking + "".join(lines))
    searcher = BeamSampler(LoadedSampler(sampler), Judge(0), "auto@1", BeamSpec(b1=1, b2=1))
    [[solution]] = sample_all(searcher, ["q:"], SamplingSpec(n=1))
    assert steps_of(solution) == (thinking, *lines) and solution.finish_reason == "stop"
    stops = {stop for prompt, stop in sampler.requests if lines[0] in prompt}
    assert stops == {("\n",)}


def test_stop_strings_start_the_next_step() -> None:
    assert step_stops("auto@1", "") == ("\n\n", *step_stops("step-marker@1", ""))
    assert step_stops("auto@1", "Step 1: a\n") == step_stops("step-marker@1", "")
    assert step_stops("auto@1", "a\n\n") == ("\n\n",)
    assert step_stops("auto@1", "a\n") == ("\n",)
    assert [step_ending(stop) for stop in ("\n", "\n\n", "\nStep ")] == ["\n", "\n\n", "\n"]


@pytest.mark.parametrize("field", ["b1", "b2", "max_steps"])
def test_widths_below_one_are_refused(field: str) -> None:
    with pytest.raises(InputError, match=f"BeamSpec.{field} = 0: expected at least 1"):
        BeamSpec(**{field: 0})


def test_a_search_returns_at_most_its_beam() -> None:
    searcher = BeamSampler(Writer(0), Judge(0), "newline@1", BeamSpec(b1=3, b2=2))
    with pytest.raises(InputError, match=r"n = 3: .*`b2=2` returns at most 2 per problem"):
        sample_all(searcher, ["p"], SamplingSpec(n=3))
    with pytest.raises(InputError, match=r"temperature = 0\.0: all next steps"):
        sample_all(searcher, ["p"], SamplingSpec(n=1, temperature=0))


class RefusingWriter(Writer):
    """A writer that refuses texts with a word."""

    def complete_texts(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        if any("refused" in prompt for prompt in prompts):
            raise ItemError("too long to continue")
        return super().complete_texts(prompts, spec)


class RefusingJudge(Judge):
    """A judge that refuses solutions of some prompts, after their first step."""

    def compute_rewards(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        if any("unread" in item.prompt and len(item.steps) > 1 for item in items):
            raise ItemError("too long to score")
        return super().compute_rewards(items)


def test_a_refused_text_fails_its_search_alone() -> None:
    sampling = SamplingSpec(n=2)
    prompts = ["p0\n", "refused\n", "unread\n", "p1\n"]
    spec = BeamSpec(b1=3, b2=2, max_steps=5)
    searcher = BeamSampler(RefusingWriter(1), RefusingJudge(1), "newline@1", spec)
    outcomes = dict(searcher.sample([*map(Prompt, prompts)], sampling))
    assert sorted(outcomes) == [0, 1, 2, 3]
    errors = {
        index: str(outcome) for index, outcome in outcomes.items() if isinstance(outcome, ItemError)
    }
    assert errors == {1: "too long to continue", 2: "too long to score"}
    plain = sample_all(
        BeamSampler(Writer(1), Judge(1), "newline@1", spec), ["p0\n", "p1\n"], sampling
    )
    for index, expected in zip((0, 3), plain, strict=True):
        solutions = outcomes[index]
        assert isinstance(solutions, list)
        assert [without_seconds(solution) for solution in solutions] == [
            without_seconds(solution) for solution in expected
        ]
    with pytest.raises(ItemError, match="too long to continue"):
        sample_all(searcher, prompts, sampling)


def without_seconds(completion: Completion) -> Completion:
    return replace(completion, seconds=0)


def test_the_scorer_gets_the_question_of_the_prompt() -> None:
    questions: set[str | None] = set()

    class Reader(Judge):
        def compute_rewards(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
            questions.update(item.question for item in items)
            assert {item.prompt for item in items} == {"p: 2+2?"}
            return super().compute_rewards(items)

    searcher = BeamSampler(Writer(0), Reader(0), "newline@1", BeamSpec(b1=2))
    sample_all(searcher, [Prompt("p: 2+2?", "2+2?")], SamplingSpec(n=1))
    assert questions == {"2+2?"}


def test_every_solution_of_a_search_has_its_cost() -> None:
    tree = Tree({"q:": ["a\n", "b\n"], "q:a\n": ["low", "more"], "q:b\n": ["high", "end"]})
    searcher = BeamSampler(tree, StepTableScorer(REWARDS), "newline@1", BeamSpec(b1=2, b2=2))
    [solutions] = sample_all(searcher, ["q:"], SamplingSpec(n=2))
    assert [solution.text for solution in solutions] == ["b\nhigh", "b\nend"]
    for solution in solutions:
        assert solution.search_cost == SearchCost(discarded_tokens=2 + 4 - 2, prm_calls=2 + 4)
    assert [solution.step_rewards for solution in solutions] == [(0.5, 0.95), (0.5, 0.6)]


class WordSampler:
    """A sampler that continues one text word by word, with or without the ids of its words."""

    model = ModelRef("words", "0")

    def __init__(self, script: str, *, has_ids: bool) -> None:
        self.words = re.findall(r"\w+|\W", script)
        self.has_ids = has_ids
        self.n_generated = 0

    def sample(self, prompts: Sequence[Prompt], spec: SamplingSpec) -> Iterator[SampleResult]:
        for index, prompt in enumerate(prompts):
            yield index, [self.one(prompt.solution_text, spec)] * spec.n

    def one(self, solution_text: str, spec: SamplingSpec) -> Completion:
        ends = list(accumulate(map(len, self.words), initial=0))
        start = end = ends.index(len(solution_text))
        text, stop = "", None
        while end < len(self.words) and stop is None:
            end += 1
            text, stop = cut_at_stop("".join(self.words[start:end]), spec.stop)
        self.n_generated += end - start
        token_ids = tuple(range(end)) if self.has_ids else None
        return Completion(text, "stop", end - start, stop_string=stop, token_ids=token_ids)


LINES = "".join(f"We add {number} to the {'very ' * number}long sum.\n" for number in range(6))


@pytest.mark.parametrize(
    "script", [LINES, LINES.replace("We", "Step 1: We"), f"<think>\n{LINES}</think>\n\n{LINES}"]
)
def test_tokens_of_dropped_steps_are_discarded(script: str) -> None:
    counts = {}
    for has_ids in (True, False):
        sampler = WordSampler(script, has_ids=has_ids)
        searcher = BeamSampler(sampler, Judge(0), "auto@1", BeamSpec(b1=1, b2=1))
        [[solution]] = sample_all(searcher, ["q:"], SamplingSpec(n=1))
        assert (solution.text, solution.finish_reason) == (script, "stop")
        assert solution.n_tokens is not None and solution.search_cost is not None
        discarded_tokens = solution.search_cost.discarded_tokens
        assert discarded_tokens == sampler.n_generated - solution.n_tokens
        counts[has_ids] = solution.n_tokens
    n_words = len(sampler.words)
    assert counts[True] == n_words < sampler.n_generated
    # Estimated. Without ids, the words of "Step " in a stop string count twice.
    assert 0.95 * n_words < counts[False] < 1.05 * n_words + 2 * script.count("Step ")


@pytest.mark.parametrize("has_ids", [True, False])
def test_the_tokens_of_a_cut_generation_are_estimated_by_its_text(has_ids: bool) -> None:
    sampler = WordSampler(LINES, has_ids=has_ids)
    spec = BeamSpec(b1=1, b2=1, max_steps=1)
    searcher = BeamSampler(sampler, Judge(0), "auto@1", spec)
    [[solution]] = sample_all(searcher, ["q:"], SamplingSpec(n=1))
    assert (solution.text, solution.finish_reason) == ("We add 0 to the long sum.\n", "length")
    n_tokens = math.ceil(len(sampler.words) * len(solution.text) / len(LINES))
    assert solution.n_tokens == n_tokens
    assert solution.search_cost == SearchCost(len(sampler.words) - n_tokens, prm_calls=1)


def test_searches_are_returned_as_soon_as_they_are_done() -> None:
    tree = Tree({"q:": ["a\n"], "q:a\n": ["end"], "r:": ["a"]})
    searcher = BeamSampler(tree, StepTableScorer(REWARDS), "newline@1", BeamSpec(b1=1))
    results = searcher.sample([Prompt("q:"), Prompt("r:")], SamplingSpec(n=1))
    assert next(results)[0] == 1 and len(tree.requests) == 1
    assert next(results)[0] == 0 and len(tree.requests) == 2
