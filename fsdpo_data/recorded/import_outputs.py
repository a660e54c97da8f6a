"""Turn responses that another program recorded into a sealed dataset.

Nothing is sampled; all other stages are the same as in a build. Files are read once, row by row.
Responses go to an unnamed temporary file, one per line. Samples of a problem may therefore be
anywhere in the input, and memory holds only their positions in the temporary file.
"""

import logging
import tempfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import IO, Annotated, Any, NamedTuple

import orjson

from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import store_errors
from fsdpo_data.core.identity import EngineRef, ModelRef, SourceRef, text_key
from fsdpo_data.core.jsonl_log import encode_line
from fsdpo_data.core.options import Group, Option
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.core.row_files import SourceRow, data_files, read_records, replace_surrogates
from fsdpo_data.core.sampling import UNKNOWN, Completion, DeclaredSampling, SamplingSpec
from fsdpo_data.dataset.build_records import GradeSettings, SampleSettings
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.engines.options import Resume, Workers
from fsdpo_data.engines.samplers.replay import BaseReplaySampler
from fsdpo_data.models.prompts import RECORDED_TEMPLATE, get_template
from fsdpo_data.problems.golds import describe_solutions
from fsdpo_data.problems.load import (
    MAX_SHOWN_CHARS,
    ProblemSet,
    describe_quarantine,
    files_revision,
    load_problems,
    quarantine_row,
)
from fsdpo_data.problems.row_formats import (
    RowReading,
    refuse_unread_parts,
    require_usable,
)
from fsdpo_data.recorded.formats import (
    RecordedResponse,
    ResponseFormat,
    ResponseReading,
    find_response_format,
    question_key,
    response_key,
    unknown_format_message,
)
from fsdpo_data.recorded.step_scores import ScoredSteps, UnusableResponseError, read_steps
from fsdpo_data.stages.sample import RECORDED_STEPS, BuildJob, build
from fsdpo_data.stages.score import ScoreSettings
from fsdpo_data.steps.rewards import OUTCOME_LABELS
from fsdpo_data.steps.segment import SEGMENTER_NAMES, segmenter_name

log = logging.getLogger(__name__)

_OUTPUTS_PANEL = "Outputs"
ENGINE = "outputs"  #: Name in the manifest in place of the engine that sampled the solutions.


@dataclass(frozen=True, kw_only=True)
class ImportOutputsOptions(ResponseReading):
    """Turn responses that another program recorded into a sealed dataset.

    Attributes:
        file: JSON lines, JSON, parquet or CSV file. For outputs also a directory or a pattern.
        out: Directory of the new dataset.
        template: Prompt template of the problems. It replaces the prompts in the rows.
        problems: Problems with gold answers, as for `build`. If given, every row takes its problem
            from here: by its question, or by a prompt that ends with the question.
        requests: File with the requests of a batch, matched by `custom_id`.
        series: Name of the model whose responses are imported, for a file with the responses of
            several models.
        model_name: Name of the model that wrote the outputs.
        split: Split of the problems.
        sampling: Sampling settings that are known of the outputs.
        segmenter: Rule that splits solutions into steps, as for `build`. It replaces the steps in
            the rows; step scores then need as many steps.
        scores: File with the step scores of one reward model. Its rows have the fields that
            identify a response, such as `problem_id` and `candidate_index`.
        steps_field: Field with the steps of a response.
        scores_field: Field with the step scores of a response, from 0 to 1.
        prm_name: Name of the reward model that gave the step scores.
        grade_thinking: If a solution has no text after its thinking, grade the answer that the
            thinking marks, for example in a box. By default such a solution has no answer.
        workers: Number of processes that grade.
        resume: Continue the run in `out`.
        source: `outputs`, as the command line names this import.
    """

    file: Annotated[str | Path, Option(positional=True)]
    out: Annotated[str | Path, Option(in_digest=False)]
    template: Annotated[
        str | None, Option(default_text="the recorded prompt, or the question alone")
    ] = None
    problems: Annotated[Sequence[str], Option(panel=_OUTPUTS_PANEL)] = ()
    requests: Annotated[Path | None, Option(panel=_OUTPUTS_PANEL)] = None
    series: Annotated[str | None, Option(panel=_OUTPUTS_PANEL)] = None
    model_name: Annotated[
        str | None, Option(panel=_OUTPUTS_PANEL, default_text="the name in the file")
    ] = None
    split: Annotated[str, Option(panel=_OUTPUTS_PANEL)] = "train"
    sampling: Annotated[
        DeclaredSampling,
        Group(
            panel=_OUTPUTS_PANEL,
            default_text=UNKNOWN,
            help={
                "temperature": "Sampling temperature of the outputs.",
                "top_p": "Probability mass of nucleus sampling of the outputs.",
                "max_tokens": "Maximum number of tokens per solution in the sampling of the "
                "outputs.",
            },
        ),
    ] = DeclaredSampling()
    segmenter: Annotated[
        str | None,
        Option(
            panel=_OUTPUTS_PANEL,
            choices=SEGMENTER_NAMES,
            default_text="the steps in the rows, or auto",
        ),
    ] = None
    scores: Annotated[Path | None, Option(panel=_OUTPUTS_PANEL)] = None
    steps_field: Annotated[
        str | None, Option(panel=_OUTPUTS_PANEL, metavar="FIELD", default_text="by format")
    ] = None
    scores_field: Annotated[
        str | None, Option(panel=_OUTPUTS_PANEL, metavar="FIELD", default_text="by format")
    ] = None
    prm_name: Annotated[str, Option(panel=_OUTPUTS_PANEL)] = UNKNOWN
    grade_thinking: Annotated[bool, Option(panel=_OUTPUTS_PANEL)] = False
    workers: Workers = None
    resume: Resume = False
    source: str = ""


def run_import(options: ImportOutputsOptions, progress: Progress) -> tuple[Path, Manifest]:
    """Read recorded outputs, then segment, grade, label and seal them.

    A problem has as many samples as the file has responses to it. The manifest's ``n`` is the
    maximum over the problems.

    Returns:
        The directory of the dataset, and its manifest.

    Raises:
        InputError: if no row is readable, or the file has several models and ``series`` is missing.
        RunMismatchError: if ``out`` contains another run.
        StoreError: if the disk fails.
    """
    files = data_files(str(options.file), options.split)
    out = Path(options.out)
    with store_errors(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
    with store_errors(out.parent), tempfile.TemporaryFile(dir=out.parent) as spool:
        reader = _OutputReader(options, spool)
        for file in files:
            reader.add(file)
        if not reader.problems:
            raise InputError(_no_outputs_message(options, reader))
        for warning in reader.warnings():
            log.warning(warning)
        revision = files_revision(files)
        outputs_source = SourceRef(Path(options.file).name, revision, options.split)
        sources = reader.gold_problems.source_refs or [outputs_source]
        job = BuildJob(
            sampling=_sample_settings(options, reader, revision),
            grading=GradeSettings(
                grader=get_grader().version,
                labels=OUTCOME_LABELS,
                grade_thinking=options.grade_thinking,
            ),
            scoring=_score_settings(options, revision) if reader.has_scores else None,
            source=ProblemSet(reader.problems, sources, reader.quarantined),
            make_sampler=lambda: reader.sampler,
            workers=options.workers,
            render_prompt=reader.recorded_prompt,
        )
        return out, build(job, out, resume=options.resume, progress=progress)


def _no_outputs_message(options: ImportOutputsOptions, reader: "_OutputReader") -> str:
    """Return the error message for files without a usable response."""
    series = f" of {options.series}" if options.series else ""
    message = f"{options.file}: the file contains no outputs{series}."
    if reader.quarantined:
        message += f" First problem: {reader.quarantined[0].reason}."
    return message


def _sample_settings(
    options: ImportOutputsOptions, reader: "_OutputReader", revision: str
) -> SampleSettings:
    """Return the settings of the samples, after all files are read."""
    segmenter = segmenter_name(options.segmenter or "auto")
    if reader.has_recorded_steps and options.segmenter is None:
        segmenter = RECORDED_STEPS
    return SampleSettings(
        model=ModelRef(options.model_name or reader.model_name(), UNKNOWN),
        template=reader.template.ref,
        sampling=SamplingSpec(n=reader.sampler.max_samples, **options.sampling.values),
        unknown_fields=options.sampling.unknown_fields,
        engine=EngineRef(name=ENGINE, dtype=UNKNOWN, recording=revision),
        segmenter=segmenter,
    )


def _score_settings(options: ImportOutputsOptions, revision: str) -> ScoreSettings:
    """Return the settings of the step scores; ``revision`` is that of the outputs."""
    score_revision = files_revision([options.scores]) if options.scores else revision
    return ScoreSettings(
        prm=ModelRef(options.prm_name, UNKNOWN),
        engine=EngineRef(name=ENGINE, dtype=UNKNOWN, recording=score_revision),
    )


class _SpooledSampler(BaseReplaySampler):
    """Replays completions from a temporary file, by prompt, in the order of the input."""

    model = ModelRef("outputs", "")

    def __init__(self, spool: IO[bytes]) -> None:
        self._spool = spool
        self._offsets: dict[bytes, array[int]] = {}  # of the completions, by prompt

    @property
    def max_samples(self) -> int:
        """The maximum number of completions of one prompt; 1 if there are no completions."""
        return max(map(len, self._offsets.values()), default=1)

    def add(self, prompt: str, completion: Completion) -> None:
        """Store a completion of a prompt."""
        offset = self.write(asdict(completion))
        self._offsets.setdefault(text_key(prompt), array("Q")).append(offset)

    def _replay(self, prompt: str, n: int) -> list[Completion]:
        offsets = self._offsets[text_key(prompt)][:n]
        return [Completion(**self.read(offset)) for offset in offsets]

    def write(self, record: Mapping[str, Any]) -> int:
        """Append a record to the file; return its offset."""
        offset = self._spool.seek(0, 2)
        self._spool.write(encode_line(record))
        return offset

    def read(self, offset: int) -> Any:
        """Return the record at an offset."""
        self._spool.seek(offset)
        return orjson.loads(self._spool.readline())


class _SpooledPrompt(NamedTuple):
    """The prompt of a problem, which is in the temporary file."""

    key: bytes  #: Digest of the prompt.
    offset: int  #: Offset of its record.


class _OutputReader:
    """Reads files of outputs into problems, prompts and completions."""

    def __init__(self, options: ImportOutputsOptions, spool: IO[bytes]) -> None:
        self.options = options
        self.sampler = _SpooledSampler(spool)
        self.template = get_template(options.template) if options.template else RECORDED_TEMPLATE
        #: The problems of the option ``problems``; if there are any, rows take theirs from here.
        self.gold_problems = ProblemSet()
        if options.problems:
            self.gold_problems = load_problems(
                options.problems, split=options.split, reading=RowReading(gold=options.gold)
            )
        self.problems: list[Problem] = []
        self.quarantined = [*self.gold_problems.quarantined_rows]
        self._problem_of_question = unambiguous_problems(self.gold_problems.problems)
        self._problem_of_prompt: dict[bytes, Problem] = {}  # by digest of the prompt
        self._prompt_of_problem: dict[str, _SpooledPrompt] = {}  # by problem id
        self._n_rows = 0
        self._n_conflicts = 0  # responses whose question has another gold in an earlier row
        self._conflict: tuple[Problem, Problem] | None = None  # the first one
        self._models: dict[str, None] = {}  # a set that keeps the order
        self._documents: set[str] = set()
        self._request_offsets = self._read_requests(options.requests) if options.requests else {}
        self._score_offsets: dict[bytes, int] = {}  # of rows of step scores, by key
        self.has_scores = False  #: Whether a response has step scores.
        self.has_finish_reasons = False  #: Whether a row has the finish reason of a response.
        #: Whether the responses have steps of their own; None before the first response.
        self.has_recorded_steps: bool | None = None

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
                    "another request. Expected a unique `custom_id`, and a `body`.",
                ) from None
            offsets[name] = self.sampler.write({"prompt": prompt})
        return offsets

    def add(self, file: Path) -> None:
        """Read a file; rows that are not outputs are quarantined."""
        for record in read_records(file):
            self._n_rows += 1
            response_format = find_response_format(record.fields, self.options)
            try:
                if record.error or response_format is None:
                    raise UnusableRowError(record.error or unknown_format_message(record.fields))
                # Evaluation harnesses repeat a document for each of their answer filters, with the
                # same responses.
                document = response_format.document_key(record.fields)
                if document not in self._documents:
                    self._add_row(file, record, response_format)
                if document:
                    self._documents.add(document)
            except UnusableRowError as reason:
                self.quarantined.append(quarantine_row(str(file), record, str(reason)))

    def _add_row(self, file: Path, record: SourceRow, response_format: ResponseFormat) -> None:
        """Store the responses of a row. Unusable responses of several are quarantined alone."""
        named_format = response_format.with_fields(
            steps=self.options.steps_field, step_scores=self.options.scores_field
        )
        if self._problem_of_question:
            named_format = replace(named_format, gold=())
        elif named_format.whole_question and self.options.question_field is None:
            refuse_unread_parts(record.fields)
        for response in named_format.read_responses(record, self.options.gold):
            if self.options.series not in (None, response.model):
                continue
            try:
                if response.error:
                    raise UnusableResponseError(response.error)
                steps = self._read_steps(response, named_format)
            except UnusableResponseError as reason:
                series = f" ({response.series})" if response.series else ""
                self.quarantined.append(quarantine_row(str(file), record, f"{reason}{series}"))
                continue
            self._add_response(file, response, steps)

    def _read_steps(
        self, response: RecordedResponse, response_format: ResponseFormat
    ) -> ScoredSteps | None:
        """Return the steps of a response, with the scores of its row or of the file of scores."""
        if self.options.scores is not None:
            response = replace(response, step_scores=self._scores_of(response, response_format))
        steps = read_steps(response, response_format, self.options.segmenter)
        if self.has_recorded_steps is None:
            self.has_recorded_steps = steps is not None
        elif self.has_recorded_steps != (steps is not None) and self.options.segmenter is None:
            raise UnusableResponseError(
                "some rows have steps: expected steps or step scores in all rows, or in none"
            )
        self.has_scores |= steps is not None and steps.scores is not None
        return steps

    def _scores_of(self, response: RecordedResponse, response_format: ResponseFormat) -> Any:
        """Return the step scores of a response in the file of scores."""
        assert self.options.scores is not None
        if not response.key:
            raise UnusableResponseError(
                "no key: the row has no fields that identify the response in the file of scores"
            )
        if not self._score_offsets:
            self._read_scores(self.options.scores, response_format)
        offset = self._score_offsets.get(text_key(repr(response.key)))
        if offset is None:
            raise UnusableResponseError(
                f"no step scores: the file of scores has no row {response.key}"
            )
        return self.sampler.read(offset)["step_scores"]

    def _read_scores(self, file: Path, response_format: ResponseFormat) -> None:
        """Store the rows of a file of step scores."""
        for record in read_records(file):
            key = response_key(record.fields, response_format.key)
            scores = response_format.find_step_scores(record.fields)
            digest_of_key = text_key(repr(key))
            if not key or scores is None or digest_of_key in self._score_offsets:
                raise self.options.field_error(
                    "scores",
                    f"row {record.row_number} has no step scores, or repeats the response of an "
                    f"earlier row. Expected {', '.join(response_format.key)} and "
                    f"{' or '.join(response_format.step_scores)}.",
                )
            self._score_offsets[digest_of_key] = self.sampler.write({"step_scores": scores})

    def _add_response(
        self, file: Path, response: RecordedResponse, steps: ScoredSteps | None
    ) -> None:
        """Store a response, its problem and its prompt; UnusableRowError if they do not match."""
        prompt = self._request_prompt(response) if response.request else response.prompt
        problem = self._find_problem(file, response, prompt)
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
        if problem.id not in self._prompt_of_problem:
            offset = self.sampler.write({"prompt": prompt})
            self._prompt_of_problem[problem.id] = _SpooledPrompt(key, offset)
            self.problems.append(problem)
        elif self._prompt_of_problem[problem.id].key != key:
            raise UnusableRowError("the problem has another prompt in an earlier row")
        self._models[response.model] = None
        self.has_finish_reasons |= response.has_finish_reason
        completion = Completion(
            response.response,
            response.finish_reason,
            response.n_tokens,
            reasoning=response.reasoning,
            step_chars=tuple(map(len, steps.steps)) if steps else None,
            step_rewards=tuple(steps.scores) if steps and steps.scores is not None else None,
        )
        self.sampler.add(prompt, completion)

    def _request_prompt(self, response: RecordedResponse) -> str:
        """Return the prompt of the request that a response answers."""
        if response.request not in self._request_offsets:
            raise UnusableRowError(
                f"no request {response.request!r}: give the file of requests with `requests`"
            )
        return str(self.sampler.read(self._request_offsets[response.request])["prompt"])

    def _find_problem(self, file: Path, response: RecordedResponse, prompt: str) -> Problem:
        """Return the problem of a response, from the given problems or from the row itself."""
        if self._problem_of_question:
            problem = self._problem_of_question.get(question_key(response.question))
            return problem or self._find_problem_by_prompt(prompt)
        question = response.question or prompt
        for name, value in (("question", question), ("gold", response.gold)):
            if not value.strip():
                raise UnusableRowError(f"the {name} is missing: give the problems with `problems`")
        return require_usable(
            Problem(question, response.gold, source=file.stem, split=self.options.split)
        )

    def _find_problem_by_prompt(self, prompt: str) -> Problem:
        """Return the problem whose question is last in a prompt; few-shot examples come first."""
        problem = self._problem_of_prompt.get(text_key(prompt))
        if problem is not None:
            return problem
        prompt_key = question_key(prompt)
        matches = [
            (prompt_key.rfind(question) + len(question), len(question), question)
            for question in self._problem_of_question
            if question in prompt_key
        ]
        if not matches:
            raise UnusableRowError("the question matches no problem, or several")
        # The match that ends last, and the longest of the matches that end there.
        _, _, question = max(matches)
        return self._problem_of_question[question]

    def recorded_prompt(self, problem: Problem) -> str:
        """Return the prompt of a problem."""
        offset = self._prompt_of_problem[problem.id].offset
        return str(self.sampler.read(offset)["prompt"])

    def warnings(self) -> Iterator[str]:
        """Yield what a user may overlook in the files."""
        models = [name for name in self._models if name]
        if len(models) > 1:
            yield (
                f"the responses of {len(models)} models are samples of one model here: "
                f"{', '.join(models)}. The option `series` imports one of them."
            )
        own_quarantined = self.quarantined[len(self.gold_problems.quarantined_rows) :]
        if warning := describe_quarantine(own_quarantined, self._n_rows):
            yield warning
        if self._conflict is not None:
            first, other = self._conflict
            yield (
                f"responses left out, because their question has another gold answer in an earlier "
                f"row: {self._n_conflicts:,}, such as "
                f"{shorten(first.question, MAX_SHOWN_CHARS)!r}: {first.answer}, {other.answer}."
            )
        golds = [problem.answer for problem in self.problems]
        if solutions := describe_solutions(golds):
            yield solutions
        if not self.has_finish_reasons:
            yield (
                "the rows have no finish reason, so every response counts as finished. A truncated "
                "response has the outcome `no_answer` then, which gives negative step labels."
            )

    def model_name(self) -> str:
        """Return the name of the model in the rows; InputError if they name several."""
        if len(self._models) > 1:
            first_model = next(filter(None, self._models))
            raise self.options.field_error(
                "file", f"the file has several models: choose one with `series={first_model}`."
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


def _prompt_of_body(body: Mapping[str, Any]) -> str:
    """Return the prompt of a request, or the last turn of its conversation."""
    prompt = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
    if isinstance(prompt, str):
        return prompt
    return "".join(part.get("text", "") for part in prompt)  # a turn in several parts
