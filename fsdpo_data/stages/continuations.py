"""Sample continuations of solution prefixes, and grade them.

One line of a :class:`~fsdpo_data.dataset.run_directory.RunDir` holds a prefix with its N
continuations, and survives an interruption. The run is a folder inside the new dataset.
A prefix that several solutions share is continued once.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

from fsdpo_data.answers import Grader
from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.cost import Cost
from fsdpo_data.core.entities import GRADED_OUTCOMES, Outcome, Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.failures import STOP_AT_FIRST, FailureLog, FailurePolicy
from fsdpo_data.core.identity import ID_VERSION, digest
from fsdpo_data.core.job_shard import UNSHARDED, JobShard
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.options import Group, Option, Options
from fsdpo_data.core.parquet_files import collect_rows, read_table_batches
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.sampling import (
    Completion,
    ContinuationSettings,
    DeclaredSampling,
    Prompt,
    SamplingSpec,
    Seed,
    add_tokens,
)
from fsdpo_data.dataset.chat_prompts import refuse_missing_format
from fsdpo_data.dataset.manifest import Manifest, read_manifest
from fsdpo_data.dataset.problem_rows import read_problems
from fsdpo_data.dataset.run_directory import RunDir
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.dataset.stage import DatasetDraft
from fsdpo_data.dataset.stage_records import (
    GRADE_STAGE,
    SAMPLE_STAGE,
    GradeRecord,
    SampleRecord,
)
from fsdpo_data.engines.choose_engine import select_sampler
from fsdpo_data.engines.load import load_selected_sampler
from fsdpo_data.engines.options import SamplerOptions, Workers
from fsdpo_data.engines.samplers import Sampler, open_engine
from fsdpo_data.engines.weights import digest_recording, resolve_sampler_weights
from fsdpo_data.grading.pool import open_grader
from fsdpo_data.models.prompts import RECORDED_TEMPLATE
from fsdpo_data.models.resolve import ResolvedWeights, warn_about_other_template
from fsdpo_data.stages.sample_prompts import ignore_new_records, sample_missing
from fsdpo_data.stages.verdicts import grading_request

log = logging.getLogger(__name__)

ROLLOUTS_FOLDER = "rollouts"  #: Folder of step labels' continuations in the new dataset.
PREFIX_BATCH_ROWS = 2048  #: Solutions in memory while their prefixes are listed.


class Prefix(NamedTuple):
    """A prompt to continue, usually with the first steps of a solution."""

    id: str  #: Result of :func:`prefix_id`.
    prompt: Prompt  #: The prompt with the steps.


#: Key of the counts of a prefix: the ids of the problem and of the prefix. Problems with the same
#: question share continuations, but may have different gold answers.
PrefixKey: TypeAlias = tuple[str, str]


class SolutionPrefix(NamedTuple):
    """A prefix of the solutions of a problem."""

    prefix_id: str  #: Id of the prefix.
    problem_id: str  #: Id of the problem, which has the gold answer.
    prompt: str  #: The prompt, without the steps of the prefix.

    @property
    def key(self) -> PrefixKey:
        """The key of the prefix's counts."""
        return self.problem_id, self.prefix_id


class GradedContinuation(NamedTuple):
    """A continuation with the outcome of the solution that it completes."""

    completion: Completion  #: The continuation.
    outcome: Outcome  #: Outcome of the prefix and the continuation together.


GradedContinuations: TypeAlias = list[GradedContinuation]  #: The graded continuations of a prefix.
#: Yields the graded continuations of each prefix, in order.
ContinuationGrader: TypeAlias = Callable[[Sequence[SolutionPrefix]], Iterator[GradedContinuations]]


def check_continuations(source: Path, manifest: Manifest) -> None:
    """Refuse a dataset whose solutions cannot be continued and graded as they were.

    Raises:
        SchemaError: if the release does not contain the grader.
        InputError: if the prompts lack the chat format of the server that sampled them.
    """
    get_grader(manifest.get(GRADE_STAGE, GradeRecord).options.grader)
    refuse_missing_format(manifest, str(source))


def prefix_id(text: str) -> str:
    """Return the id of a prefix, the text of a prompt and the first steps of a solution."""
    return digest("beginning", ID_VERSION, text)


def step_prefixes(prompt: str, steps: Sequence[str]) -> Iterator[Prefix]:
    """Yield the prefix that ends after each step of a solution, except the last step."""
    continued_prompt = Prompt(prompt)
    for step in steps[:-1]:
        continued_prompt = continued_prompt.extend(step)
        yield Prefix(prefix_id(continued_prompt.full_text), continued_prompt)


def list_step_prefixes(files: Iterable[Path]) -> Iterator[Prefix]:
    """Yield the step prefixes of the graded solutions in files."""
    columns = ["prompt", "completions", "outcome"]
    for file in files:
        for batch in read_table_batches(file, batch_rows=PREFIX_BATCH_ROWS, columns=columns):
            for row in batch.to_pylist():
                if row["outcome"] in GRADED_OUTCOMES:
                    yield from step_prefixes(row["prompt"], row["completions"])


@dataclass(frozen=True)
class ContinuationSampler:
    """A model and its sampling parameters, ready to continue prefixes or to answer as a judge."""

    settings: ContinuationSettings  #: Everything that determines the continuations.
    #: Loads the sampler. Called only if samples are missing, because loading a model is slow.
    make_sampler: Callable[[], Sampler]
    batch_size: int = 256  #: Prefixes per call of the sampler.
    phase: str = "continue"  #: Name of the work in the progress display.
    #: When the sampling stops because of prompts that the engine refuses.
    failure_policy: FailurePolicy = STOP_AT_FIRST
    recording: str | None = None  #: Digest of the recording that is replayed; None for a model.

    @property
    def sampling(self) -> SamplingSpec:
        """Sampling settings; ``n`` is the number of continuations."""
        return self.settings.sampling

    @property
    def id(self) -> str:
        """Digest of the model and its sampling parameters.

        ``n`` is left out: continuation 3 of 4 and continuation 3 of 8 are the same text.
        """
        sampling = self.sampling.model_dump(exclude={"n"})
        return digest("continuing", ID_VERSION, self.settings.model, sampling)

    @contextlib.contextmanager
    def sample_continuations(
        self,
        draft: DatasetDraft,
        folder: str,
        list_prefixes: Callable[[], Iterable[Prefix]],
        shard: JobShard = UNSHARDED,
        on_new_records: Callable[[], None] = ignore_new_records,
    ) -> Iterator[RunDir]:
        """Sample the missing continuations of prefixes, and open the run that contains them.

        Args:
            draft: The new dataset.
            folder: Folder of the run inside the new dataset's directory.
            list_prefixes: Yields the prefixes. Called twice, so the texts need not stay in memory.
            shard: Part of the prefixes to continue.
            on_new_records: Called once, before the first new continuations are written.
        """
        with self.open_run(draft.root / folder) as run:
            with open_engine(self.make_sampler) as load_sampler:
                replace(self, make_sampler=load_sampler).sample_into(
                    run,
                    list_prefixes,
                    draft.progress,
                    self.open_failures(run),
                    shard=shard,
                    on_new_records=on_new_records,
                )
            yield run

    @contextlib.contextmanager
    def open_run(self, path: Path) -> Iterator[RunDir]:
        """Open the run in a folder of the new dataset, or create it."""
        config: dict[str, Any] = {
            "sampling": self.sampling.model_dump(),
            "model": asdict(self.settings.model),
        }
        if self.recording is not None:
            config["recording"] = self.recording
        # The config of the dataset's directory covers all else, so the run has the same spec.
        with RunDir.open(path, config, n_samples=self.sampling.n, resume=True) as run:
            yield run

    def open_failures(self, run: RunDir) -> FailureLog:
        """Open the prefixes that failed in a run."""
        return FailureLog(run.path, self.failure_policy, "prompts", run.line_spans)

    def sample_into(
        self,
        run: RunDir,
        list_prefixes: Callable[[], Iterable[Prefix]],
        progress: Progress,
        failures: FailureLog,
        *,
        shard: JobShard = UNSHARDED,
        on_new_records: Callable[[], None] = ignore_new_records,
    ) -> None:
        """Sample the continuations that a run lacks; see :meth:`sample_continuations`.

        The caller closes the sampler. ``failures`` receives the prefixes that the engine refuses.
        """
        unique_ids = list(dict.fromkeys(prefix.id for prefix in list_prefixes()))
        prefix_ids = shard.select(unique_ids)
        missing_ids = set(prefix_ids) - run.line_spans.keys()
        sample_missing(
            run,
            prefix_ids,
            _select_prefixes(missing_ids, list_prefixes()),
            sampling=self.sampling,
            make_sampler=self.make_sampler,
            batch_size=self.batch_size,
            phase=self.phase,
            progress=progress,
            failures=failures,
            on_new_records=on_new_records,
        )

    @contextlib.contextmanager
    def open_grader(
        self,
        draft: DatasetDraft,
        run: RunDir,
        workers: int | None,
        n_prefixes: int | None = None,
    ) -> Iterator[ContinuationGrader]:
        """Open a grader of the continuations in ``run``, as for the dataset's solutions.

        ``n_prefixes`` is the number of prefixes to grade; None for all prefixes of the run.
        """
        grading = draft.manifest.get(GRADE_STAGE, GradeRecord).options
        problems = read_problems(draft.current_files("problems"))
        if n_prefixes is None:
            n_prefixes = len(run.line_spans)
        n_continuations = n_prefixes * self.sampling.n
        make_grader = partial(get_grader, grading.grader)
        with open_grader(make_grader, n_continuations, workers) as grader:
            yield partial(
                _grade_continuations,
                run,
                problems,
                grader,
                grade_thinking=grading.grade_thinking,
            )

    def measure_cost(self, run: RunDir) -> Cost:
        """Return the cost of the continuations."""
        tokens, seconds = sum_tokens_and_seconds(run)
        return Cost(tokens=tokens, prm_calls=0, seconds=seconds)


def sum_tokens_and_seconds(run: RunDir) -> tuple[int | None, float]:
    """Return the tokens and the seconds of all completions; None for unknown tokens."""
    tokens: int | None = 0
    seconds = 0.0
    for record in run.read_records(run.line_spans):
        for completion in record.completions:
            tokens = add_tokens(tokens, completion.n_tokens)
            seconds += completion.seconds
    return tokens, round(seconds, 3)


def _select_prefixes(missing_ids: set[str], prefixes: Iterable[Prefix]) -> Iterator[Prefix]:
    """Yield the first prefix with each of the missing ids, and remove its id from the set."""
    for prefix in prefixes:
        if prefix.id in missing_ids:
            missing_ids.remove(prefix.id)
            yield prefix


def _grade_continuations(
    run: RunDir,
    problems: Mapping[str, Problem],
    grader: Grader,
    prefixes: Sequence[SolutionPrefix],
    *,
    grade_thinking: bool,
) -> Iterator[GradedContinuations]:
    """Grade the continuations of prefixes; the grader reads prefix and continuation together.

    A failed prefix has no continuations. ``problems`` are the problems by id.
    """
    sampled_prefixes = [prefix for prefix in prefixes if prefix.prefix_id in run.line_spans]
    prefix_ids = [prefix.prefix_id for prefix in sampled_prefixes]
    requests = []
    for prefix, record in zip(sampled_prefixes, run.read_records(prefix_ids), strict=True):
        first_steps = record.prompt[len(prefix.prompt) :]
        for completion in record.completions:
            text = first_steps + completion.text
            requests.append(
                grading_request(
                    problems[prefix.problem_id],
                    text,
                    prompt=prefix.prompt,
                    finish_reason=completion.finish_reason,
                    grade_thinking=grade_thinking,
                )
            )
    verdicts = iter(grader.grade(requests))
    records = run.read_records(prefix_ids)  # again, so the records need not stay in memory
    for prefix in prefixes:
        if prefix.prefix_id not in run.line_spans:
            yield []
            continue
        yield [
            GradedContinuation(completion, outcome=next(verdicts).status)
            for completion in next(records).completions
        ]


def count_correct(continuations: GradedContinuations) -> dict[str, int]:
    """Return the number of graded continuations, and how many of them are correct."""
    outcomes = [
        continuation.outcome
        for continuation in continuations
        if continuation.outcome in GRADED_OUTCOMES
    ]
    return {"n": len(outcomes), "n_correct": outcomes.count("correct")}


def continuation_sampling(manifest: Manifest, n: int, **overrides: Any) -> SamplingSpec:
    """Return the sampling parameters of the dataset's solutions, with ``n`` and ``overrides``."""
    sampled = manifest.get(SAMPLE_STAGE, SampleRecord)
    return sampled.options.sampling.replace(n=n, **overrides)


class ContinuationOptions(Options):
    """Options of stages that continue solutions."""

    model: Annotated[str | None, Option(default_text="the model of the solutions")] = None
    """Model that samples the continuations."""
    sampling: Annotated[
        DeclaredSampling,
        Group(
            panel="Sampling",
            default_text="as the solutions were sampled",
            help={"max_tokens": "Maximum number of tokens per continuation."},
        ),
    ] = DeclaredSampling()
    """Sampling settings that differ from the settings of the solutions."""
    engine: SamplerOptions = SamplerOptions()
    """Engine that runs the model."""
    seed: Seed = 0
    """Random seed. Sample i of a prompt depends only on the seed, the prompt and i."""
    workers: Workers = None
    """Number of processes that grade answers."""

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        super().model_post_init(context)
        self.engine.check_model_options()

    @property
    def sampling_overrides(self) -> dict[str, Any]:
        """The sampling settings that the options set; the others come from the dataset."""
        return self.sampling.values | {"seed": self.seed}


def resolve_continuation_sampler(
    data: Path,
    options: ContinuationOptions,
    n: int,
    failure_policy: FailurePolicy = STOP_AT_FIRST,
) -> ContinuationSampler:
    """Resolve the model that samples ``n`` continuations per prefix of a dataset's solutions.

    The weights are loaded when they are needed.

    Raises:
        InputError: if the default model differs from the one that sampled the solutions, or a judge
            decided outcomes of the solutions.
        UnavailableError: if the engine is not installed, or the model does not exist.
    """
    server = options.engine.server
    if not options.engine.can_continue_text and options.engine.replay is None:
        if options.engine.engine_entry.is_remote:
            raise server.field_error(
                "api", "chat servers cannot continue a text. Use `api=completions`."
            )
        raise options.engine.field_error(
            "engine", "the engine cannot continue a text. Use another one."
        )
    if options.engine.template_arg:
        raise options.engine.field_error(
            "template_arg",
            "the model continues the recorded prompts, so no chat template is applied. Leave this "
            "option out.",
        )
    manifest = read_manifest(data)
    judge = manifest.get(GRADE_STAGE, GradeRecord).options.answer_judge
    if judge is not None:
        raise InputError(
            f"the judge {judge.model.name} decided outcomes of {data}, and it does not read "
            "continuations, so those whose answers need a judge would not count. Continue the "
            "dataset before `grade`.",
            field="data",
            value=str(data),
        )
    sampling = continuation_sampling(manifest, n, **options.sampling_overrides)
    model = _resolve_continuation_model(data, options, manifest)
    _warn_of_unknown_settings(data, options, manifest, sampling)
    if options.engine.replay is None:
        _warn_about_prompts(data, manifest, model)
    return make_continuation_sampler(model, sampling, options.engine, failure_policy=failure_policy)


def _warn_of_unknown_settings(
    data: Path, options: ContinuationOptions, manifest: Manifest, sampling: SamplingSpec
) -> None:
    """Warn if continuations have defaults, because the settings of the solutions are unknown."""
    unknown_names = manifest.get(SAMPLE_STAGE, SampleRecord).options.unknown_fields
    defaults = [name for name in unknown_names if name not in options.sampling_overrides]
    if not defaults:
        return
    values = ", ".join(f"{name} {getattr(sampling, name)}" for name in defaults)
    flags = ", ".join(f"`{name}`" for name in defaults)
    log.warning(
        f"{data} does not state all settings of its solutions, so the continuations have the "
        f"defaults: {values}. State the settings of the solutions with {flags}."
    )


def _warn_about_prompts(data: Path, manifest: Manifest, model: ResolvedWeights) -> None:
    """Warn if the prompts of the solutions do not resemble those that a model learned from."""
    template = manifest.get(SAMPLE_STAGE, SampleRecord).options.template
    if template.name == RECORDED_TEMPLATE.name and _has_prompt_without_template(data, manifest):
        log.warning(
            f"{data} has prompts that are the questions alone. The first step then follows the "
            "last word of the question, and the continuations may be wrong. Import the responses "
            "again with the template of their model: `fsdpo-data import --template NAME`."
        )
    else:
        warn_about_other_template(model, template, "continuations")


def _has_prompt_without_template(data: Path, manifest: Manifest) -> bool:
    """Return whether a prompt of the solutions of a dataset is the question of its problem."""
    questions = scan_rows("problems", manifest.config_paths(data, "problems"))
    solutions = scan_rows("solutions", manifest.config_paths(data, "solutions"))
    rows = (
        solutions.select("problem_id", "prompt")
        .join(questions.select("problem_id", "question"), on="problem_id")
        .filter(pl.col("prompt") == pl.col("question"))
    )
    return not collect_rows(rows.head(1), streaming=True).is_empty()


def make_continuation_sampler(
    model: ResolvedWeights,
    sampling: SamplingSpec,
    engine: SamplerOptions,
    phase: str = "continue",
    failure_policy: FailurePolicy = STOP_AT_FIRST,
) -> ContinuationSampler:
    """Return the sampler of a resolved model; the weights are loaded when they are needed."""
    selection = select_sampler(engine)
    return ContinuationSampler(
        settings=ContinuationSettings(model=model.ref, sampling=sampling, engine=selection.ref),
        make_sampler=lambda: load_selected_sampler(selection, model),
        batch_size=selection.batch_size,
        phase=phase,
        failure_policy=failure_policy,
        recording=digest_recording(engine),
    )


def _resolve_continuation_model(
    data: Path, options: ContinuationOptions, manifest: Manifest
) -> ResolvedWeights:
    """Resolve the model; without ``model`` it must be the one that sampled the solutions."""
    solution_model = manifest.get(SAMPLE_STAGE, SampleRecord).options.model
    if options.engine.replay is not None and options.model is None:
        return ResolvedWeights(solution_model, "")
    name = options.model or solution_model.name
    model = resolve_sampler_weights(name, options.engine.engine)
    if model.ref.revision != solution_model.revision:
        resolved = f"{model.ref.name} at {model.ref.revision}"
        if options.model is None:
            raise InputError(
                f"{data} was sampled from {solution_model.name} at "
                f"{solution_model.revision}, but this name now means {resolved}. Choose the "
                "model that continues with `model`."
            )
        log.warning("%s continues solutions that another model sampled", resolved)
    return model
