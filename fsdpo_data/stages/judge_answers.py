"""Ask a judge about the answers that the grader left undecided.

A reply is one line of a :class:`~fsdpo_data.dataset.run_directory.RunDir` in a folder of the new
dataset or run, and survives an interruption. Equal prompts are asked once. A verdict of the grader
that is not ``undecided`` never changes. A reply that cannot be read leaves the answer undecided.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

from fsdpo_data.answers import GradingRequest, Verdict
from fsdpo_data.core.entities import UNDECIDED
from fsdpo_data.core.failures import STOP_AT_FIRST, FailureLog
from fsdpo_data.core.identity import ID_VERSION, digest
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.sampling import add_tokens
from fsdpo_data.dataset.run_directory import RunDir
from fsdpo_data.dataset.stage_records import AnswerJudgeStats
from fsdpo_data.engines.answer_judge import AnswerJudge
from fsdpo_data.engines.answer_judge_formats import JudgeDecision, JudgeQuestion
from fsdpo_data.engines.samplers import close_loaded_engine
from fsdpo_data.stages.sample import sample_missing

FOLDER = "answer_judge"  #: Folder of the replies inside the directory of the dataset or run.


class JudgeSession:
    """The work of a judge on one dataset or run; use :func:`open_judge_session`."""

    def __init__(self, judge: AnswerJudge, run: RunDir, progress: Progress) -> None:
        self.judge = judge
        self.make_sampler = cache(judge.make_sampler)
        self._run = run
        self._progress = progress
        self._counts = Counter[str]()

    def judge_verdicts(
        self,
        requests: Sequence[GradingRequest],
        verdicts: Sequence[Verdict],
        get_question: Callable[[int], str],
    ) -> list[Verdict]:
        """Return the verdicts, with the decisions of the judge for undecided ones.

        Args:
            requests: The responses.
            verdicts: The verdicts of the grader.
            get_question: Returns the question of a response, by the index of the response.
        """
        new_verdicts = list(verdicts)
        indices = [index for index, verdict in enumerate(verdicts) if verdict.status == UNDECIDED]
        items = [
            judge_question(get_question(index), requests[index], verdicts[index].answer)
            for index in indices
        ]
        for index, decision in zip(indices, self.decide(items), strict=True):
            if decision != UNDECIDED:
                # The judge knows no tolerance, so its decision also holds without the tolerance.
                has_tolerance = verdicts[index].strict is not None
                new_verdicts[index] = verdicts[index]._replace(
                    status=decision,
                    rule=self.judge.rule,
                    unread="",
                    strict=decision == "correct" if has_tolerance else None,
                )
        return new_verdicts

    def decide(self, items: Sequence[JudgeQuestion]) -> list[JudgeDecision]:
        """Return the decision on each answer; ``undecided`` also for replies without a verdict."""
        prompts = self.judge.prompts(items)
        prompt_ids = [_prompt_id(prompt) for prompt in prompts]
        prompts_by_id = dict(zip(prompt_ids, prompts, strict=True))
        sample_missing(
            self._run,
            list(prompts_by_id),
            iter([item for item in prompts_by_id.items() if item[0] not in self._run.line_spans]),
            sampling=self.judge.sampling,
            make_sampler=self.make_sampler,
            batch_size=self.judge.batch_size,
            phase="judge",
            progress=self._progress,
            failures=FailureLog(self._run.path, STOP_AT_FIRST, "prompts"),
        )
        decisions: list[JudgeDecision] = []
        for prompt, record in zip(prompts, self._run.read_records(prompt_ids), strict=True):
            [reply] = record.completions
            decision = self.judge.judge_format.read_reply(prompt, reply.text, reply.finish_reason)
            self._counts["unreadable"] += decision is None
            decisions.append(decision or "undecided")
        self._counts.update(decisions)
        return decisions

    def stats(self) -> AnswerJudgeStats:
        """Return the number of decisions so far, and the cost of all replies on disk."""
        tokens: int | None = 0
        seconds = 0.0
        for record in self._run.read_records(self._run.line_spans):
            [reply] = record.completions
            tokens = add_tokens(tokens, reply.n_tokens)
            seconds += reply.seconds
        counts = self._counts
        return AnswerJudgeStats(
            answers=counts["correct"] + counts["incorrect"] + counts["undecided"],
            correct=counts["correct"],
            incorrect=counts["incorrect"],
            undecided=counts["undecided"],
            unreadable=counts["unreadable"],
            replies=len(self._run.line_spans),
            tokens=tokens,
            seconds=round(seconds, 3),
        )


@contextlib.contextmanager
def open_judge_session(
    judge: AnswerJudge, root: Path, progress: Progress
) -> Iterator[JudgeSession]:
    """Open the replies of a judge in a directory that the caller has locked.

    The model is loaded when a reply is missing, and closed at the end, unless the judge keeps it.
    """
    config = {"model": asdict(judge.model), "sampling": judge.sampling.to_json_values()}
    # The config of the directory covers this folder, so its run has the same spec.
    with RunDir.open(root / FOLDER, config, n_samples=judge.sampling.n, resume=True) as run:
        session = JudgeSession(judge, run, progress)
        try:
            yield session
        finally:
            if not judge.keeps_engine:
                close_loaded_engine(session.make_sampler)


def judge_question(question: str, request: GradingRequest, answer: str | None) -> JudgeQuestion:
    """Return everything that a judge reads about an answer.

    Args:
        question: The question, with the options of a multiple-choice problem.
        request: The request that the grader left undecided.
        answer: The answer that the grader extracted.
    """
    graded_text = request.response[request.thinking.end :]
    return JudgeQuestion(
        question=question,
        gold=" or ".join([request.gold, *request.alternative_golds]),
        answer=answer or "",
        response=graded_text if graded_text.strip() else request.response,
    )


def _prompt_id(prompt: str) -> str:
    """Return the id of a prompt in the file of replies."""
    return digest("answer-judge-prompt", ID_VERSION, prompt)
