"""Recorded responses, as solutions of a dataset that is sealed from them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import shorten
from typing import Any

from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import EngineRef, ModelRef, text_key
from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.core.row_files import read_records, replace_surrogates
from fsdpo_data.core.sampling import UNKNOWN, Completion, SamplingSpec
from fsdpo_data.dataset.stage_records import GradeSettings, SampleSettings
from fsdpo_data.engines.scorers.prm_formats import RECORDED_VALUES, ScoreSettings
from fsdpo_data.exchange.formats import ExchangeFormat, find_response_format
from fsdpo_data.exchange.import_options import ImportOutputsOptions
from fsdpo_data.exchange.prompt_questions import (
    PromptQuestions,
    QuestionIndex,
    known_instructions,
)
from fsdpo_data.exchange.response_formats import (
    Fields,
    RecordedResponse,
    ResponseFields,
    UnknownValues,
    response_key,
)
from fsdpo_data.exchange.row_import import ImportedFile, ImportSource, RowImport
from fsdpo_data.exchange.spool import SolutionSpool
from fsdpo_data.exchange.step_scores import UnusableResponseError, read_steps
from fsdpo_data.models.prompts import RECORDED_TEMPLATE, get_template
from fsdpo_data.problems.golds import describe_solutions
from fsdpo_data.problems.load import (
    MAX_SHOWN_CHARS,
    ProblemSet,
    QuarantinedRow,
    describe_quarantine,
    files_revision,
    load_problems,
)
from fsdpo_data.problems.question_key import normalise_question, question_key
from fsdpo_data.problems.row_formats import RowReading, refuse_unread_parts, require_usable
from fsdpo_data.stages.sample import RECORDED_STEPS, BuildSettings
from fsdpo_data.steps.rewards import OUTCOME_LABELS
from fsdpo_data.steps.segment import segmenter_name

ENGINE = "outputs"  #: Name in the manifest in place of the engine that sampled the solutions.
UNMATCHED_REASON = "the question matches no problem, or several"  #: Reason of quarantine.
_NUMBER = re.compile(r"\d+")


class RecordedResponseImport(RowImport):
    """Stores recorded responses in a spool; their answers are graded when the dataset is sealed."""

    def __init__(self, options: ImportOutputsOptions, spool: SolutionSpool) -> None:
        """Read the problems and the requests that the options name."""
        super().__init__()
        self.options = options
        self.spool = spool
        self.template = get_template(options.template) if options.template else RECORDED_TEMPLATE
        #: The problems of the option ``problems``; if there are any, rows take theirs from here.
        self.gold_problems = ProblemSet()
        if options.problems:
            self.gold_problems = load_problems(
                options.problems, split=options.split, reading=RowReading(gold=options.gold)
            )
        self.source_refs = self.gold_problems.source_refs
        self._problem_of_question = unambiguous_problems(self.gold_problems.problems)
        self._known_questions = QuestionIndex(self._problem_of_question)
        self._problem_of_prompt: dict[bytes, Problem] = {}  # by digest of the prompt
        #: Keys of texts after a question, first the empty one.
        self._instructions = known_instructions(self.template)
        self._prompt_questions = PromptQuestions(self.template if options.template else None)
        self._n_conflicts = 0  # responses whose question has another gold in an earlier row
        self._conflict: tuple[Problem, Problem] | None = None  # the first one
        self._models: dict[str, None] = {}  # a set that keeps the order
        self._left_out_columns: dict[str, None] = {}  # of the rows; also a set
        self._request_offsets = self._read_requests(options.requests) if options.requests else {}
        self._score_offsets: dict[bytes, int] = {}  # of rows of step scores, by key
        self._scored_keys: set[bytes] = set()  # of responses with step scores of that file
        self.has_scores = False  #: Whether a response has step scores.
        self._n_unbounded = 0  # step scores that are no probabilities
        self.has_finish_reasons = False  #: Whether a row has the finish reason of a response.
        self._unknown_values = UnknownValues()
        self._other_models: set[str] = set()  # those that the option ``series`` leaves out
        #: Whether the responses have steps of their own; None before the first response.
        self.has_recorded_steps: bool | None = None

    def read(self, source: ImportSource) -> None:
        """Read all rows; see :meth:`.RowImport.read`."""
        super().read(source)
        if self.options.prm_name != UNKNOWN and not self.has_scores:
            raise self.options.field_error(
                "prm_name",
                "no response has step scores. Expected a list of numbers for each response, in the "
                "field `step_scores`, or in the field that `scores_field` names.",
            )
        self._leave_out_columns()

    def _leave_out_columns(self) -> None:
        """Remove the columns that differ between the responses of a problem from all metadata.

        The metadata of given problems are not those of the rows, and stay.
        """
        if self.gold_problems.problems:
            return
        problems = self.spool.problems
        for problem_id, problem in problems.items() if self._left_out_columns else ():
            metadata = {
                name: value
                for name, value in problem.metadata.items()
                if name not in self._left_out_columns
            }
            problems[problem_id] = replace(problem, metadata=metadata)

    def _note_columns(self, problem_id: str, response: RecordedResponse) -> None:
        """Note the columns of a row that cannot be in the metadata of its problem.

        A problem has the columns of its first row. A column belongs to the responses, not to the
        problems, if two responses of a problem have different values.
        """
        metadata = self.spool.problems[problem_id].metadata
        columns = {
            name: value for name, value in response.unread_columns.items() if value is not None
        }
        for name in dict.fromkeys([*columns, *({} if self.gold_problems.problems else metadata)]):
            if name not in metadata or metadata[name] != columns.get(name):
                self._left_out_columns[name] = None

    def _read_requests(self, file: Path) -> dict[str, int]:
        """Store the prompts of requests; return their offsets by ``custom_id``."""
        offsets: dict[str, int] = {}
        for record in read_records(file):
            name = str(record.fields.get("custom_id"))
            try:
                if name in offsets:
                    raise KeyError(name)
                prompt = _prompt_of_body(record.fields["body"])
            except (KeyError, TypeError, AttributeError, IndexError):
                raise self.options.field_error(
                    "requests",
                    f"row {record.row_number} is not a request of a batch, or repeats the name of "
                    "another request. Expected a unique `custom_id`, and a `body` whose prompt is "
                    "text.",
                ) from None
            offsets[name] = self.spool.write({"prompt": prompt})
        return offsets

    def format_of_row(self, fields: Fields) -> ExchangeFormat:
        """Return the format of a row, with the fields that the options name."""
        row_format = find_response_format(fields, self.options)
        responses = row_format.responses
        assert responses is not None
        changes: dict[str, Any] = {}
        if self.options.steps_field is not None:
            changes["steps"] = (self.options.steps_field,)
        if self.options.scores_field is not None:
            changes["step_scores"] = (self.options.scores_field,)
        if self._problem_of_question:
            changes["gold"] = ()
        elif responses.has_complete_question and self.options.question_field is None:
            refuse_unread_parts(fields)
        if not changes:
            return row_format
        return replace(row_format, responses=replace(responses, **changes))

    def store(
        self, response: RecordedResponse, row_format: ExchangeFormat, file: ImportedFile
    ) -> bool:
        """Store a response; one of another model than the chosen series is left out."""
        if not self.options.selects(response):
            self._other_models.add(response.model)
            return False
        if response.error:
            raise UnusableResponseError(response.error)
        assert row_format.responses is not None
        completion = self._read_steps(response, row_format.responses)
        self._add_response(file.name, response, completion)
        self.has_recorded_steps = completion.step_chars is not None
        if self.options.scores is not None:
            self._scored_keys.add(_key_digest(response.key))
        if completion.step_rewards is not None:
            self.has_scores = True
            self._n_unbounded += sum(not 0 <= score <= 1 for score in completion.step_rewards)
        return True

    def _read_steps(self, response: RecordedResponse, names: ResponseFields) -> Completion:
        """Return a response with its steps, and the scores of its row or of the file of scores."""
        if self.options.scores is not None:
            response = replace(response, step_scores=self._scores_of(response, names))
        completion = read_steps(response, names, self.options.segmenter)
        has_steps = completion.step_chars is not None
        has_other_rows = self.has_recorded_steps not in (None, has_steps)
        if has_other_rows and self.options.segmenter is None:
            raise UnusableResponseError(
                "some rows have steps: expected steps or step scores in all rows, or in none"
            )
        return completion

    def _scores_of(self, response: RecordedResponse, names: ResponseFields) -> Any:
        """Return the step scores of a response in the file of scores."""
        assert self.options.scores is not None
        if not response.key:
            raise UnusableResponseError(
                "no key: the row has no fields that identify the response in the file of scores"
            )
        if not self._score_offsets:
            self._read_scores(self.options.scores, names)
        key = _key_digest(response.key)
        offset = self._score_offsets.get(key)
        if offset is None:
            raise UnusableResponseError(
                f"no step scores: the file of scores has no row {response.key}"
            )
        if key in self._scored_keys:
            raise UnusableResponseError(
                f"an earlier response has the same key {response.key}, and its step scores"
            )
        return self.spool.read(offset)["step_scores"]

    def _read_scores(self, file: Path, names: ResponseFields) -> None:
        """Store the rows of a file of step scores."""
        for record in read_records(file):
            key = response_key(record.fields, names.key)
            scores = names.find_step_scores(record.fields)
            digest_of_key = _key_digest(key)
            if not key or scores is None or digest_of_key in self._score_offsets:
                raise self.options.field_error(
                    "scores",
                    f"row {record.row_number} has no step scores, or repeats the response of an "
                    f"earlier row. Expected {', '.join(names.key)} and "
                    f"{' or '.join(names.step_scores)}.",
                )
            self._score_offsets[digest_of_key] = self.spool.write({"step_scores": scores})

    def _add_response(
        self, source: str, response: RecordedResponse, completion: Completion
    ) -> None:
        """Store a response, its problem and its prompt; UnusableRowError if they do not match."""
        prompt = self._request_prompt(response) if response.request else response.prompt
        problem = self._find_problem(source, response, prompt)
        if self.options.template or not prompt:
            prompt = self.template.render(problem.question)
        prompt = replace_surrogates(prompt)
        key = text_key(prompt)
        first_problem = self._problem_of_prompt.setdefault(key, problem)
        if first_problem.id != problem.id:
            if question_key(first_problem.question) == question_key(problem.question):
                self._n_conflicts += 1
                self._conflict = self._conflict or (first_problem, problem)
            raise UnusableRowError("another problem has the same prompt")
        self.spool.add(problem, prompt, completion)
        self._note_columns(problem.id, response)
        self._models[response.model] = None
        self.has_finish_reasons |= response.has_finish_reason
        self._unknown_values.add(response)

    def _request_prompt(self, response: RecordedResponse) -> str:
        """Return the prompt of the request that a response answers."""
        if response.request not in self._request_offsets:
            raise UnusableRowError(
                f"no request {response.request!r}: give the file of requests with `requests`"
            )
        return str(self.spool.read(self._request_offsets[response.request])["prompt"])

    def _find_problem(self, source: str, response: RecordedResponse, prompt: str) -> Problem:
        """Return the problem of a response, from the given problems or from the row itself."""
        if self._problem_of_question:
            problem = self._find_problem_by_question(question_key(response.question))
            return problem or self._find_problem_by_prompt(response.question, prompt)
        question = response.question or prompt
        for name, value in (("question", question), ("gold", response.gold)):
            if not value.strip():
                raise UnusableRowError(f"the {name} is missing: give the problems with `problems`")
        if question == prompt:
            question = self._prompt_questions.find(prompt)
        return require_usable(
            Problem(
                question,
                response.gold,
                source=source,
                split=self.options.split,
                metadata={
                    name: value
                    for name, value in response.unread_columns.items()
                    if isinstance(value, str | int | float)
                },
            )
        )

    def _find_problem_by_question(self, stated_key: str) -> Problem | None:
        """Return the problem of a stated question, which may end in a known instruction."""
        for instruction in self._instructions:
            if stated_key.endswith(instruction):
                problem = self._problem_of_question.get(stated_key.removesuffix(instruction))
                if problem is not None:
                    return problem
        return None

    def _find_problem_by_prompt(self, question: str, prompt: str) -> Problem:
        """Return the problem whose question is last in a prompt; few-shot examples come first.

        If the row states a question of the prompt, only this part of the prompt counts. After the
        known question, it has at most an instruction that is known. The last known question may be
        one of the examples, if the stated question is unknown. Without a stated question, as in a
        batch, a further question after the last known one shows this.
        """
        problem = self._problem_of_prompt.get(text_key(prompt))
        if problem is not None:
            return problem
        stated_key = question_key(question)
        prompt_key = question_key(prompt)
        is_stated = bool(stated_key) and stated_key in prompt_key and stated_key != prompt_key
        text = question if is_stated else prompt
        key = stated_key if is_stated else prompt_key
        match = self._known_questions.find_last(key)
        if match is None:
            raise UnusableRowError(UNMATCHED_REASON)
        matching_key, end = match
        if is_stated and key[end:] not in self._instructions:
            raise UnusableRowError(
                "the question goes on after a question of the given problems. If it is the same "
                "one, name a field that has only the question with `question_field`"
            )
        if _has_further_question(normalise_question(text), end - len(matching_key), end):
            raise UnusableRowError(
                "the prompt has another question after the last question of the given problems"
            )
        return self._problem_of_question[matching_key]

    def warnings(self) -> Iterator[str]:
        """Yield what a user may overlook in the files."""
        models = [name for name in self._models if name]
        if len(models) > 1 and self.options.model_name is not None:
            yield (
                f"the responses of {len(models)} models are samples of one model here: "
                f"{', '.join(models)}. The option `series` imports one of them."
            )
        if self._left_out_columns:
            yield (
                f"columns that are not imported: {', '.join(self._left_out_columns)}. Their values "
                "differ between the responses of a problem, or are not texts or numbers, or the "
                "option `problems` gives the problems."
            )
        n_problems = len(self.gold_problems.problems)
        n_answered = len(self.spool.problems)
        if n_answered < n_problems:
            yield (
                f"{self.options.file} has responses to {n_answered:,} of the {n_problems:,} given "
                "problems; the dataset excludes the other problems."
            )
        result = self.result
        if warning := describe_quarantine(
            result.quarantined, result.n_rows, result.n_partly_quarantined
        ):
            yield warning + self._describe_split()
        if self._conflict is not None:
            first, other = self._conflict
            yield (
                f"responses left out, because their question has another gold answer in an earlier "
                f"row: {self._n_conflicts:,}, such as "
                f"{shorten(first.question, MAX_SHOWN_CHARS)!r}: {first.answer}, {other.answer}."
            )
        if self._n_unbounded:
            yield (
                f"step scores outside [0, 1]: {self._n_unbounded:,}. So the scores are "
                "no probabilities, and are not used as weights of votes."
            )
        yield from self._prompt_questions.warnings()
        golds = [problem.answer for problem in self.spool.problems.values()]
        if solutions := describe_solutions(golds):
            yield solutions
        yield from self._unknown_values.warnings()
        if not self.has_finish_reasons:
            yield (
                "the rows have no finish reason, so every response counts as finished. A truncated "
                "response then has the outcome `no_answer`, or that of its last number, and gets "
                "step labels."
            )

    def no_rows_error(self, source: ImportSource) -> InputError:
        """Return the error for files without a usable response."""
        series = f" of {self.options.series}" if self.options.series else ""
        if split := self._describe_split():
            message = f"no output{series} matches the given problems.{split}"
            return InputError(f"{source.location}: {message}")
        if self._other_models and not self.quarantined:
            return self.options.unknown_series_error(source.location, self._other_models)
        message = f"{source.location}: the file contains no outputs{series}."
        if self.quarantined:
            message += f" First problem: {self.quarantined[0].reason}."
        return InputError(message)

    def _describe_split(self) -> str:
        """Return the split of the given problems, if questions do not match them; else nothing.

        Most responses are to test problems, and the default split is ``train``. A single file is
        read completely, whatever its split.
        """
        if all(row.reason != UNMATCHED_REASON for row in self.result.quarantined):
            return ""
        sources = [name for name in self.options.problems if not Path(name).is_file()]
        if not sources:
            return ""
        split = self.options.split
        return (
            f" The problems are split {split} of {', '.join(sources)}. For questions of another "
            f"split, name it, such as `split={'test' if split == 'train' else 'train'}`."
        )

    @property
    def quarantined(self) -> list[QuarantinedRow]:
        """All rows that cannot be used, also those of the problems."""
        return [*self.gold_problems.quarantined_rows, *self.result.quarantined]

    def make_spec(self, revision: str, n_samples: int) -> BuildSettings:
        """Return the spec of the dataset."""
        options = self.options
        recording = self.identify_texts(revision) if self._options_decide_texts else revision
        segmenter = segmenter_name(options.segmenter or "auto")
        if self.has_recorded_steps and options.segmenter is None:
            segmenter = RECORDED_STEPS
        score = None
        if self.has_scores:
            score_revision = files_revision([options.scores]) if options.scores else revision
            score = ScoreSettings(
                prm=ModelRef(options.prm_name, UNKNOWN),
                engine=EngineRef(name=ENGINE, dtype=UNKNOWN, recording=score_revision),
                prm_format=RECORDED_VALUES if self._n_unbounded else None,
            )
        return BuildSettings(
            sample=SampleSettings(
                model=ModelRef(options.model_name or self._model_name(), UNKNOWN),
                template=self.template.ref,
                sampling=SamplingSpec(n=n_samples, **options.sampling.values),
                unknown_fields=options.sampling.unknown_fields,
                engine=EngineRef(name=ENGINE, dtype=UNKNOWN, recording=recording),
                segmenter=segmenter,
            ),
            grade=GradeSettings(
                grader=get_grader().version,
                labels=OUTCOME_LABELS,
                grade_thinking=options.grade_thinking,
            ),
            score=score,
        )

    @property
    def _options_decide_texts(self) -> bool:
        """Whether another import of the same files may have other texts at the same positions.

        Responses that are unusable with these options, for example because their step scores are
        missing, may be usable with others.
        """
        options = self.options
        has_renamed_series = options.series is not None and options.model_name is not None
        return bool(self.result.quarantined) or has_renamed_series or bool(options.response_field)

    def _model_name(self) -> str:
        """Return the name of the model in the rows; InputError if they name several."""
        if len(self._models) > 1:
            first_model = next(filter(None, self._models))
            raise self.options.field_error(
                "file",
                f"the file has several models: choose one with `series={first_model}`, or give all "
                "of them one name with `model_name`.",
            )
        return next(iter(self._models)) or UNKNOWN


def unambiguous_problems(problems: Sequence[Problem]) -> dict[str, Problem]:
    """Return problems by question, without questions that have several gold answers.

    A response to such a question does not show which of the problems it answers.
    """
    problems_by_question: dict[str, dict[str, Problem]] = {}
    for problem in problems:
        problems_by_gold = problems_by_question.setdefault(question_key(problem.question), {})
        problems_by_gold[problem.answer] = problem
    return {
        question: next(iter(problems_by_gold.values()))
        for question, problems_by_gold in problems_by_question.items()
        if len(problems_by_gold) == 1
    }


def _has_further_question(text: str, start: int, end: int) -> bool:
    """Return whether the words that introduce a question, such as ``Q:``, follow it again.

    A question without such words cannot be recognised, so examples without them are not found.

    Args:
        text: The text with the question.
        start: Number of characters before the question, without white space.
        end: Number of characters up to the end of the question, without white space.
    """
    positions = [index for index, char in enumerate(text) if not char.isspace()]
    *_, introduction = text[: positions[start]].rstrip().split("\n")
    if not any(map(str.isalpha, introduction)):
        return False
    # Questions may be numbered.
    pattern = _NUMBER.sub(lambda _: r"\d+", re.escape(introduction.strip()))
    return re.search(pattern, text[positions[end - 1] + 1 :]) is not None


def _key_digest(key: tuple[Any, ...]) -> bytes:
    """Return a digest of the values that identify a response."""
    return text_key(repr(key))


def _prompt_of_body(body: Mapping[str, Any]) -> str:
    """Return the prompt of a request, or the last turn of its conversation."""
    prompt = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
    if isinstance(prompt, str):
        return prompt
    return "".join(part["text"] for part in prompt)  # a turn in several parts, without images
