"""Shards of runs: the samples of a part of the problems, and the run of all shards.

A shard has the folders of the complete run, with the samples of its problems. A merge copies the
files of all shards into one folder, and resumes the run there. The run finds no missing samples; it
computes the step rewards of shared samples, judges, and seals as usual.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from fsdpo_bench.benchmark_run import Warn, prepare_run
from fsdpo_bench.run_options import RunOptions
from fsdpo_data.core.failures import count_failures
from fsdpo_data.core.job_shard import JobShard
from fsdpo_data.core.progress import progress
from fsdpo_data.dataset.remote import expand_folders, local_paths
from fsdpo_data.dataset.run_directory import lock_run_directory
from fsdpo_data.stages.merge import (
    FinishedShard,
    MergeOptions,
    ShardedProgram,
    copy_shards,
    read_shards,
    write_shard_file,
)
from fsdpo_data.stages.sample import build_shard

_COMMAND = "run"  #: The command of ``fsdpo-bench`` that writes shards.
_PROGRAM = ShardedProgram("fsdpo-bench", {_COMMAND: RunOptions}.__getitem__)


def run_shard(options: RunOptions, warn: Warn) -> FinishedShard:
    """Sample the solutions of the shard that the option ``shard`` names.

    Raises:
        InputError: if an option cannot be used.
        RunMismatchError: if the directory contains another run or another shard.
        UnavailableError: if a library, a GPU, a model or the Hub is not available.
    """
    shard = JobShard.parse(str(options.shard))
    with local_paths(options) as local_options:
        run = prepare_run(local_options)
        for warning in run.warnings:
            warn(warning)
        out = Path(local_options.out or f"{run.default_out}-{shard.index}-of-{shard.count}")
        config = {**run.config, "shard": str(shard)}
        with lock_run_directory(out, config, resume=options.resume), progress() as progress_bar:
            try:
                for name, part in run.parts.items():
                    folder = run.build_folder(out) / name
                    build_shard(
                        part.job,
                        folder,
                        part.stages,
                        shard,
                        resume=True,
                        is_part=True,
                        progress=progress_bar,
                    )
            finally:
                run.close_engines()
        write_shard_file(_PROGRAM.name, _COMMAND, options, shard, out)
        return FinishedShard(shard, options.out or out, count_failures(out))


@contextlib.contextmanager
def merged_shards(options: MergeOptions) -> Iterator[RunOptions]:
    """Copy shards into the folder of a run; yield the options that finish the run.

    A URL gets the folder after the block.

    Raises:
        InputError: if a shard is missing, unfinished, or belongs to another run.
        RunMismatchError: if the output contains another run.
        StoreError: if the disk fails.
    """
    options = options.replace(shards=expand_folders(options.shards))
    with local_paths(options) as local_options:
        shards = read_shards(local_options, options.shards, _PROGRAM)
        yield copy_shards(shards, local_options, RunOptions)
