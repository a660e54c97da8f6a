"""Other people's outputs as a sealed dataset: nothing is sampled, all else is as in a build.

A file is read once, row by row. What it says goes to a file that has no name and that nobody sees,
one line for each response, so samples of a problem may stand anywhere, and none stays in memory.
"""

import tempfile
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Annotated, Any

import orjson

from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import store_errors
from fsdpo_data.core.identity import ModelRef, SourceRef, text_key
from fsdpo_data.core.jsonl_log import encode_line
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.row_files import data_files, read_records, replace_surrogates
from fsdpo_data.core.sampling import UNKNOWN, Completion, SamplingSpec
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.engines.options import DeclaredSampling, Resume, Workers
from fsdpo_data.engines.samplers.replay import BaseReplaySampler
from fsdpo_data.models.prompts import RECORDED_TEMPLATE, get_template
from fsdpo_data.problems.load import ProblemSet, files_revision, load_problems, quarantine_row
from fsdpo_data.problems.recorded_responses import (
    RecordedResponse,
    find_format,
    question_key,
    unknown_format_message,
)
from fsdpo_data.problems.row_formats import UnusableRowError, check_encodable
from fsdpo_data.stages.sample import BuildJob, BuildSpec, build
from fsdpo_data.steps.segment import segmenter_name

_OUTPUTS = "Outputs"


@dataclass(frozen=True, kw_only=True)
class ImportOutputsOptions(DeclaredSampling, Options):
    """Make a sealed dataset of what a model has written elsewhere.

    Attributes:
        file: JSON lines, JSON, parquet or CSV; of outputs a directory or pattern, too.
        out: A new directory.
        template: Prompt template of the problems, in place of what the rows say.
        problems: Where the rows have no gold answers: problems as `build` takes them, matched by
            their question, or by a prompt that ends on it.
        requests: What a batch was asked, matched by `custom_id`.
        series: Which of several models in the file.
        model_name: Who wrote the outputs, in your words.
        split: Split of the problems.
        temperature: That of the sampling.
        top_p: Nucleus mass of the sampling.
        max_tokens: Tokens per solution that the sampling allowed.
        segmenter: How solutions are cut into steps, as for `build`.
        grade_thinking: Thinking that never ends holds the answer that it marks.
        workers: Processes that grade.
        resume: Go on with the run in `out`.
    """

    file: Annotated[str | Path, Option(positional=True)]
    out: str | Path
    template: Annotated[str | None, Option(default_text="as asked, else the question")] = None
    problems: Annotated[Sequence[str], Option(panel=_OUTPUTS)] = ()
    requests: Annotated[Path | None, Option(panel=_OUTPUTS)] = None
    series: Annotated[str | None, Option(panel=_OUTPUTS)] = None
    model_name: Annotated[str | None, Option(panel=_OUTPUTS, default_text="as stated")] = None
    split: Annotated[str, Option(panel=_OUTPUTS)] = "train"
    temperature: Annotated[float | None, Option(panel=_OUTPUTS, default_text=UNKNOWN)] = None
    top_p: Annotated[float | None, Option(panel=_OUTPUTS, default_text=UNKNOWN)] = None
    max_tokens: Annotated[int | None, Option(panel=_OUTPUTS, default_text=UNKNOWN)] = None
    segmenter: Annotated[str, Option(panel=_OUTPUTS)] = "auto"
    grade_thinking: Annotated[bool, Option(panel=_OUTPUTS)] = False
    workers: Workers = None
    resume: Resume = False


def run_import(options: ImportOutputsOptions, progress: Progress) -> tuple[Path, Manifest]:
    """Read outputs of a known form, then segment, grade, label and seal them.

    Problems have as many samples as the file has of each; the manifest's ``n`` is the most.

    Returns:
        The directory of the dataset, and its manifest.

    Raises:
        InputError: if nothing can be read, or the file holds several models and none is named.
        RunMismatchError: if ``out`` holds another run.
        StoreError: if the disk fails.
    """
    files, out = data_files(str(options.file), options.split), Path(options.out)
    segmenter = segmenter_name(options.segmenter)
    with store_errors(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
    with store_errors(out.parent), tempfile.TemporaryFile(dir=out.parent) as spool:
        reading = _OutputReader(options, spool)
        for file in files:
            reading.add(file)
        if not reading.problems:
            first = f" First: {reading.aside[0].reason}." if reading.aside else ""
            of = f" of {options.series}" if options.series else ""
            raise InputError(f"{options.file}: no outputs{of} in it.{first}")
        revision = files_revision(files)
        spec = BuildSpec(
            model=ModelRef(options.model_name or reading.model(), revision),
            sources=tuple(reading.known.refs)
            or (SourceRef(Path(options.file).name, revision, options.split),),
            template=reading.template,
            sampling=SamplingSpec(n=reading.replay.most, **options.declared_sampling),
            engine={"name": "outputs", "dtype": UNKNOWN},
            segmenter=segmenter,
            grader=get_grader().version,
            unknown_fields=options.undeclared_fields,
            grade_thinking=options.grade_thinking,
        )
        source = ProblemSet(reading.problems, list(spec.sources), reading.aside)
        job = BuildJob(
            spec,
            source,
            lambda: reading.replay,
            workers=options.workers,
            render_prompt=reading.prompt,
        )
        return out, build(job, out, resume=options.resume, progress=progress)


class _SpooledSampler(BaseReplaySampler):
    """Completions by prompt, in the order in which they came."""

    model = ModelRef("outputs", "")

    def __init__(self, spool: IO[bytes]) -> None:
        self._spool = spool
        self._places: dict[bytes, array[int]] = {}

    @property
    def most(self) -> int:
        """The most completions of one prompt; 1 if there is none."""
        return max(map(len, self._places.values()), default=1)

    def add(self, prompt: str, completion: Completion) -> None:
        place = self.write(asdict(completion))
        self._places.setdefault(text_key(prompt), array("Q")).append(place)

    def _replay(self, prompt: str, n: int) -> list[Completion]:
        return [Completion(**self.read(each)) for each in self._places[text_key(prompt)][:n]]

    def write(self, record: Mapping[str, Any]) -> int:
        """Put a record away; return where."""
        place = self._spool.seek(0, 2)
        self._spool.write(encode_line(record))
        return place

    def read(self, place: int) -> Any:
        """Return the record that was put there."""
        self._spool.seek(place)
        return orjson.loads(self._spool.readline())


class _OutputReader:
    """What files of outputs hold, as far as it is read."""

    def __init__(self, options: ImportOutputsOptions, spool: IO[bytes]) -> None:
        self.options, self.replay = options, _SpooledSampler(spool)
        self.template = get_template(options.template) if options.template else RECORDED_TEMPLATE
        named, split = options.problems, options.split
        #: Problems with golds, where the rows have none.
        self.known = load_problems(named, split=split) if named else ProblemSet()
        self.problems: list[Problem] = []
        self.aside = [*self.known.quarantined]
        golds: dict[str, dict[str, Problem]] = {}
        for each in self.known.problems:
            golds.setdefault(question_key(each.question), {})[each.answer] = each
        # Of problems that differ in their golds alone nobody can say which was asked.
        self._golds = {key: found.popitem()[1] for key, found in golds.items() if len(found) == 1}
        self._problem_of_prompt: dict[bytes, Problem] = {}  # by prompt
        self._prompt_of_problem: dict[
            str, tuple[bytes, int]
        ] = {}  # prompt of a problem, and where it stands
        self._models: dict[str, None] = {}
        self._documents: set[str] = set()
        self._requests = self._read_requests(options.requests) if options.requests else {}

    def _read_requests(self, file: Path) -> dict[str, int]:
        """Put away what was asked, by the name of the request."""
        found: dict[str, int] = {}
        for record in read_records(file):
            name = str(record.fields.get("custom_id"))
            try:
                if name in found:
                    raise KeyError(name)
                found[name] = self.replay.write({"prompt": _prompt_of(record.fields["body"])})
            except (KeyError, TypeError, AttributeError, IndexError):
                told = (
                    f"row {record.row_number} is no request of a batch, or the second of its name. "
                )
                told += "Expected `custom_id` and `body`."
                raise self.options.field_error("requests", told) from None
        return found

    def add(self, file: Path) -> None:
        """Read a file; rows that are no outputs are set aside."""
        for record in read_records(file):
            form = find_format(record.fields)
            try:
                if record.error or form is None:
                    raise UnusableRowError(record.error or unknown_format_message(record.fields))
                if (document := form.key(record.fields)) not in self._documents:
                    for each in form.read(record):
                        self._keep(file, each)
                if document:
                    self._documents.add(document)
            except UnusableRowError as reason:
                self.aside.append(quarantine_row(str(file), record, str(reason)))

    def _keep(self, file: Path, each: RecordedResponse) -> None:
        if self.options.series not in (None, each.model):
            return
        prompt = each.prompt
        if each.request:
            if each.request not in self._requests:
                raise UnusableRowError(
                    f"no request {each.request!r}: name their file by `requests`"
                )
            prompt = self.replay.read(self._requests[each.request])["prompt"]
        problem = self._problem(file, each, prompt)
        if self.options.template or not prompt:
            prompt = self.template.render(problem.question)
        prompt = replace_surrogates(prompt)
        key = text_key(prompt)
        if self._problem_of_prompt.setdefault(key, problem).id != problem.id:
            raise UnusableRowError("another problem was asked in the same words")
        if problem.id not in self._prompt_of_problem:
            self._prompt_of_problem[problem.id] = key, self.replay.write({"prompt": prompt})
            self.problems.append(problem)
        elif self._prompt_of_problem[problem.id][0] != key:
            raise UnusableRowError("asked in other words than in a row before")
        self._models[each.model] = None
        told = Completion(
            each.response, each.finish_reason, each.n_tokens, reasoning=each.reasoning
        )
        self.replay.add(prompt, told)

    def _problem(self, file: Path, each: RecordedResponse, prompt: str) -> Problem:
        if self._golds:
            return self._golds.get(question_key(each.question)) or self._ends_on(prompt)
        for name, value in (("question", each.question or prompt), ("gold", each.gold)):
            if not value.strip():
                raise UnusableRowError(f"the {name} is missing: name the problems by `problems`")
        source, split = file.stem, self.options.split
        return check_encodable(Problem(each.question or prompt, each.gold, source, split))

    def _ends_on(self, prompt: str) -> Problem:
        """Return the problem whose question is the last in a prompt; examples stand before it."""
        if found := self._problem_of_prompt.get(text_key(prompt)):
            return found
        asked = question_key(prompt)
        ends = [
            (asked.rfind(question) + len(question), len(question), question)
            for question in self._golds
            if question in asked
        ]
        if not ends:
            raise UnusableRowError("its question is that of no problem, or of several")
        return self._golds[max(ends)[2]]

    def prompt(self, problem: Problem) -> str:
        """Return what a problem was asked as."""
        return str(self.replay.read(self._prompt_of_problem[problem.id][1])["prompt"])

    def model(self) -> str:
        """Return the model that the rows name; InputError if they name several."""
        if len(self._models) > 1:
            told = f"several models: choose one by `series={next(filter(None, self._models))}`."
            raise self.options.field_error("file", told)
        return next(iter(self._models)) or UNKNOWN


def _prompt_of(body: Mapping[str, Any]) -> str:
    """Return the prompt of a request, or the last turn of its conversation."""
    asked = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
    if isinstance(asked, str):
        return asked
    return "".join(part.get("text", "") for part in asked)  # parts of a turn
