"""Process rewards: what the reward model reads, aggregates, threads and batches."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fakes import BatchScorer, TableScorer, score_all

import fsdpo_data as fd
from fsdpo_data import rewards
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.rewards.shared_scorer import SharedScorer

GOOD = "a\nb\nc"
LONG = "d\ne"
TABLE: Mapping[str, Sequence[float] | None] = {GOOD: [0.5, 0.25, 1.0], LONG: None, "": []}


class RecordingScorer(BatchScorer):
    """A scorer that records its batches; the reward of a step is its length.

    Args:
        gate: The scorer waits for this event in its first call.
    """

    model = ModelRef("recording", "0")

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.batches: list[list[ScorerInput]] = []
        self.is_busy = threading.Event()
        self._gate = gate

    def compute_rewards(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        self.batches.append(list(items))
        self.is_busy.set()
        if self._gate is not None and len(self.batches) == 1:
            assert self._gate.wait(60)
        if any(item.steps == ["error"] for item in items):
            raise InputError("a bad solution.")
        return [[float(len(step)) for step in item.steps] for item in items]


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]


# --- rewards --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("aggregate", "reward"), [("min", 0.25), ("mean", 7 / 12), ("prod", 0.125), ("last", 1.0)]
)
def test_the_reward_is_an_aggregate_of_the_steps(aggregate: str, reward: float) -> None:
    process = rewards.process(TableScorer(TABLE), aggregate)
    metrics: dict[str, float] = {}
    result = process(
        prompts=["?"] * 3, completions=[GOOD, LONG, ""], log_metric=metrics.__setitem__
    )
    assert result == [pytest.approx(reward), None, None]
    assert metrics == {"rewards/process_reward/undecided": pytest.approx(2 / 3)}


def test_step_rewards_come_as_lists() -> None:
    process = rewards.process(TableScorer(TABLE), per_step=True)
    assert process(["?"] * 3, [GOOD, LONG, ""]) == [[0.5, 0.25, 1.0], None, []]
    scored = process.score_steps(["?"], [GOOD])
    assert scored == [rewards.StepRewards(["a\n", "b\n", "c"], [0.5, 0.25, 1.0])]


def test_the_segmenter_and_the_thinking_give_the_steps() -> None:
    scorer = RecordingScorer()
    texts = ["<think>\nhm\n\nhm\n</think>\nA.\n\nB.", "A.\n\nB\nC."]
    rewards.process(scorer)(["?"] * 2, texts)
    rewards.process(scorer, segmenter="newline")(["?"] * 2, texts)
    counts = [[len(item.steps) for item in batch] for batch in scorer.batches]
    assert counts == [[3, 2], [3, 3]]


def test_all_trainers_get_the_same_reward() -> None:
    process = rewards.process(TableScorer(TABLE))
    verl = rewards.verl_compute_score(process, undecided=-1)
    assert verl("math", GOOD, "42", {"prompt": "?"}) == {"score": 0.25, "undecided": 0.0}
    assert verl("math", LONG, "42", {"prompt": "?"}) == {"score": -1, "undecided": 1.0}
    with_question = rewards.process(TableScorer(TABLE), question_column="question")
    with pytest.raises(InputError, match="question"):
        rewards.verl_compute_score(with_question)("math", GOOD, "42", {})


# --- what the reward model reads ------------------------------------------------------------------


def scorer_inputs(prompt: Any, /, **options: Any) -> list[tuple[str, str | None]]:
    """Return the prompt and the question that a loaded scorer gets."""
    scorer = RecordingScorer()
    columns = {"problem": ["2+2?"]} if options.get("question_column") == "problem" else {}
    rewards.process(scorer, **options)([prompt], ["A."], **columns)
    return [(item.prompt, item.question) for batch in scorer.batches for item in batch]


def test_a_reward_model_reads_the_prompt_and_the_question() -> None:
    assert scorer_inputs("Q: 2+2?\nA:") == [("Q: 2+2?\nA:", None)]
    assert scorer_inputs("Q: 2+2?\nA:", question_column="problem") == [("Q: 2+2?\nA:", "2+2?")]
    assert scorer_inputs("2+2?", question_column="prompt") == [("2+2?", "2+2?")]
    ((prompt, question),) = scorer_inputs(user("2+2?"), template="alpaca")
    assert question == "2+2?" and "2+2?" in prompt and prompt != "2+2?"
    assert scorer_inputs("other", template="alpaca", question_column="problem") == [
        (prompt, question)
    ]
    assert scorer_inputs("other", template="alpaca", question_column="prompt")[0][1] == "other"


@pytest.mark.parametrize("prompt", [user("2+2?"), ""])
def test_a_scorer_needs_a_prompt_as_text(prompt: Any) -> None:
    with pytest.raises(InputError, match=r"process.template.*question_column"):
        scorer_inputs(prompt)


def test_a_template_needs_the_question() -> None:
    with pytest.raises(InputError, match=r"process.question_column.*more than the question"):
        scorer_inputs("Q: 2+2?\nA:", template="alpaca")


def test_bad_options_are_refused_at_once() -> None:
    scorer = TableScorer(TABLE)
    for options in (
        {"aggregate": "median"},
        {"segmenter": "words"},
        {"template": "no-template"},
        {"engine": fd.ScorerOptions()},
    ):
        with pytest.raises(InputError):
            rewards.process(scorer, **options)
    with pytest.raises(InputError, match="no-such-prm"):
        rewards.process("no-such-prm")


# --- threads --------------------------------------------------------------------------------------


def test_calls_of_threads_share_batches_and_one_model() -> None:
    gate = threading.Event()
    scorer = RecordingScorer(gate)
    loads = []

    def load() -> RecordingScorer:
        loads.append(1)
        return scorer

    process = rewards.process(scorer)
    process._scorer = SharedScorer(load)
    texts = [f"{'x' * index}" for index in range(1, 33)]
    with ThreadPoolExecutor(32) as threads:
        futures = [threads.submit(process, ["?"], [text]) for text in texts]
        assert scorer.is_busy.wait(60)
        while len(process._scorer._waiting) < 31:
            gate.wait(0.01)
        gate.set()
        assert [future.result(60) for future in futures] == [[float(n)] for n in range(1, 33)]
    assert loads == [1]
    assert [len(batch) for batch in scorer.batches] == [1, 31]


def test_an_error_reaches_only_its_call() -> None:
    gate = threading.Event()
    scorer = RecordingScorer(gate)
    process = rewards.process(scorer)
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(process, ["?"], ["x"])
        assert scorer.is_busy.wait(60)
        bad = threads.submit(process, ["?"], ["error"])
        good = threads.submit(process, ["?"], ["xx"])
        while len(process._scorer._waiting) < 2:
            gate.wait(0.01)
        gate.set()
        assert first.result(60) == [1.0] and good.result(60) == [2.0]
        with pytest.raises(InputError, match="a bad solution"):
            bad.result(60)


def test_another_process_loads_the_model_again() -> None:
    process = rewards.process(TableScorer(TABLE))
    assert process(["?"], [GOOD]) == [0.25]
    assert pickle.loads(pickle.dumps(process))(["?"], [GOOD]) == [0.25]


# --- reward models --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    from random_model import save_random_model, save_random_prm

    folder = tmp_path_factory.mktemp("prm")
    return save_random_prm(folder / "prm", save_random_model(folder / "policy"))


def test_a_named_model_gives_the_rewards_of_its_scorer(prm: Path) -> None:
    engine = fd.ScorerOptions(device="cpu")
    process = rewards.process(prm, per_step=True, engine=engine)
    (expected,) = score_all(
        fd.load_scorer(str(prm), device="cpu"), [fd.ScorerInput("2+2?", ["20 + 22\n", "= 42"])]
    )
    assert expected is not None and len(expected) == 2
    assert process(["2+2?"], ["20 + 22\n= 42"]) == [expected]
    assert process(["2+2?"], ["20 + 22\n" * 200]) == [None]  # longer than the context
    assert pickle.loads(pickle.dumps(process))(["2+2?"], ["20 + 22\n= 42"]) == [expected]


def test_a_model_of_fsdpo_train_has_its_template_for_chats(prm: Path, tmp_path: Path) -> None:
    import shutil

    from fsdpo_data.models.prompts import get_template
    from fsdpo_data.models.trained_template import write_trained_template

    with pytest.raises(InputError, match=r"process.template"):
        rewards.process(prm)([user("2+2?")], ["A."])
    trained = Path(shutil.copytree(prm, tmp_path / "prm"))
    write_trained_template(trained, get_template("alpaca@1").ref)
    prompt = get_template("alpaca@1").render("2+2?")
    options = {"per_step": True, "engine": fd.ScorerOptions(device="cpu")}
    process = rewards.process(trained, **options)
    assert process([user("2+2?")], ["20\n22"]) == process([prompt], ["20\n22"])
    assert process([prompt], ["20\n22"]) != process(["2+2?"], ["20\n22"])


def test_a_published_model_reads_the_question(shared: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from published import save_published

    folder = save_published(tmp_path / "math-shepherd-mistral-7b-prm", "math-shepherd", shared)
    process = rewards.process(folder, per_step=True, engine=fd.ScorerOptions(device="cpu"))
    chat_rewards = process([user("2+2?")], ["It is\n\n4."])
    assert len(chat_rewards[0]) == 2
    make = partial(rewards.process, folder, per_step=True, engine=fd.ScorerOptions(device="cpu"))
    assert (
        make(question_column="problem")(["Q:"], ["It is\n\n4."], problem=["2+2?"]) == chat_rewards
    )
    verl = rewards.verl_compute_score(make(question_column="question"))
    score = verl("math", "It is\n\n4.", "4", {"question": "2+2?"})["score"]
    assert score == pytest.approx(min(chat_rewards[0]))
    with pytest.raises(InputError, match="question_column"):
        process(["Q: 2+2?"], ["It is\n\n4."])
    with pytest.raises(InputError, match="'question'"):
        verl("math", "It is\n\n4.", "4", {})
