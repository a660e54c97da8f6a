"""Compare the decoders with simple reference implementations on hundreds of random cases."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from fakes import ANSWER, THOUGHT, FixedSampler, Judge, TableScorer, ThinkingSampler, Writer
from fsdpo_bench.decode.beam import BeamSpec, beam_search
from fsdpo_bench.decode.decoders import DECODERS
from fsdpo_bench.decode.records import DecodedProblem, record_validator
from fsdpo_bench.decode.solution import (
    DecodedSolution,
    DecodingCost,
    add_rewards,
    aggregate_rewards,
    greedy_sampling,
    sample_solutions,
)
from fsdpo_bench.metrics.answer_classes import agreeing_answers, answer_classes, voting_answers
from fsdpo_bench.metrics.choices import best_of_n, vote, weighted_vote
from fsdpo_bench.runs.grade import TaskResponse, grade_problems, grade_task_responses
from fsdpo_bench.runs.options import RunOptions
from fsdpo_bench.tasks.table import builtin_tasks

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.options import field_help
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.engines.samplers import LoadedSampler
from fsdpo_data.engines.samplers.tokenization import cut_at_stop
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.models.thinking import find_thinking
from fsdpo_data.steps.rewards import AGGREGATES
from fsdpo_data.steps.segment import SEGMENTERS, split_at_newlines, step_ending, step_stops

CASES = 500


def random_answers(draw: random.Random, count: int) -> list[str | None]:
    pool = ["1/2", "0.5", r"\frac{1}{2}", "2", "2.0", "x+1", "1+x", "7", None, ""]
    return [draw.choice(pool) for _ in range(count)]


KIND = {"1/2": 0, "0.5": 0, r"\frac{1}{2}": 0, "2": 1, "2.0": 1, "x+1": 2, "1+x": 2, "7": 3}


def classes_of(answers: Sequence[str | None]) -> list[int]:
    return answer_classes(answers, agreeing_answers(answers))


def test_votes_go_to_classes_of_equivalent_answers() -> None:
    """Compare with counting by given classes, for every K."""
    for case in range(CASES):
        draw = random.Random(case)
        answers = random_answers(draw, draw.randint(1, 12))
        classes = classes_of(answers)
        for k in range(1, len(answers) + 1):
            kinds = [KIND[a] for a in answers[:k] if a]
            votes = Counter(kinds)
            expected = None
            if votes:
                max_votes = max(votes.values())
                tied = [kind for kind, count in votes.items() if count == max_votes]
                firsts = [
                    next(i for i, a in enumerate(answers) if a and KIND[a] == t) for t in tied
                ]
                expected = min(firsts)
            assert vote(classes[:k]) == expected
        assert classes == classes_of([*answers, "2"])[: len(answers)]


def test_sentences_without_an_answer_do_not_vote() -> None:
    """The last sentence of a response is no vote, however many responses end with it."""
    responses = ["I am not sure.", "I am not sure.", r"So it is \boxed{7}."]
    answers = ["I am not sure.", "I am not sure.", "7"]
    votes = voting_answers(answers, responses)
    assert votes == [None, None, "7"]
    assert vote(classes_of(votes)) == 2
    assert weighted_vote(classes_of(votes), [1.0, 1.0, 0.1]) == 2


@pytest.mark.parametrize(
    ("answer", "response"),
    [
        ("7", "There are 7."),
        ("Tom", r"The winner is \boxed{Tom}."),
        ("Tom is faster", "The answer is: Tom is faster"),
        ("Tom", "It was **Tom**."),
        ("Tom", "Tom"),
        ("does not exist", "So the limit does not exist."),
        ("Yes, it is.", "We check all cases.\nYes, it is."),
        ("B", "The correct option is B."),
        ("x+1", "So we get $x+1$"),
    ],
)
def test_values_and_marked_words_vote(answer: str, response: str) -> None:
    assert voting_answers([answer], [response]) == [answer]


def test_a_vote_without_any_answer_is_wrong() -> None:
    """The first sample would be correct, because its sentence states the gold answer."""
    problem = Problem(question="Who wins?", answer="Tom", source="s", split="test")
    samples = [
        DecodedSolution(text=text, steps=(text,), finish_reason="stop", n_tokens=5)
        for text in ("We see this.\nSo Tom is the winner.", "I am not sure.", "I am not sure.")
    ]
    decoded = DecodedProblem(
        task="smoke",
        row=0,
        problem_id="0" * 20,
        problem=problem,
        prompt="",
        samples=samples,
        own_solutions={},
    )
    setup = DECODERS["sc"].parse_suffix("@3")
    assert setup is not None
    task = builtin_tasks()["embedded"]
    [record] = grade_problems(task, [decoded], [setup], ["sc@3"], workers=1)
    assert record.samples[0].correct
    entry = record.decoded["sc@3"]
    assert (entry.correct, entry.answer, entry.status) == (False, None, "no_answer")
    assert record_validator().validate_python(record.to_json()) == record


def test_classes_do_not_depend_on_the_order_of_answers() -> None:
    """A 5 without unit agrees with 5 m and with 5 cm, which differ from each other."""
    pool = ["5 m", "5", "5 cm", "5 m", "7"]
    groups = set()
    for answers in itertools.permutations(pool):
        classes = classes_of(answers)
        answers_by_class: dict[int | None, list[str]] = {}
        for answer, class_index in zip(answers, classes, strict=True):
            answers_by_class.setdefault(class_index, []).append(answer)
        groups.add(frozenset(tuple(sorted(members)) for members in answers_by_class.values()))
    assert groups == {frozenset({("5 m", "5 m"), ("5",), ("5 cm",), ("7",)})}
    assert classes_of(["5", "5 m"]) == [0, 0]


def test_weighted_votes_sum_the_weights_of_a_class() -> None:
    for case in range(CASES):
        draw = random.Random(case)
        answers = random_answers(draw, draw.randint(1, 10))
        weights = [draw.choice([None, 0.0, 0.25, 0.5, 1.0]) for _ in answers]
        totals: dict[int, float] = {}
        for answer, weight in zip(answers, weights, strict=True):
            if answer:
                totals[KIND[answer]] = totals.get(KIND[answer], 0.0) + (weight or 0.0)
        chosen = weighted_vote(classes_of(answers), weights)
        if not totals:
            assert chosen is None
            continue
        kinds = [KIND[a] if a else None for a in answers]
        tied = [kind for kind, total in totals.items() if total == max(totals.values())]
        assert chosen == min(kinds.index(kind) for kind in tied)


def test_equal_weights_are_a_plain_vote() -> None:
    for case in range(CASES):
        classes = classes_of(random_answers(random.Random(case), 7))
        assert weighted_vote(classes, [0.5] * 7) == vote(classes)


PLAIN_AGGREGATES: dict[str, Callable[[list[float]], float]] = {
    "mean": lambda rewards: sum(rewards) / len(rewards),
    "min": min,
    "prod": math.prod,
    "last": lambda rewards: rewards[-1],
}


@pytest.mark.parametrize("aggregate", PLAIN_AGGREGATES)
def test_best_of_n_selects_the_first_solution_with_the_highest_reward(aggregate: str) -> None:
    for case in range(CASES):
        draw = random.Random(case)
        rewards: list[Any] = [
            draw.choice(
                [None, [], [draw.choice([0.25, 0.5, 1.0]) for _ in range(draw.randint(1, 3))]]
            )
            for _ in range(draw.randint(1, 9))
        ]
        ranked = [
            PLAIN_AGGREGATES[aggregate](step_rewards) if step_rewards else -1.0
            for step_rewards in rewards
        ]
        assert best_of_n(
            [aggregate_rewards(step_rewards, aggregate) for step_rewards in rewards]
        ) == ranked.index(max(ranked))


def test_best_of_n_takes_the_solution_whose_worst_step_is_best() -> None:
    sampler = FixedSampler({"2+2?": ["a\nb", "c\nd"]})
    scorer = TableScorer({"a\nb": [0.9, 0.1], "c\nd": [0.5, 0.6]})
    samples = sample_solutions(["2+2?"], sampler, SamplingSpec(n=2), "newline@1")
    [solutions] = add_rewards(["2+2?"], samples, scorer)
    assert [solution.rewards for solution in solutions] == [(0.9, 0.1), (0.5, 0.6)]
    assert best_of_n([aggregate_rewards(solution.rewards, "min") for solution in solutions]) == 1
    assert best_of_n([aggregate_rewards(solution.rewards, "mean") for solution in solutions]) == 1
    assert best_of_n([max(solution.rewards or ()) for solution in solutions]) == 0


@pytest.mark.parametrize("segmenter", ["auto@1", "newline@1", "both@1"])
@pytest.mark.parametrize("step_tokens", [20, 64])
def test_beam_search_keeps_the_stop_strings_of_steps_out_of_the_thinking(
    segmenter: str, step_tokens: int
) -> None:
    sampler = LoadedSampler(ThinkingSampler())
    spec = BeamSpec(b1=2, b2=1, max_steps=90, step_tokens=step_tokens)
    sampling = SamplingSpec(n=1, max_tokens=400)
    prompt = "2+2?<think>\n"
    [(solution, _)] = beam_search([prompt], sampler, Judge(0), sampling, segmenter, spec)
    thinking = find_thinking(prompt, solution.text)
    assert thinking.closed and solution.finish_reason == "stop"
    assert solution.text[: thinking.end] == f"{THOUGHT}</think>\n\n"
    assert solution.text.endswith(ANSWER)


def test_thinking_is_one_step_and_only_the_text_after_it_is_graded() -> None:
    closed = "so 5?\nno\n</think>\nIt is\n\\boxed{4}"
    open_ = "first\n\\boxed{4}\nwait"
    texts = {"2+2?<think>\n": [closed, open_], "2+2?": [f"[THINK]{open_}", "It is\n\\boxed{4}"]}
    samples = sample_solutions([*texts], FixedSampler(texts), SamplingSpec(n=2), "newline@1")
    step_counts = [[len(solution.steps) for solution in solutions] for solutions in samples]
    assert step_counts == [[3, 1], [1, 2]]
    problem = Problem("2+2?", "4", "embedded", "test", {})
    items = [
        TaskResponse(problem, text, "stop", prompt)
        for prompt, responses in texts.items()
        for text in responses
    ]
    verdicts = [
        graded.verdict for graded in grade_task_responses(builtin_tasks()["embedded"], items)
    ]
    assert [verdict.status for verdict in verdicts] == [
        "correct",
        "no_answer",
        "no_answer",
        "correct",
    ]
    assert {verdicts[1].rule, verdicts[2].rule} == {"unclosed-thinking"}


def test_greedy_requests_one_sample_at_temperature_0() -> None:
    requested_specs: list[SamplingSpec] = []

    class Recorder(Writer):
        def sample(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
            requested_specs.append(spec)
            return super().sample(prompts, spec)

    greedy_spec = greedy_sampling(SamplingSpec(n=5, temperature=0.8, seed=3))
    [[solution]] = sample_solutions(["p"], Recorder(0), greedy_spec, "newline@1")
    assert requested_specs == [SamplingSpec(n=1, temperature=0.0, seed=3)]
    assert "".join(solution.steps) == solution.text


def reference_search(
    prompt: str, writer: Writer, judge: Judge, sampling: SamplingSpec, spec: BeamSpec
) -> tuple[str, tuple[str, ...], bool]:
    """Run algorithm 1 of the paper line by line, with lines as steps."""
    counts: Counter[str] = Counter()

    def next_step(text: str, first: bool) -> tuple[str, bool]:
        index = counts[text] if not first else counts[""]
        counts[text] += 1
        step = replace(sampling, n=1, stop=("\n",), max_tokens=spec.step_tokens)
        completion = writer.one(prompt + text, index, step)
        if completion.stop_string:
            return text + completion.text + "\n", False
        return text + completion.text, completion.finish_reason == "stop"

    def reward(text: str) -> float:
        rewards = judge.one(prompt, split_at_newlines(text))
        return AGGREGATES[spec.aggregate].compute(rewards) if rewards else -math.inf

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
    text, done, _ = top(1, beam)[0]  # line 28
    return text, tuple(split_at_newlines(text)), done


def random_spec(draw: random.Random) -> BeamSpec:
    return BeamSpec(
        b1=draw.randint(1, 5),
        b2=draw.randint(1, 4),
        max_steps=draw.randint(1, 6),
        step_tokens=draw.choice([2, 50]),
        first_keep=draw.choice(["b1", "b2"]),
        aggregate=draw.choice(list(AGGREGATES)),
    )


def test_beam_search_equals_the_reference_on_hundreds_of_random_cases() -> None:
    lengths = Counter[int]()
    finished = Counter[bool]()
    for case in range(CASES):
        draw = random.Random(case)
        spec = random_spec(draw)
        writer = Writer(case)
        judge = Judge(case, unread=draw.choice([0.0, 0.2]))
        prompts = [f"p{i}\n" for i in range(draw.randint(1, 3))]
        sampling = SamplingSpec(n=1, temperature=0.8)
        results = beam_search(prompts, writer, judge, sampling, "newline@1", spec)
        for prompt, (solution, _) in zip(prompts, results, strict=True):
            text, steps, done = reference_search(prompt, writer, judge, sampling, spec)
            assert (solution.text, solution.steps) == (text, steps)
            assert (solution.finish_reason == "stop") == done
            assert solution.rewards == _tuple(judge.one(prompt, steps))
            lengths[len(steps)] += 1
            finished[done] += 1
    # The random cases contain finished and unfinished searches of many lengths.
    assert len(lengths) >= 5 and min(finished.values()) > CASES // 4


def _tuple(rewards: list[float] | None) -> tuple[float, ...] | None:
    return None if rewards is None else tuple(rewards)


class Tree:
    """Sampler that continues a text by its listed branches; sample i takes branch i."""

    model = ModelRef("tree", "0")

    def __init__(self, branches: dict[str, list[str]]) -> None:
        self.branches = branches
        self.requests: list[list[tuple[str, int]]] = []

    def sample(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
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


class StepTableScorer:
    """Scorer that looks up the reward of every step in a table."""

    model = ModelRef("by-last-step", "0")

    def __init__(self, rewards: dict[str, float]) -> None:
        self.rewards = rewards
        self.seen: list[tuple[str, ...]] = []

    def score(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        self.seen += [tuple(item.steps) for item in items]
        return [[self.rewards[step.strip()] for step in item.steps] for item in items]


def search(
    tree: Tree, rewards: dict[str, float], **spec: Any
) -> tuple[Any, DecodingCost, StepTableScorer]:
    scorer = StepTableScorer(rewards)
    sampling = SamplingSpec(n=1)
    [(solution, cost)] = beam_search(["q:"], tree, scorer, sampling, "newline@1", BeamSpec(**spec))
    return solution, cost, scorer


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
    solution, _, _ = search(tree, {"a": 0.5, "ab": 0.5, "abc": 0.5}, b1=1, b2=1, max_steps=2)
    assert (solution.steps, len(tree.requests)) == (("ab",), 2)
    for options_class in (BeamSpec, RunOptions):
        text = " ".join(field_help(options_class)["max_steps"].split())
        assert text.startswith("Maximum number of generations per solution")


def test_line_10_limits_the_number_of_steps() -> None:
    tree = Tree({"q:": ["a\n"], "q:a\n": ["a\n"], "q:a\na\n": ["a\n"]})
    solution, _, _ = search(tree, REWARDS, b1=1, b2=1, max_steps=1)
    assert (solution.text, solution.finish_reason, len(tree.requests)) == ("a\n", "length", 1)
    solution, _, _ = search(tree, REWARDS, b1=1, b2=1, max_steps=3)
    assert solution.steps == ("a\n", "a\n", "a\n") and solution.finish_reason == "length"


def test_line_11_stops_when_every_solution_is_complete() -> None:
    tree = Tree({"q:": ["a", "b"]})
    solution, _, scorer = search(tree, REWARDS, b1=2, b2=2, max_steps=9)
    assert len(tree.requests) == 1 and len(scorer.seen) == 2
    assert (solution.text, solution.finish_reason) == ("a", "stop")


def test_lines_16_to_24_keep_the_best_of_all_next_steps() -> None:
    tree = Tree(
        {"q:": ["a\n", "b\n"], "q:a\n": ["low\n", "more\n"], "q:b\n": ["high\n", "end\n"]}
        | {"q:b\nhigh\n": ["end", "low"], "q:b\nend\n": ["low", "more"]}
    )
    solution, cost, scorer = search(tree, REWARDS, b1=2, b2=2, max_steps=3)
    pairs = [("a\n", "low\n"), ("a\n", "more\n"), ("b\n", "high\n"), ("b\n", "end\n")]
    assert scorer.seen[2:6] == pairs
    # Line 24 keeps no continuation of a.
    assert tree.requests[2] == [("q:b\nhigh\n", 2), ("q:b\nend\n", 2)]
    assert solution.text == "b\nhigh\nend"  # line 28: 0.6 of 0.6, 0.1, 0.1, 0.2
    assert cost == DecodingCost(2 + 4 + 4, 2 + 4 + 4, pytest.approx(cost.seconds))


def test_a_finished_solution_stays_in_the_beam_and_is_scored_once() -> None:
    tree = Tree({"q:": ["a", "b\n"], "q:b\n": ["high\n", "low\n"], "q:b\nhigh\n": ["low", "low"]})
    solution, _, scorer = search(tree, REWARDS, b1=2, b2=2, max_steps=4)
    assert solution.text == "a" and solution.rewards == (0.9,)
    assert scorer.seen.count(("a",)) == 1


def test_a_step_that_stopped_on_length_is_not_finished() -> None:
    tree = Tree({"q:": ["en…"], "q:en": ["d"]})
    solution, _, scorer = search(tree, REWARDS | {"en": 0.4}, b1=1, b2=1, max_steps=4)
    assert (solution.text, solution.finish_reason) == ("end", "stop")
    assert scorer.seen == [("en",), ("end",)]


def test_a_full_context_ends_the_search() -> None:
    class Full(Tree):
        def sample(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
            self.requests.append([])
            return [[Completion("", "length", 0)] * spec.n for _ in prompts]

    full = Full({})
    solution, _, _ = search(full, REWARDS, b1=2, b2=1, max_steps=9)
    assert (solution.text, solution.finish_reason, len(full.requests)) == ("", "length", 1)


def test_equal_solutions_in_the_beam_are_continued_by_different_samples() -> None:
    tree = Tree({"q:": ["a\n", "a\n"], "q:a\n": ["low", "more", "end", "high"]})
    solution, _, _ = search(tree, REWARDS, b1=2, b2=1, max_steps=2)
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
            def score(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
                seen.extend(items)  # noqa: B023
                return super().score(items)

        spec = BeamSpec(b1=2, b2=1, max_steps=5)
        [(solution, _)] = beam_search(
            ["p"], writer, RecordingJudge(case), SamplingSpec(n=1), segmenter, spec
        )
        assert list(solution.steps) == SEGMENTERS[segmenter].split(solution.text)
        for item in seen:
            assert SEGMENTERS[segmenter].split("".join(item.steps)) == list(item.steps)
        lengths = [len(item.steps) for item in seen]
        assert all(later - earlier <= 1 for earlier, later in pairwise(lengths))
        assert max(lengths) <= 5


def test_stop_strings_start_the_next_step() -> None:
    assert step_stops("auto@1", "") == ("\n\n", *step_stops("step-marker@1", ""))
    assert step_stops("auto@1", "Step 1: a\n") == step_stops("step-marker@1", "")
    assert step_stops("auto@1", "a\n\n") == ("\n\n",)
    assert step_stops("auto@1", "a\n") == ("\n",)
    assert [step_ending(stop) for stop in ("\n", "\n\n", "\nStep ")] == ["\n", "\n\n", "\n"]


@pytest.mark.parametrize("field", ["b1", "b2", "max_steps", "step_tokens"])
def test_widths_below_one_are_refused(field: str) -> None:
    with pytest.raises(InputError, match=f"BeamSpec.{field} = 0: expected at least 1"):
        BeamSpec(**{field: 0})
