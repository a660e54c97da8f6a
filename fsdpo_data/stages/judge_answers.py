"""Ask a judge about the answers that the grader left undecided.

A reply is one line of a :class:`~fsdpo_data.dataset.run_directory.RunDir` in a folder of the new
dataset or run, and survives an interruption. Equal prompts are asked once. A verdict of the grader
that is not ``undecided`` never changes. A reply that cannot be read leaves the answer undecided.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fsdpo_data.answers import GradingRequest, Verdict
from fsdpo_data.core.entities import JUDGE_RULE_PREFIX, UNDECIDED
from fsdpo_data.core.failures import FailurePolicy
from fsdpo_data.core.identity import ID_VERSION, digest
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.sampling import Prompt, SamplingSpec
from fsdpo_data.dataset.run_directory import RunDir
from fsdpo_data.dataset.stage_records import AnswerJudgeStats
from fsdpo_data.engines.answer_judge import AnswerJudgeSettings, judge_errors, read_judge
from fsdpo_data.engines.answer_judge_formats import (
    ANSWER_JUDGE_FORMATS,
    DEFAULT_FORMAT,
    AnswerJudgeFormat,
    JudgeDecision,
    JudgeQuestion,
    add_prompt,
)
from fsdpo_data.engines.samplers import Sampler, open_engine
from fsdpo_data.engines.weights import resolve_judge
from fsdpo_data.models.prompts import Template
from fsdpo_data.stages.continuations import (
    ContinuationSampler,
    Prefix,
    make_continuation_sampler,
    sum_tokens_and_seconds,
)

FOLDER = "answer_judge"  #: Folder of the replies inside the directory of the dataset or run.


#: An answer whose prompt the engine refuses stays undecided, as if there were no judge.
_SKIP_REFUSED = FailurePolicy("100%")


@dataclass(frozen=True)
class AnswerJudge:
    """A judge of undecided answers, whose model is resolved and not loaded."""

    judge_format: AnswerJudgeFormat  #: Its prompt, and how its replies are read.
    template: Template  #: The prompt template.
    reply_sampler: ContinuationSampler  #: Samples one reply to each prompt.

    @property
    def settings(self) -> AnswerJudgeSettings:
        """Everything that decides the verdicts."""
        reply_settings = self.reply_sampler.settings
        return AnswerJudgeSettings(
            model=reply_settings.model,
            format=self.judge_format.name,
            format_digest=self.judge_format.digest,
            prompt_sha256=self.judge_format.prompt_digest,
            template=self.template.ref,
            sampling=reply_settings.sampling,
            engine=reply_settings.engine,
        )

    @property
    def rule(self) -> str:
        """The start of the rules of its verdicts, such as ``judge/xVerify-8B-I@0d2f…``."""
        model = self.reply_sampler.settings.model
        return f"{JUDGE_RULE_PREFIX}{model.name}@{model.revision}"

    @property
    def special_tokens(self) -> Collection[str]:
        """The special tokens of the judge's tokenizer.

        Empty if a server has the tokenizer, or the template is not a chat template.
        """
        chat = self.template.chat
        return () if chat is None else tuple(chat.tokenizer.all_special_tokens)

    def prompts(self, items: Sequence[JudgeQuestion]) -> list[str]:
        """Return the prompts for answers."""
        special_tokens = self.special_tokens
        return [
            self.template.render(self.judge_format.render(item, special_tokens)) for item in items
        ]


def resolve_answer_judge(judge: str | None) -> AnswerJudge | None:
    """Resolve the judge of the option ``judge``; None without a judge.

    Args:
        judge: A model, or the TOML file of a judge.

    Raises:
        InputError: if the model, the format or its prompt does not exist, or the file of the judge
            cannot be used.
        UnavailableError: if the engine is not installed, or the Hub cannot be reached.
    """
    if judge is None:
        return None
    spec = read_judge(judge)
    with judge_errors(judge):
        if spec.format is None:
            folder = Path(spec.model)  # "models/xVerify-8B-I" may be a folder or a repository
            name = folder.absolute().name if folder.is_dir() else spec.model.partition("@")[0]
            listed_format = ANSWER_JUDGE_FORMATS.find_by_model(name)
            judge_format = listed_format or ANSWER_JUDGE_FORMATS[DEFAULT_FORMAT]
        else:
            judge_format = ANSWER_JUDGE_FORMATS.find(spec.format)
        judge_format = add_prompt(judge_format, spec.prompt)
        model = resolve_judge(spec.model, spec.engine, judge_format.template)
        sampling = SamplingSpec(
            n=1,
            temperature=judge_format.temperature,
            top_p=judge_format.top_p,
            max_tokens=spec.max_tokens or judge_format.max_tokens,
            stop=model.template.stop,
        )
        sampler = make_continuation_sampler(model, sampling, spec.engine, "judge")
    make_sampler = partial(_load_judge, judge, sampler.make_sampler)
    return AnswerJudge(
        judge_format=judge_format,
        template=model.template,
        reply_sampler=replace(sampler, make_sampler=make_sampler),
    )


def _load_judge(judge: str, make_sampler: Callable[[], Sampler]) -> Sampler:
    """Load the sampler of a judge; errors name the option ``judge`` or its file."""
    with judge_errors(judge):
        return make_sampler()


class JudgeSession:
    """The work of a judge on one dataset or run; use :func:`open_judge_session`."""

    def __init__(self, judge: AnswerJudge, run: RunDir, progress: Progress) -> None:
        self.judge = judge
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
                has_tolerance = verdicts[index].exactly_correct is not None
                # The rule that found the answer decides whether it votes, also after the judge.
                extraction_rule = verdicts[index].rule.partition("/")[0]
                new_verdicts[index] = verdicts[index]._replace(
                    status=decision,
                    rule=f"{self.judge.rule}/{extraction_rule}",
                    unread="",
                    exactly_correct=decision == "correct" if has_tolerance else None,
                )
        return new_verdicts

    def decide(self, items: Sequence[JudgeQuestion]) -> list[JudgeDecision]:
        """Return the decision on each answer.

        It is ``undecided`` also for replies without a verdict, and for prompts that the engine
        refuses. Both are counted as unreadable.
        """
        prompts = self.judge.prompts(items)
        prefixes = [Prefix(_prompt_id(prompt), Prompt(prompt)) for prompt in prompts]
        sampler = self.judge.reply_sampler
        failures = replace(sampler, failure_policy=_SKIP_REFUSED).open_failures(self._run)
        sampler.sample_into(self._run, lambda: prefixes, self._progress, failures)
        decisions: list[JudgeDecision] = []
        reply_ids = [prefix.id for prefix in prefixes if prefix.id in self._run.line_spans]
        records = {record.problem_id: record for record in self._run.read_records(reply_ids)}
        for prefix, prompt in zip(prefixes, prompts, strict=True):
            decision = None
            if record := records.get(prefix.id):
                [reply] = record.completions
                decision = self.judge.judge_format.read_reply(
                    prompt, reply.text, reply.finish_reason
                )
            self._counts["unreadable"] += decision is None
            decisions.append(decision or "undecided")
        self._counts.update(decisions)
        return decisions

    def stats(self) -> AnswerJudgeStats:
        """Return the number of decisions so far, and the cost of all replies on disk."""
        tokens, seconds = sum_tokens_and_seconds(self._run)
        counts = self._counts
        return AnswerJudgeStats(
            answers=counts["correct"] + counts["incorrect"] + counts["undecided"],
            correct=counts["correct"],
            incorrect=counts["incorrect"],
            undecided=counts["undecided"],
            unreadable=counts["unreadable"],
            replies=len(self._run.line_spans),
            tokens=tokens,
            seconds=seconds,
        )


@contextlib.contextmanager
def open_judge_session(
    judge: AnswerJudge, root: Path, progress: Progress
) -> Iterator[JudgeSession]:
    """Open the replies of a judge in a directory that the caller has locked.

    The model is loaded when a reply is missing. If it was loaded here, it is closed at the end.
    """
    sampler = judge.reply_sampler
    with (
        sampler.open_run(root / FOLDER) as run,
        open_engine(sampler.make_sampler) as load_sampler,
    ):
        reply_sampler = replace(sampler, make_sampler=load_sampler)
        yield JudgeSession(replace(judge, reply_sampler=reply_sampler), run, progress)


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
