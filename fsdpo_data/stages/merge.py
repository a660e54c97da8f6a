"""Merge the shards of a stage into the dataset that one job without shards would write.

A shard contains only the expensive part, samples or rewards, and no dataset. Merging copies the
files of all shards into one run directory and resumes the original command there. The command finds
no missing samples, so it loads no model; it grades, counts and seals as usual.

A merge can be repeated after a shard has been resumed because some of its items failed. The results
that depend on the new samples or rewards are then written again.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar, cast

from fsdpo_data.core.command_line import parse_fields
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.failures import FAILURES_FILE, count_failures, read_failures
from fsdpo_data.core.files import store_errors, write_text
from fsdpo_data.core.identity import digest
from fsdpo_data.core.input_files import read_json
from fsdpo_data.core.job_shard import JobShard
from fsdpo_data.core.jsonl_log import JsonlLog, scan_lines
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.progress import Progress
from fsdpo_data.dataset.derive import derive_dataset, derive_shard
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.remote import expand_folders, local_paths
from fsdpo_data.dataset.run_directory import (
    COMPLETIONS_FILE,
    CONFIG_FILE,
    MANIFEST_FILE,
    RUN_FILE,
    SHARD_FILE,
    lock_run_directory,
)
from fsdpo_data.dataset.stage import ShardedStage, StageOptions, copy_file, discard_dataset
from fsdpo_data.dataset.stage_registry import STAGES, stage_entry
from fsdpo_data.engines.options import FailureOptions
from fsdpo_data.stages.pipeline import BuildOptions, run_build, run_build_shard

LINES_PER_WRITE = 256  #: Lines of completions per write.
#: The files of JSON lines in a shard, with the field that identifies a line.
_LINE_KEYS = {COMPLETIONS_FILE: "problem_id", FAILURES_FILE: "id"}
_PER_JOB_OPTIONS = {"out", "shard", "resume"}  #: Options that may differ between shards.
BUILD_COMMAND = "build"  #: The only command with shards that is not a stage.
OptionsT = TypeVar("OptionsT", bound=Options)
ShardedOptions: TypeAlias = BuildOptions | StageOptions  #: Options of commands with shards.


class MergeOptions(Options):
    """Merge the shards that `--shard i/N` of a command has written into one dataset.

    The result is identical to the dataset of the same command without shards. No model is loaded.
    If the merge is interrupted, run the same command again.

    Examples:
        fsdpo-data merge runs/demo-shards/* --out runs/demo

        fsdpo-data merge 's3://bucket/demo-shards/*' --out s3://bucket/demo
    """

    shards: Annotated[Sequence[str | Path], Option(positional=True, dataset="input")]
    """Directories of all shards, in any order. A URL may end in `/*`, which stands for all folders
    there.
    """
    out: Annotated[str | Path, Option(in_digest=False, dataset="output")]
    """Directory or URL of the new dataset."""


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """A finished shard on disk."""

    path: Path  #: Directory of the shard.
    location: str | Path  #: The directory or the URL that the user named.
    job: JobShard  #: Index of the shard, and the number of shards.
    program: str  #: The program that wrote the shard.
    command: str  #: The command of the program.
    #: The stated options of the command, without ``_PER_JOB_OPTIONS``.
    options: dict[str, Any]
    config: dict[str, Any]  #: Config of the complete run.


class ShardedProgram(NamedTuple):
    """A program with commands that work in shards."""

    name: str  #: Name of the program, such as ``fsdpo-data``.
    #: Returns the options class of a command; KeyError for other commands.
    options_class: Callable[[str], type[Options]]


@dataclass(frozen=True, slots=True)
class FinishedShard:
    """The result of the command that wrote a shard."""

    job: JobShard  #: Index of the shard, and the number of shards.
    location: str | Path  #: The directory or the URL of the shard.
    failed: dict[str, int]  #: Number of failed items, by the path of their file in the shard.


def run_shard(options: ShardedOptions, progress: Progress) -> FinishedShard:
    """Do the part of a command's work that the option ``shard`` names."""
    job = JobShard.parse(str(getattr(options, "shard", None)))
    with local_paths(options, progress) as local_options:
        if isinstance(local_options, BuildOptions):
            command = BUILD_COMMAND
            out = run_build_shard(local_options, job, progress)
        else:
            entry = stage_entry(local_options)
            command = entry.name
            out = Path(local_options.out)
            [stage] = entry.stages(local_options, progress).values()
            source = Path(local_options.data)
            sharded_stage = cast(ShardedStage, stage)
            derive_shard(source, out, sharded_stage, job, resume=options.resume, progress=progress)
        # The merge may run on another machine, so the description keeps the URLs of the options.
        write_shard_file(_PROGRAM.name, command, options, job, out)
        return FinishedShard(job, options.out or out, count_failures(out))


def write_shard_file(
    program: str, command: str, options: Options, job: JobShard, out: Path
) -> None:
    """Describe a finished shard in its directory, for the merge."""
    entry = {
        "shard": str(job),
        "program": program,
        "command": command,
        "options": options.model_dump(mode="json", exclude_unset=True, exclude=_PER_JOB_OPTIONS),
    }
    text = json.dumps({**entry, "digest": digest(entry)}, indent=2)
    write_text(out / SHARD_FILE, text + "\n")


def merge_shards(options: MergeOptions, progress: Progress) -> tuple[str | Path, Manifest]:
    """Merge shards, and finish the command that wrote them.

    Returns:
        The directory or the URL of the dataset, and its manifest.

    Raises:
        InputError: if a shard is missing, unfinished, or belongs to another run.
        RunMismatchError: if ``options.out`` contains another run, or the input of the shards has
            changed since.
        StoreError: if the disk fails.
    """
    options = options.replace(shards=expand_folders(options.shards))
    with local_paths(options, progress) as local_options:
        shards = read_shards(local_options, options.shards, _PROGRAM)
        manifest = _finish_command(shards, local_options, progress)
    return options.out, manifest


def _finish_command(
    shards: Sequence[ShardInfo], options: MergeOptions, progress: Progress
) -> Manifest:
    """Copy the shards to the output, and resume their command there; return the new manifest."""
    command = shards[0].command
    out = Path(options.out)
    command_options = copy_shards(shards, options, _options_class(command))
    if isinstance(command_options, BuildOptions):
        return run_build(command_options, progress)[1]
    with local_paths(command_options, progress) as local_options:
        source = Path(local_options.data)
        stages = STAGES[command].stages(local_options, progress)
        return derive_dataset(source, out, [*stages.values()], resume=True, progress=progress)


def copy_shards(
    shards: Sequence[ShardInfo], options: MergeOptions, options_class: type[OptionsT]
) -> OptionsT:
    """Copy shards to the output of a merge; return the options that finish their command there.

    Args:
        shards: The shards, from :func:`read_shards`.
        options: The options of the merge, with local paths.
        options_class: Class of the options of the command.

    Raises:
        InputError: if the shards are from a release with other options.
        RunMismatchError: if the output contains another run.
        StoreError: if the disk fails.
    """
    first_shard = shards[0]
    out = Path(options.out)
    command_options = _finishing_options(first_shard, options, options_class)
    with lock_run_directory(out, first_shard.config, resume=True):
        _discard_resolved_failures([shard.path for shard in shards], out)
        _copy_files([shard.path for shard in shards], out)
    return command_options


def _finishing_options(
    shard: ShardInfo, options: MergeOptions, options_class: type[OptionsT]
) -> OptionsT:
    """Return the options that finish the command of a shard in the output of a merge."""
    values = shard.options | {"out": str(options.out), "resume": True}
    if issubclass(options_class, FailureOptions):
        # The shards have tried every item, and another try would need the model.
        values["retry_failed"] = False
    try:
        return parse_fields(options_class, values)
    except InputError as error:
        raise _shard_error(
            shard.location,
            f"the options of this shard differ from this release: {error} Merge with the release "
            "that wrote it.",
        ) from None


def _options_class(command: str) -> type[ShardedOptions]:
    """Return the options class of a command with shards; KeyError for other commands."""
    if command == BUILD_COMMAND:
        return BuildOptions
    entry = STAGES[command]
    if entry.options_class is None or not entry.has_shards:
        raise KeyError(command)
    return entry.options_class


_PROGRAM = ShardedProgram("fsdpo-data", _options_class)


def read_shards(
    options: MergeOptions, locations: Sequence[str | Path], program: ShardedProgram
) -> list[ShardInfo]:
    """Read the descriptions of all shards of a command, in their order.

    Args:
        options: The options of the merge, with local paths.
        locations: The directories or URLs that the user named.
        program: The program that merges.

    Raises:
        InputError: if a shard is missing, unfinished, repeated, or belongs to another run.
    """
    shards = [
        _read_shard(Path(path), location, program)
        for path, location in zip(options.shards, locations, strict=True)
    ]
    return _check_shards(shards)


def _read_shard(path: Path, location: str | Path, program: ShardedProgram) -> ShardInfo:
    """Read the description of a finished shard; InputError if there is none.

    Args:
        path: Directory of the shard.
        location: The directory or the URL that the user named.
        program: The program that merges.
    """
    shard = None
    try:
        entry = read_json(path / SHARD_FILE)
        config = read_json(path / CONFIG_FILE)
        is_unchanged = entry.pop("digest") == digest(entry)
        job = JobShard.parse(entry["shard"])
        is_of_run = config.pop("shard") == entry["shard"]
        if is_unchanged and is_of_run:
            config.pop("config_digest", None)
            shard = ShardInfo(
                path=path,
                location=location,
                job=job,
                program=entry["program"],
                command=entry["command"],
                options=entry["options"],
                config=config,
            )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    if shard is not None:
        _check_program(shard, program)
        return shard
    if (path / RUN_FILE).is_file():
        raise _shard_error(
            location,
            "this directory is a complete run, and `merge` joins only the shards of one run, which "
            "`shard=i/N` writes. `fsdpo-bench report` takes several runs.",
        )
    if (path / MANIFEST_FILE).is_file():
        raise _shard_error(
            location,
            "this directory is a complete dataset, and `merge` joins only the shards of one "
            "command, which `shard=i/N` writes. `fsdpo-train` takes several datasets.",
        )
    if not path.is_dir():
        raise _shard_error(
            location, "there is no such directory; expected the directory of a shard."
        )
    raise _shard_error(
        location,
        "expected a finished shard. Finish it with the command that started it and `resume=True`.",
    )


def _check_program(shard: ShardInfo, program: ShardedProgram) -> None:
    """Raise an InputError if a program has no command that writes such shards."""
    if shard.program != program.name:
        raise _shard_error(
            shard.location,
            f"`{shard.program} {shard.command}` wrote this shard. Use `{shard.program} merge`.",
        )
    try:
        program.options_class(shard.command)
    except KeyError:
        raise _shard_error(
            shard.location,
            f"the command {shard.command} wrote this shard, and {program.name} does not know it. "
            "Load its plug-in.",
        ) from None


def _shard_error(location: str | Path, message: str) -> InputError:
    """Return the error of one shard."""
    return InputError(message, field="MergeOptions.shards", value=str(location))


def _check_shards(shards: Sequence[ShardInfo]) -> list[ShardInfo]:
    """Return the shards in order; InputError if one is missing, repeated or of another run."""
    first_shard = shards[0]
    count = first_shard.job.count
    for shard in shards:
        if shard.command != first_shard.command or shard.config != first_shard.config:
            raise _shard_error(
                shard.location,
                f"the shard is not of the same run as {first_shard.location}: they were "
                "started with other options.",
            )
        if shard.job.count != count:
            raise _shard_error(
                shard.location,
                f"this is shard {shard.job}, and {first_shard.location} is shard "
                f"{first_shard.job}; expected shards with the same N.",
            )
    indices = [shard.job.index for shard in shards]
    missing = [str(index) for index in range(1, count + 1) if index not in indices]
    if missing:
        raise InputError(
            f"shard {', '.join(missing)} is missing; expected each of 1/{count} to {count} once."
        )
    if len(indices) > count:
        raise InputError(f"a shard is given twice; expected each of 1/{count} to {count} once.")
    return sorted(shards, key=lambda shard: shard.job.index)


def _discard_resolved_failures(shards: Sequence[Path], out: Path) -> None:
    """Discard the files of an earlier merge if items that had failed then have succeeded.

    A shard of step rewards contains finished files, which it has then written again.
    """
    failed_ids = {record["id"] for shard in shards for record in read_failures(shard)}
    if any(record["id"] not in failed_ids for record in read_failures(out)):
        discard_dataset(out)
        with store_errors(out):
            (out / FAILURES_FILE).unlink()  # last: a stopped merge discards again


def _copy_files(shards: Sequence[Path], out: Path) -> None:
    """Copy the files of all shards into ``out``; JSON lines are appended to the existing ones."""
    files_by_path: dict[Path, list[Path]] = {}
    for shard in shards:
        for file in sorted(shard.rglob("*")):
            files_by_path.setdefault(file.relative_to(shard), []).append(file)
    for path, files in files_by_path.items():
        target = out / path
        datasets = [out / folder for folder in path.parents]  # their solutions have the lines
        is_nested_config = path.name == CONFIG_FILE and path.parent.name
        if path.name == COMPLETIONS_FILE:
            _append_lines(files, target, datasets)
        elif path.name == FAILURES_FILE:
            # A sealed dataset has all failures of the shards that still hold.
            if not any((dataset / MANIFEST_FILE).exists() for dataset in datasets):
                _append_lines(files, target)
        elif (path.suffix == ".parquet" or is_nested_config) and not target.exists():
            copy_file(files[0], target)


def _append_lines(sources: Sequence[Path], target: Path, datasets: Sequence[Path] = ()) -> None:
    """Append the complete lines of files that another file does not have yet.

    Args:
        sources: The files with the lines.
        target: The file that receives the lines; it is created if it is missing.
        datasets: Datasets that depend on the lines. They are discarded before lines are appended.
    """
    key = itemgetter(_LINE_KEYS[target.name])
    with store_errors(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
    # Opening the target reads all of it, so it is opened once for all shards.
    with JsonlLog.open(target, key) as log:
        batches = chain.from_iterable(_new_lines(source, log, key) for source in sources)
        for number, batch in enumerate(batches):
            if number == 0:
                for dataset in datasets:
                    discard_dataset(dataset)
            log.append(batch)


def _new_lines(
    source: Path, log: JsonlLog, key: Callable[[Mapping[str, Any]], str]
) -> Iterator[Mapping[str, bytes]]:
    """Yield the lines of a file that a log does not have yet, in batches by key."""
    batch: dict[str, bytes] = {}
    with source.open("rb") as file:
        for line_key, span in scan_lines(source, key):
            text = file.read(span.length)
            if line_key is not None and line_key not in log.line_spans:
                batch.setdefault(line_key, text)
            if len(batch) == LINES_PER_WRITE:
                yield batch
                batch = {}
    if batch:
        yield batch
