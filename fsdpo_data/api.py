"""The public interface of ``fsdpo_data``, which the command line uses too.

The parameters of a function are declared once, in its class of options, and become keywords here.
No function prints. Errors are of type ``FsdpoError`` and name the field.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, get_type_hints

from fsdpo_cards.problem_list import DEFAULT_BUDGET_BYTES, MIN_PROBLEM_BYTES
from pydantic import ValidationError

from fsdpo_data.agreement.report import AgreementReport, AgreeOptions, compare_labellers
from fsdpo_data.answers import Verdict
from fsdpo_data.answers.response import grade
from fsdpo_data.core import plugins
from fsdpo_data.core.command_line import command_parameters
from fsdpo_data.core.entities import Pair, Problem, Solution
from fsdpo_data.core.errors import FsdpoError, InputError, ItemError
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.options import Options, input_error, split_docstring
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.core.progress import NO_PROGRESS, Progress
from fsdpo_data.core.sampling import DeclaredSampling, Prompt, SamplingSpec
from fsdpo_data.core.urls import check_url, is_url
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.dataset.diff import ConfigDiff, diff_datasets
from fsdpo_data.dataset.html_page import dataset_page
from fsdpo_data.dataset.manifest import Manifest, read_manifest
from fsdpo_data.dataset.remote import local_copy, local_paths
from fsdpo_data.dataset.schema import CONFIGS, ColumnSummary, scan_rows, summarize_columns
from fsdpo_data.dataset.stage import StageOptions
from fsdpo_data.dataset.stage_registry import STAGES, command_names, stage_entry
from fsdpo_data.dataset.statistics import DatasetStatistics
from fsdpo_data.dataset.summary import summary_rows
from fsdpo_data.dataset.validate import check_files, explain_damage, validate
from fsdpo_data.engines import load
from fsdpo_data.engines.beam_search import BeamSpec
from fsdpo_data.engines.options import SamplerOptions, ScorerOptions, ServerOptions
from fsdpo_data.engines.samplers.base import Sampler
from fsdpo_data.engines.scorers import Scorer, ScorerInput
from fsdpo_data.engines.weights import resolve_model
from fsdpo_data.exchange.export import ExportResult, export
from fsdpo_data.models.prompts import Template
from fsdpo_data.publish.pull import pull_dataset
from fsdpo_data.publish.push import plan_push, push_dataset
from fsdpo_data.selection.overlaps import OverlapReport
from fsdpo_data.stages.decontaminate import DecontaminateOptions, run_decontaminate
from fsdpo_data.stages.grade import GradeOptions
from fsdpo_data.stages.label import LabelOptions
from fsdpo_data.stages.pair import PairOptions, StepPairOptions
from fsdpo_data.stages.pipeline import BuildOptions, run_build
from fsdpo_data.stages.score import ScoreOptions
from fsdpo_data.stages.seal import SealOptions, run_seal
from fsdpo_data.stages.select import SelectOptions
from fsdpo_data.steps.rewards import DEFAULT_GAMMA
from fsdpo_data.steps.segment import segmenter_name, split_solution

__all__ = [
    "BeamSpec",
    "Dataset",
    "DeclaredSampling",
    "FsdpoError",
    "ItemError",
    "Pair",
    "Problem",
    "Prompt",
    "SamplerOptions",
    "SamplingSpec",
    "ScorerInput",
    "ScorerOptions",
    "ServerOptions",
    "Solution",
    "StepPairOptions",
    "Verdict",
    "agree",
    "build",
    "decontaminate",
    "grade",
    "load_plugin",
    "load_sampler",
    "load_scorer",
    "load_template",
    "open_dataset",
    "pull",
    "push",
    "seal",
    "segment",
]

#: Rows of the summary of a dataset that ``str(dataset)`` shows.
SUMMARY_NAMES = (
    *("model", "problems", "solutions", "accuracy", "outcomes", "step labels", "rollouts"),
    *("step rewards", "pairs"),
)

P = ParamSpec("P")
OptionsT = TypeVar("OptionsT")
Result = TypeVar("Result")
StrPath = str | Path


def accepts_options(
    kind: Callable[P, OptionsT], *positional: str
) -> Callable[[Callable[[OptionsT], Result]], Callable[P, Result]]:
    """Return a decorator that turns a parameter ``options`` into keyword parameters.

    Args:
        kind: Class of the options.
        positional: Fields that a call may give without a name.
    """
    options_class: type[Options] = kind  # type: ignore[assignment]

    def decorate(run: Callable[[OptionsT], Result]) -> Callable[P, Result]:
        @functools.wraps(run)
        def call(*args: P.args, **kwargs: P.kwargs) -> Result:
            values = _name_arguments(run.__name__, positional, args, kwargs)
            with _names_of_arguments(options_class, run.__name__):
                return run(options_class.model_validate(values))  # type: ignore[arg-type]

        returns = get_type_hints(run)["return"]
        _document_function(call, options_class, returns=returns, positional=positional)
        return call

    return decorate


def _name_arguments(
    callee: str, positional: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call by name.

    Raises:
        TypeError: if an argument has no name, or is given twice.
    """
    positional_values = dict(zip(positional, args, strict=False))
    if len(args) > len(positional) or positional_values.keys() & kwargs.keys():
        names = f"only {', '.join(positional)}" if positional else "no value"
        raise TypeError(f"{callee}() takes {names} without a name. Write the others as NAME=VALUE.")
    return {**positional_values, **kwargs}


@contextlib.contextmanager
def _names_of_arguments(options_class: type[Options], callee: str) -> Iterator[None]:
    """Raise errors about fields of an option class as errors about arguments of a function."""
    try:
        yield
    except ValidationError as validation_error:
        error = input_error(validation_error, options_class, callee)
        name = getattr(error, "field", "").rpartition(".")[2]
        member = command_parameters(options_class).get(name)
        if member is not None and name not in options_class.model_fields:
            example = _group_expression(options_class, member.path, error.value)  # type: ignore[attr-defined]
            message = f"{callee} takes this value in a group. Write `{example}`."
            error = InputError(message, field=name, value=error.value)  # type: ignore[attr-defined]
        raise _rename_field(error, options_class) from None
    except FsdpoError as error:
        renamed_error = _rename_field(error, options_class)
        if renamed_error is error:
            raise
        raise renamed_error from error


def _rename_field(error: Exception, options_class: type[Options]) -> Exception:
    """Return an error about a field of an option class as an error about an argument."""
    if isinstance(error, FsdpoError):
        class_name, _, name = error.field.partition(".")
        if class_name == options_class.__name__:
            return error.for_field(name)
    return error


def _group_expression(options_class: Any, path: Sequence[str], value: Any) -> str:
    """Return the Python text that sets a member, such as ``sampling=SamplingSpec(n=4)``."""
    name, *inner_path = path
    if not inner_path:
        return f"{name}={value!r}"
    group_class = options_class.model_fields[name].annotation
    return f"{name}={group_class.__name__}({_group_expression(group_class, inner_path, value)})"


_EXAMPLE = re.compile(r"\n+Example:\n")
_COMMAND_FLAG = re.compile(r"`--([a-z0-9-]+)( \w+)?`")


def _document_function(
    function: Callable[..., Any],
    options_class: type[Options],
    *,
    returns: Any,
    positional: Sequence[str] = (),
    first: inspect.Parameter | None = None,
    without: Sequence[str] = (),
) -> None:
    """Give a function the signature of an option class, and a list of its arguments as help.

    Args:
        function: The function. Its docstring is a summary, then ``Example:`` with lines of Python.
        options_class: The option class, whose fields document the arguments.
        returns: Type of the result.
        positional: Arguments that need no name.
        first: A parameter before the fields of the class, such as ``self``; None for none.
        without: Fields of the class that are not arguments of the function.
    """
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        parameter.replace(kind=kind) if name in positional else parameter
        for name, parameter in inspect.signature(options_class).parameters.items()
        if name not in without
    ]
    parameters.sort(key=lambda parameter: parameter.kind)
    summary, *example = _EXAMPLE.split(inspect.cleandoc(function.__doc__ or ""), maxsplit=1)
    lines = [summary, "", "Args:"]
    for parameter in parameters:
        text = options_class.model_fields[parameter.name].description or ""
        text = _COMMAND_FLAG.sub(lambda match: f"`{match[1].replace('-', '_')}`", text)
        entry = f"{parameter.name}: {' '.join(text.split())}"
        lines += textwrap.wrap(
            entry, 96, initial_indent="    ", subsequent_indent=" " * 8, break_on_hyphens=False
        )
    if example:
        lines += ["", "Example:", textwrap.indent(inspect.cleandoc(f"\n{example[0]}"), "    ")]
    function.__doc__ = "\n".join(lines)
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*([first] if first else []), *parameters], return_annotation=returns
    )


def _stage(kind: type[StageOptions], name: str, example: str = "") -> Callable[..., Dataset]:
    """Return the method that runs a stage on a dataset.

    Args:
        kind: Class of the stage's options.
        name: Name of the method.
        example: Arguments of a call in the help, such as ``out="runs/labelled"``.
    """

    def method(self: Dataset, /, **values: Any) -> Dataset:
        with _names_of_arguments(kind, name):
            return run_stage(kind.model_validate({"data": self.url or self.path, **values}))

    method.__name__ = name
    example = f"Example:\n    new_dataset = dataset.{name}({example or 'out=PATH'})"
    method.__doc__ = f"{split_docstring(kind)[0]}\n\n{example}"
    _document_function(
        method,
        kind,
        returns="Dataset",
        first=inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY),
        without=["data"],
    )
    return method


@dataclass(frozen=True, slots=True)
class Dataset:
    """A sealed dataset on disk, which never changes; stages derive new datasets from it.

    Every stage is a method with the options of its command, also a stage of a plug-in:
    ``dataset.brevity(words=8, out=PATH)``. ``dir(dataset)`` lists the names, and
    ``help(dataset.brevity)`` shows the options.

    Attributes:
        path: Directory of the dataset. For a URL, its verified copy in the cache.
        manifest: Description of its content, origin and cost.
        url: URL of the dataset on object storage; empty for a local dataset.
    """

    path: Path
    manifest: Manifest
    url: str = ""

    @property
    def location(self) -> str:
        """URL of the dataset, or its directory."""
        return self.url or str(self.path)

    def __str__(self) -> str:
        """Return the location and the main numbers, one per line."""
        lines = [
            f"{name:<13} {value}"
            for name, value in summary_rows(self.statistics())
            if name in SUMMARY_NAMES
        ]
        return "\n".join([self.location, *lines])

    def statistics(self, gamma: float = DEFAULT_GAMMA) -> DatasetStatistics:
        """Return the statistics of the rows, which are computed when they are read.

        Args:
            gamma: Inverse temperature of the rewards in the step weights α of pairs.
        """
        return DatasetStatistics(self.path, self.manifest, gamma=gamma)

    def problems(self) -> pl.LazyFrame:
        """Return the problems; a row has the fields of :meth:`Problem.to_row`."""
        return self._rows("problems")

    def solutions(self) -> pl.LazyFrame:
        """Return the solutions; a row has the fields of :class:`Solution`."""
        return self._rows("solutions")

    def pairs(self) -> pl.LazyFrame:
        """Return the preference pairs; a row has the fields of :class:`Pair`.

        Raises:
            InputError: if the dataset has no pairs.
        """
        return self._rows("pairs")

    def _rows(self, config: str) -> pl.LazyFrame:
        files = self.manifest.config_paths(self.path, config)
        if not files:
            raise InputError(f"{self.location} has no {config}.")
        return scan_rows(config, files)

    def columns(self) -> dict[str, list[ColumnSummary]]:
        """Return a summary of each column, by config."""
        return {
            config: summarize_columns(config, scan_rows(config, files))
            for config in CONFIGS
            if (files := self.manifest.config_paths(self.path, config))
        }

    def examples(
        self, count: int, *, problem: str | None, outcome: str | None, seed: int
    ) -> list[dict[str, Any]]:
        """Return problems with their ``solutions`` and ``pairs``.

        Args:
            count: Most problems to return.
            problem: First characters of a problem id; None for random problems.
            outcome: Return only solutions with this outcome, and problems that have one.
            seed: Seed of the random selection.

        Raises:
            InputError: if nothing matches.
            SchemaError: if a file is missing or was changed after the seal.
        """
        check_files(self.path, self.manifest.files)
        problems = self.problems()
        solutions = self.solutions()
        if outcome:
            solutions = solutions.filter(pl.col("outcome") == outcome)
            problems = problems.join(solutions, on="problem_id", how="semi")
        if problem:
            problems = problems.filter(pl.col("problem_id").str.starts_with(problem))
        selected = collect_rows(problems)
        if selected.is_empty():
            request = f"problem {problem!r}" if problem else f"solution with outcome {outcome!r}"
            raise InputError(
                f"{self.location} holds no {request}. Leave the option out to see all."
            )
        if problem:
            selected = selected.head(count)
        else:
            selected = selected.sample(min(count, len(selected)), seed=seed)

        def rows_by_problem(rows: pl.LazyFrame) -> dict[Any, Any]:
            is_selected = pl.col("problem_id").is_in(selected["problem_id"].implode())
            return collect_rows(rows.filter(is_selected)).partition_by("problem_id", as_dict=True)

        grouped = rows_by_problem(solutions.sort("sample_index"))
        paired = rows_by_problem(self.pairs()) if self.manifest.rows.pairs else {}
        return [
            {
                **row,
                "solutions": grouped[key].to_dicts(),
                "pairs": paired[key].to_dicts() if key in paired else [],
            }
            for row in selected.iter_rows(named=True)
            if (key := (row["problem_id"],)) in grouped
        ]

    def page(self, *, gamma: float = DEFAULT_GAMMA) -> str:
        """Return an HTML page: statistics, problems, solutions, step rewards, pairs side by side.

        Args:
            gamma: Inverse temperature of the rewards in the step weights α of pairs.
        """
        count = -(-DEFAULT_BUDGET_BYTES // MIN_PROBLEM_BYTES)
        with explain_damage(self.path):
            rows = self.examples(count, problem=None, outcome=None, seed=0)
            return dataset_page(self.path, self.manifest, rows, gamma=gamma)

    # These lines only give type checkers the parameters; every stage is a method.
    label = _stage(LabelOptions, "label", 'out="runs/labelled", rollouts=8')
    score = _stage(ScoreOptions, "score", 'out="runs/scored", prm="runs/prm"')
    grade = _stage(GradeOptions, "grade", 'out="runs/graded"')
    pair = _stage(PairOptions, "pair", 'out="runs/pairs", top=4')
    select = _stage(SelectOptions, "select", 'out="runs/chosen", pass_rate="0.2..0.8"')

    if not TYPE_CHECKING:  # type checkers refuse unknown names

        def __getattr__(self, name: str) -> Callable[..., Dataset]:
            """Return the method of another stage, such as a stage of a plug-in."""
            entry = None if name.startswith("_") else STAGES.get(name.replace("_", "-"))
            if entry is None or entry.options_class is None:
                raise AttributeError(f"'Dataset' has no attribute or stage {name!r}", name=name)
            method = _stage(entry.options_class, name)
            return types.MethodType(method, self)

    def __dir__(self) -> list[str]:
        """Return the names of the attributes, and of the methods of all stages."""
        stage_methods = [name.replace("-", "_") for name in command_names()]
        return sorted({*object.__dir__(self), *stage_methods})

    def validate(self) -> Dataset:
        """Check every file, row and count against the schema and the manifest.

        Raises:
            SchemaError: listing every violated invariant, with the ids of rows.
        """
        validate(self.path)
        return self

    def diff(self, other: Dataset) -> dict[str, ConfigDiff]:
        """Return by config the rows that ``other`` adds, removes or changes."""
        return dict(diff_datasets(self.path, other.path))

    def export(self, to: str, out: StrPath, *, allow_benchmark: bool = False) -> ExportResult:
        """Write the dataset in another format.

        ``to`` is one of :data:`fsdpo_data.exchange.formats.FORMATS`, ``out`` a new or empty folder.
        A dataset with benchmark problems needs ``allow_benchmark``.
        """
        return export(self.path, to, Path(out), allow_benchmark=allow_benchmark)

    def push(
        self,
        name: str,
        *,
        public: bool = False,
        branch: str = "main",
        allow_benchmark: bool = False,
    ) -> str:
        """Publish the dataset as ``org/name``; see :func:`push`."""
        return push(self.path, name, public=public, branch=branch, allow_benchmark=allow_benchmark)


def open_dataset(path: StrPath, progress: Progress = NO_PROGRESS) -> Dataset:
    """Open a sealed dataset.

    Example:
        solutions = open_dataset("runs/first").solutions().collect()

    Args:
        path: The directory of the dataset, or a URL such as ``s3://bucket/runs/first``. Files of a
            URL are copied to the cache, and compared with their digests.
        progress: Receives the progress of a download.

    Raises:
        InputError: if a URL contains credentials.
        SchemaError: if the directory holds no dataset, or a dataset of another schema.
        UnavailableError: if the store of a URL cannot be reached, or refuses.
    """
    if is_url(path):
        check_url(str(path), "path")
    directory = local_copy(path, progress)
    return _make_dataset(path, directory, read_manifest(directory))


def _make_dataset(location: StrPath, directory: Path, manifest: Manifest) -> Dataset:
    """Return the dataset in a directory, with its URL."""
    return Dataset(directory, manifest, str(location) if is_url(location) else "")


def open_output(location: StrPath, manifest: Manifest) -> Dataset:
    """Return a dataset that was just written, by its directory or its URL."""
    return _make_dataset(location, local_copy(location), manifest)


@accepts_options(BuildOptions)
def build(options: BuildOptions) -> Dataset:
    """Sample solutions, cut them into steps, grade and label them, and seal the dataset.

    Example:
        from fsdpo_data import SamplingSpec, build

        dataset = build(problems="train.jsonl", model="./my-sft", sampling=SamplingSpec(n=8))
    """
    _refuse_shard(options)
    return open_output(*run_build(options, NO_PROGRESS))


@accepts_options(SealOptions, "folder")
def seal(options: SealOptions) -> Dataset:
    """Seal an edited copy of a dataset, so that all commands read it again.

    Example:
        from fsdpo_data import seal

        dataset = seal("runs/edited", out="runs/short", parent="runs/demo")
    """
    return open_output(*run_seal(options, NO_PROGRESS))


def run_stage(options: StageOptions, progress: Progress = NO_PROGRESS) -> Dataset:
    """Run one stage on a dataset and return the new dataset, of several the dataset ``out``."""
    _refuse_shard(options)
    _refuse_dry_run(options)
    with local_paths(options, progress) as local_options:
        source = Path(local_options.data)
        for out, stage in stage_entry(options).stages(local_options, progress).items():
            manifest = derive_dataset(
                source, out, [stage], resume=options.resume, progress=progress
            )
    return open_output(options.out, manifest)


def _refuse_dry_run(options: StageOptions) -> None:
    """Refuse options for a dry run, which does not give a dataset."""
    if getattr(options, "dry_run", False):
        raise InputError(
            "a dry run gives no dataset. Use `describe_plan` of the stage's entry in "
            "`fsdpo_data.dataset.stage_registry.STAGES`.",
            field="dry_run",
            value=True,
        )


def _refuse_shard(options: BuildOptions | StageOptions) -> None:
    """Refuse options for one shard, which do not give a dataset."""
    if shard := getattr(options, "shard", None):
        raise InputError(
            "a shard is not a dataset. Use the command line for shards, and `fsdpo-data merge` for "
            "the dataset of all shards.",
            field="shard",
            value=shard,
        )


@accepts_options(AgreeOptions, "reference", "labeller")
def agree(options: AgreeOptions) -> AgreementReport:
    """Measure how far two labellers of the same solutions agree.

    Example:
        from fsdpo_data import agree

        report = agree("runs/people", "runs/scored:rewards", threshold=0.4)
    """
    return compare_labellers(options)


@accepts_options(DecontaminateOptions, "problems")
def decontaminate(options: DecontaminateOptions) -> OverlapReport:
    """Find training problems that occur in benchmarks.

    Example:
        from fsdpo_data import decontaminate

        report = decontaminate(["train.jsonl"], against=["math500=test.jsonl"])
    """
    return run_decontaminate(options, NO_PROGRESS)


def segment(text: str, segmenter: str = "auto", prompt: str = "") -> list[str]:
    r"""Cut a solution into steps; joined they are the text, to the character.

    >>> segment("Step 1: 2 + 2 = 4\nStep 2: So 4.")
    ['Step 1: 2 + 2 = 4\n', 'Step 2: So 4.']

    Args:
        text: The solution.
        segmenter: Name of a segmenter; `fsdpo-data build --help` lists them.
        prompt: Its prompt, which may open the thinking.
    """
    return split_solution(prompt, text, segmenter_name(segmenter))


def _loader(
    kind: Callable[P, OptionsT],
    make: Callable[[str, OptionsT], Result],
    returns: type,
    example: str,
) -> Callable[Concatenate[str, P], Result]:
    """Return a function that loads a model of that name, with options as keywords.

    Args:
        kind: Class of the options.
        make: Function that loads the model.
        returns: Class of the result in the help.
        example: A call in the help.
    """
    options_class: type[Options] = kind  # type: ignore[assignment]

    def load(name: str, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        values = _name_arguments(make.__name__, (), args, kwargs)
        with _names_of_arguments(options_class, make.__name__):
            options = options_class.model_validate(values)
        return make(name, options)  # type: ignore[arg-type]

    load.__name__ = make.__name__
    load.__doc__ = f"{(make.__doc__ or '').partition(chr(10))[0]}\n\nExample:\n    {example}"
    _document_function(
        load,
        options_class,
        returns=returns,
        first=inspect.Parameter("name", inspect.Parameter.POSITIONAL_ONLY, annotation=str),
    )
    return load


load_plugin = plugins.load_plugin
load_sampler = _loader(
    SamplerOptions,
    load.load_sampler,
    Sampler,
    """sampler = load_sampler("tiny", device="cpu")
    for index, completions in sampler.sample([Prompt("2+2?")], SamplingSpec(n=2)):
        print(index, completions)  # an ItemError if the engine refuses the prompt""",
)
load_scorer = _loader(
    ScorerOptions,
    load.load_scorer,
    Scorer,
    """scorer = load_scorer("runs/prm", batch_tokens=4096)
    for index, rewards in scorer.score([ScorerInput("2+2?", ["It is 4."])]):
        print(index, rewards)  # None without rewards; an ItemError if the model refuses it""",
)


def load_template(
    model: str, template: str | None = None, *, engine: SamplerOptions | None = None
) -> Template:
    """Return the prompt template of a model, whose ``render(question)`` gives the prompt.

    ``stop`` has the strings that end a completion, for :class:`SamplingSpec`.

    Example:
        prompt = load_template("tiny").render("2+2?")

    Args:
        model: Short name, `org/name[@revision]` on the Hub, or a directory.
        template: Name of another template; None for the template of the model.
        engine: The engine of the model; a server may apply a chat template of its own.

    Raises:
        InputError: if the model or the template does not exist.
        UnavailableError: if the Hub cannot be reached, or denies access.
    """
    return resolve_model(model, engine or SamplerOptions(), template).template


def push(
    data: StrPath,
    name: str,
    *,
    public: bool = False,
    branch: str = "main",
    allow_benchmark: bool = False,
) -> str:
    """Publish a dataset as ``org/name``: validate, one commit, one tag, read back.

    Example:
        commit = push("runs/first", "org/name", public=True)

    Args:
        data: The directory or the URL of the dataset.
        name: The repository on the Hub, ``org/name``.
        public: Whether a new repository is public.
        branch: The branch that gets the commit.
        allow_benchmark: Whether the dataset may have benchmark problems.

    Returns:
        The commit.
    """
    root = open_dataset(data).path
    plan = plan_push(root, name, branch=branch, allow_benchmark=allow_benchmark)
    return push_dataset(plan, public=public, progress=NO_PROGRESS)


def pull(name: str, out: StrPath | None = None, progress: Progress = NO_PROGRESS) -> Dataset:
    """Fetch a dataset from the Hub and check every file, row and count.

    Example:
        dataset = pull("org/name", "runs/pulled")

    Args:
        name: ``org/name`` or ``org/name@tag``.
        out: Directory; ``runs/NAME-TAG`` if None.
        progress: Receives the progress of the download.
    """
    target = Path(out or Path("runs") / name.partition("/")[2].replace("@", "-").replace("/", "-"))
    return Dataset(target, pull_dataset(name, target, progress=progress))
