"""Turn responses that another program recorded into a sealed dataset.

Nothing is sampled; all other stages are the same as in a build. Files are read once, row by row.
"""

import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any

from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import store_errors
from fsdpo_data.core.identity import EngineRef, ModelRef, SourceRef, text_key
from fsdpo_data.core.options import Group, Option
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.core.row_files import SourceRow, data_files, read_records, replace_surrogates
from fsdpo_data.core.sampling import UNKNOWN, Completion, DeclaredSampling, SamplingSpec
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.stage_records import GradeSettings, SampleSettings
from fsdpo_data.engines.options import Resume, Workers
from fsdpo_data.engines.scorers.prm_formats import ScoreSettings
from fsdpo_data.exchange.formats import find_response_format, unknown_format_message
from fsdpo_data.exchange.response_formats import (
    RecordedResponse,
    ResponseFormat,
    ResponseReading,
    question_key,
    response_key,
)
from fsdpo_data.exchange.spool import SolutionSpool, seal_import
from fsdpo_data.exchange.step_scores import ScoredSteps, UnusableResponseError, read_steps
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
from fsdpo_data.stages.sample import RECORDED_STEPS, BuildSpec
from fsdpo_data.steps.rewards import OUTCOME_LABELS
from fsdpo_data.steps.segment import SEGMENTERS, segmenter_name

log = logging.getLogger(__name__)

ENGINE = "outputs"  #: Name in the manifest in place of the engine that sampled the solutions.
_OUTPUTS_PANEL = "Outputs"  #: Heading of the options of outputs, in the help.
OutputsFieldName = Annotated[
    str | None, Option(panel=_OUTPUTS_PANEL, metavar="FIELD", default_text="by format")
]


class ImportOutputsOptions(ResponseReading):
    """Turn responses that another program recorded into a sealed dataset."""

    file: Annotated[str | Path, Option(positional=True)]
    """JSON lines, JSON, parquet or CSV file. For outputs also a directory or a pattern; for step
    labels also org/name of a dataset on the Hub.
    """
    out: Annotated[str | Path, Option(in_digest=False)]
    """Directory of the new dataset."""
    template: Annotated[
        str | None, Option(default_text="the recorded prompt, or the question alone")
    ] = None
    """Prompt template of the problems. It replaces the prompts in the rows."""
    problems: Annotated[Sequence[str], Option(panel=_OUTPUTS_PANEL)] = ()
    """Problems with gold answers, as for `build`, or a dataset. If given, every row takes
    its problem from here: by its question, or by a prompt that ends with the question.
    """
    requests: Annotated[Path | None, Option(panel=_OUTPUTS_PANEL)] = None
    """File with the requests of a batch, matched by `custom_id`."""
    series: Annotated[str | None, Option(panel=_OUTPUTS_PANEL)] = None
    """Name of the model whose responses are imported, for a file with the responses of several
    models.
    """
    model_name: Annotated[
        str | None, Option(panel=_OUTPUTS_PANEL, default_text="the name in the file")
    ] = None
    """Name of the model that wrote the outputs."""
    split: Annotated[str, Option(panel=_OUTPUTS_PANEL)] = "train"
    """Split of the problems."""
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
    """Sampling settings that are known of the outputs."""
    segmenter: Annotated[
        str | None,
        Option(
            panel=_OUTPUTS_PANEL,
            choices=SEGMENTERS,
            default_text="the steps in the rows, or auto",
        ),
    ] = None
    """Rule that splits solutions into steps, as for `build`. It replaces the steps in the rows;
    step scores then need as many steps.
    """
    scores: Annotated[Path | None, Option(panel=_OUTPUTS_PANEL)] = None
    """File with the step scores of one reward model. Its rows have the fields that identify a
    response, such as `problem_id` and `candidate_index`.
    """
    steps_field: OutputsFieldName = None
    """Field with the steps of a response."""
    scores_field: OutputsFieldName = None
    """Field with the step scores of a response, from 0 to 1."""
    prm_name: Annotated[str, Option(panel=_OUTPUTS_PANEL)] = UNKNOWN
    """Name of the reward model that gave the step scores."""
    grade_thinking: Annotated[bool, Option(panel=_OUTPUTS_PANEL)] = False
    """If a solution has no text after its thinking, grade the answer that the thinking marks, for
    example in a box. By default such a solution has no answer.
    """
    workers: Workers = None
    """Number of processes that grade."""
    resume: Resume = False
    """Continue the run in `out`."""
    source: str = ""
    """`outputs`, as the command line names this import."""


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
    with store_errors(out.parent), tempfile.TemporaryFile(dir=out.parent) as file:
        reader = _OutputReader(options, SolutionSpool(file))
        for path in files:
            reader.add(path)
        if not reader.spool.problems:
            raise InputError(_no_outputs_message(options, reader))
        for warning in reader.warnings():
            log.warning(warning)
        revision = files_revision(files)
        outputs_source = SourceRef(Path(options.file).name, revision, options.split)
        manifest = seal_import(
            reader.spool,
            _build_spec(options, reader, revision),
            reader.gold_problems.source_refs or [outputs_source],
            reader.quarantined,
            out,
            resume=options.resume,
            progress=progress,
            workers=options.workers,
        )
        return out, manifest


def _no_outputs_message(options: ImportOutputsOptions, reader: "_OutputReader") -> str:
    """Return the error message for files without a usable response."""
    series = f" of {options.series}" if options.series else ""
    message = f"{options.file}: the file contains no outputs{series}."
    if reader.quarantined:
        message += f" First problem: {reader.quarantined[0].reason}."
    return message


def _build_spec(options: ImportOutputsOptions, reader: "_OutputReader", revision: str) -> BuildSpec:
    """Return the spec of the dataset, after all files are read; ``revision`` is theirs."""
    segmenter = segmenter_name(options.segmenter or "auto")
    if reader.has_recorded_steps and options.segmenter is None:
        segmenter = RECORDED_STEPS
    score = None
    if reader.has_scores:
        score_revision = files_revision([options.scores]) if options.scores else revision
        score = ScoreSettings(
            prm=ModelRef(options.prm_name, UNKNOWN),
            engine=EngineRef(name=ENGINE, dtype=UNKNOWN, recording=score_revision),
        )
    return BuildSpec(
        sample=SampleSettings(
            model=ModelRef(options.model_name or reader.model_name(), UNKNOWN),
            template=reader.template.ref,
            sampling=SamplingSpec(n=max(reader.spool.counts.values()), **options.sampling.values),
            unknown_fields=options.sampling.unknown_fields,
            engine=EngineRef(name=ENGINE, dtype=UNKNOWN, recording=revision),
            segmenter=segmenter,
        ),
        grade=GradeSettings(
            grader=get_grader().version,
            labels=OUTCOME_LABELS,
            grade_thinking=options.grade_thinking,
        ),
        score=score,
    )


class _OutputReader:
    """Reads files of outputs into a spool."""

    def __init__(self, options: ImportOutputsOptions, spool: SolutionSpool) -> None:
        self.options = options
        self.spool = spool
        self.template = get_template(options.template) if options.template else RECORDED_TEMPLATE
        #: The problems of the option ``problems``; if there are any, rows take theirs from here.
        self.gold_problems = ProblemSet()
        if options.problems:
            self.gold_problems = load_problems(
                options.problems, split=options.split, reading=RowReading(gold=options.gold)
            )
        self.quarantined = [*self.gold_problems.quarantined_rows]
        self._problem_of_question = unambiguous_problems(self.gold_problems.problems)
        self._problem_of_prompt: dict[bytes, Problem] = {}  # by digest of the prompt
        self._prompt_keys: dict[str, bytes] = {}  # digest of the prompt, by problem id
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
            offsets[name] = self.spool.write({"prompt": prompt})
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
        return self.spool.read(offset)["step_scores"]

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
            self._score_offsets[digest_of_key] = self.spool.write({"step_scores": scores})

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
        if self._prompt_keys.setdefault(problem.id, key) != key:
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
            recorded_correct=response.correct,
        )
        self.spool.add(problem, prompt, completion)

    def _request_prompt(self, response: RecordedResponse) -> str:
        """Return the prompt of the request that a response answers."""
        if response.request not in self._request_offsets:
            raise UnusableRowError(
                f"no request {response.request!r}: give the file of requests with `requests`"
            )
        return str(self.spool.read(self._request_offsets[response.request])["prompt"])

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

    def warnings(self) -> Iterator[str]:
        """Yield what a user may overlook in the files."""
        models = [name for name in self._models if name]
        if len(models) > 1:
            yield (
                f"the responses of {len(models)} models are samples of one model here: "
                f"{', '.join(models)}. The option `series` imports one of them."
            )
        n_problems = len(self.gold_problems.problems)
        n_answered = len(self.spool.problems)
        if n_answered < n_problems:
            yield (
                f"{self.options.file} has responses to {n_answered:,} of the {n_problems:,} given "
                "problems; the dataset excludes the other problems."
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
        golds = [problem.answer for problem in self.spool.problems.values()]
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
