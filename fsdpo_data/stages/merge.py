"""Shards of a stage put together: the dataset is, to the byte, that of a run without shards.

A shard holds what is dear, the samples or the rewards, and no dataset. Merging brings the shards'
files into one run directory and lets the command that made them go on there: it finds nothing owed,
so no model is loaded, and it grades, counts and seals as it always does.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import store_errors, write_text
from fsdpo_data.core.identity import digest
from fsdpo_data.core.job_shard import JobShard
from fsdpo_data.core.jsonl_log import JsonlLog, scan_lines
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.row_files import summarize_list
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.run import COMPLETIONS_FILE, CONFIG_FILE, lock_run_directory
from fsdpo_data.dataset.stage import copy_file, derive_dataset, derive_shard
from fsdpo_data.engines.options import Workers
from fsdpo_data.stages.label import LabelOptions
from fsdpo_data.stages.pipeline import BuildOptions, run_build, run_build_shard
from fsdpo_data.stages.score import ScoreOptions

SHARD_FILE = "shard.json"  #: What a finished shard says about itself.
LINES_PER_WRITE = 256  #: Lines appended at once.
_PER_JOB_OPTIONS = {"out", "shard", "resume"}  #: Options that say nothing of the whole.
ShardedOptions = BuildOptions | LabelOptions | ScoreOptions  #: The commands that have shards.
_KINDS: Mapping[str, type[ShardedOptions]] = {
    "build": BuildOptions,
    "label": LabelOptions,
    "score": ScoreOptions,
}


@dataclass(frozen=True, kw_only=True)
class MergeOptions(Options):
    """Seal the dataset of which `--shard i/N` of build, label or score has made all parts.

    It is the dataset of the same command without shards, to the byte. No model is loaded.
    Stopped at any moment, the same command goes on.

    Attributes:
        shards: The directories of all shards, in any order.
        out: Directory of the dataset.
        workers: Processes that grade.
    """

    shards: Annotated[Sequence[str | Path], Option(positional=True)]
    out: str | Path
    workers: Workers = None


@dataclass(frozen=True, slots=True)
class _ShardInfo:
    """A finished shard on disk: which one, what made it, and what it is a shard of."""

    path: Path
    job: JobShard
    command: str
    options: dict[str, Any]
    config: dict[str, Any]


def run_shard(options: ShardedOptions, progress: Progress) -> Path:
    """Do the part of a command's work that ``options.shard`` names; return its directory."""
    job = JobShard.parse(str(options.shard))
    if isinstance(options, BuildOptions):
        out = run_build_shard(options, job, progress)
    else:
        out = Path(options.out)
        source, stage = Path(options.data), options.stage()
        derive_shard(source, out, stage, job, resume=options.resume, progress=progress)
    command = next(name for name, kind in _KINDS.items() if kind is type(options))
    given = {name: value for name, value in asdict(options).items() if name not in _PER_JOB_OPTIONS}
    told = json.loads(json.dumps({"command": command, "options": given}, default=str))
    told = {"shard": str(job), **told}
    write_text(out / SHARD_FILE, json.dumps({**told, "digest": digest(told)}, indent=2) + "\n")
    return out


def merge(options: MergeOptions, progress: Progress) -> tuple[Path, Manifest]:
    """Put shards together and let the command that made them end the work.

    Raises:
        InputError: if a shard is missing, not finished, or of another run than the others.
        RunMismatchError: if ``options.out`` holds another run, or what the shards were made from has
            changed since.
        StoreError: if the disk fails.
    """
    out = Path(options.out)
    shards = _complete([_read(Path(path)) for path in options.shards])
    first = shards[0]
    known = {each.name for each in fields(_KINDS[first.command])} - _PER_JOB_OPTIONS
    if other := first.options.keys() ^ known:
        told = f"its options are not those of this release: {summarize_list(sorted(other))}. "
        raise _shard_error(first.path, f"{told}Merge with the release that made it.")
    with lock_run_directory(out, first.config, resume=True):
        for shard in shards:
            _copy_shard(shard.path, out)
    given = first.options | {"out": str(out), "resume": True}
    if "workers" in given:
        given["workers"] = options.workers
    whole = _KINDS[first.command](**given)
    if isinstance(whole, BuildOptions):
        return run_build(whole, progress)
    source, stage = Path(whole.data), whole.stage()
    return out, derive_dataset(source, out, [stage], resume=True, progress=progress)


def _read(path: Path) -> _ShardInfo:
    try:
        told = json.loads((path / SHARD_FILE).read_bytes())
        config = json.loads((path / CONFIG_FILE).read_bytes())
        if told.pop("digest") != digest(told):
            raise ValueError("it was changed")
        job = JobShard.parse(told["shard"])
        if _KINDS.keys() & {told["command"]} and config.pop("shard") == told["shard"]:
            config.pop("config_digest", None)
            given = told["options"].items()
            options = {name: tuple(v) if isinstance(v, list) else v for name, v in given}
            return _ShardInfo(path, job, told["command"], options, config)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    told = "expected a finished shard. Finish it with the command that started it and "
    raise _shard_error(path, f"{told}`resume=True`.")


def _shard_error(shard: Path, message: str) -> InputError:
    return InputError(message, field="MergeOptions.shards", value=str(shard))


def _complete(shards: Sequence[_ShardInfo]) -> list[_ShardInfo]:
    """Return the shards in order; refuse them if they are not all, or not of one run."""
    first, count = shards[0], shards[0].job.count
    for shard in shards:
        if (shard.command, shard.config, shard.job.count) != (first.command, first.config, count):
            told = f"it is not of the same run as {first.path}: they were started with other "
            raise _shard_error(shard.path, f"{told}options.")
    there = [shard.job.index for shard in shards]
    missing = [str(i) for i in range(1, count + 1) if i not in there]
    if missing or len(there) > count:
        what = f"shard {', '.join(missing)} is missing" if missing else "a shard is given twice"
        raise InputError(f"{what}; expected each of 1/{count} to {count} once.")
    return sorted(shards, key=lambda shard: shard.job.index)


def _copy_shard(shard: Path, out: Path) -> None:
    """Bring a shard's files into ``out``: completions behind those there, others as they are."""
    for file in sorted(shard.rglob("*")):
        path = file.relative_to(shard)
        if file.name == COMPLETIONS_FILE:
            _append(file, out / path)
            continue
        kept = file.suffix == ".parquet" or (file.name == CONFIG_FILE and path.parent.name)
        if kept and not (out / path).exists():
            copy_file(file, out / path)


def _append(source: Path, target: Path) -> None:
    """Append the whole lines of a file that another does not have yet."""
    key = itemgetter("problem_id")
    with store_errors(target.parent):
        target.parent.mkdir(exist_ok=True)
    with JsonlLog.open(target, key) as lines, source.open("rb") as file:
        block: dict[str, bytes] = {}
        for name, length in scan_lines(source, key):
            line = file.read(length)
            if name is not None and name not in lines.line_spans:
                block.setdefault(name, line)
            if len(block) == LINES_PER_WRITE:
                lines.append(block)
                block = {}
        lines.append(block)
