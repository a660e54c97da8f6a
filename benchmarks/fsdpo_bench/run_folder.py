"""The folder of a run: one sealed dataset per part, and ``run.json`` with the decoders.

A part is a dataset of benchmark problems. The part ``samples`` has the samples that decoders share.
Each decoder that generates solutions of its own has a part with the name of its result.
"""

from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fsdpo_bench.tasks.description import TaskDescription
from fsdpo_bench.tasks.table import is_listed
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import write_atomic
from fsdpo_data.core.identity import SourceRef
from fsdpo_data.core.input_files import read_file, read_json
from fsdpo_data.core.options import FROM_FILE
from fsdpo_data.dataset.run_directory import RUN_FILE

RESULTS_FILE = "results.json"  #: Name of the file with the results of a run.
#: Version of ``run.json`` and ``results.json``. It increases when a field changes its meaning.
FORMAT_VERSION: Final = 3

FileRecord = TypeVar("FileRecord", bound=BaseModel)


class BenchmarkEntry(BaseModel):
    """A benchmark in a run, with the problems that the datasets of the run have."""

    model_config = ConfigDict(strict=True, frozen=True)

    task: TaskDescription  #: The benchmark; its ``count`` is of the complete benchmark.
    problems: int  #: Number of problems of the run, in which an id can occur twice.
    digest: str  #: Digest of the complete benchmark.
    selected: str  #: Digest of the problems of the run.
    source: SourceRef  #: Source of the problems.

    @property
    def is_listed(self) -> bool:
        """Whether a listed benchmark has these problems; a file may have its name, too."""
        return is_listed(self.task.name, self.digest)


class RunRecord(BaseModel):
    """The content of ``run.json``."""

    model_config = ConfigDict(strict=True, frozen=True)

    version: Literal[3] = 3  #: Version of the format.
    #: Result names of the decoders, such as ``sc@5``, in the order of the results.
    decoders: Annotated[list[str], Field(min_length=1)]
    parts: list[str]  #: Names of the datasets, which are folders in the run.
    benchmarks: dict[str, BenchmarkEntry]  #: The benchmarks by name, in the order of the results.


def write_run_record(run: Path, record: RunRecord) -> None:
    """Write ``run.json``."""
    write_atomic(run / RUN_FILE, (record.model_dump_json(indent=1) + "\n").encode())


def is_run(folder: Path) -> bool:
    """Return whether a folder is a run of ``fsdpo-bench``."""
    return (folder / RUN_FILE).is_file()


def read_run_record(run: Path) -> RunRecord:
    """Read ``run.json``.

    Raises:
        InputError: if the file is not a ``run.json`` of this release.
    """
    return read_record(run / RUN_FILE, RunRecord)


def read_version(file: Path) -> Any:
    """Return the version in ``run.json`` or ``results.json``; None without a version.

    Raises:
        InputError: if the file is not JSON.
        OSError: if the file cannot be read.
    """
    content = read_json(file)
    return content.get("version") if isinstance(content, dict) else None


def read_record(file: Path, record_class: type[FileRecord]) -> FileRecord:
    """Read ``run.json`` or ``results.json``.

    Raises:
        InputError: if the file is missing, is of another version, or is not such a file.
    """
    try:
        version = read_version(file)
        if isinstance(version, int) and version != FORMAT_VERSION:
            raise InputError(
                f"{file} is of version {version}; this release reads version {FORMAT_VERSION}. "
                "Name a new folder, or move this one away, and run the benchmark again."
            )
        return record_class.model_validate_json(read_file(file), context=FROM_FILE)
    except OSError as error:
        raise InputError(
            f"{file} cannot be read ({error.strerror}). Expected a run that `fsdpo-bench run` "
            "wrote."
        ) from None
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        path = ".".join(map(str, detail["loc"]))
        raise InputError(
            f"{file} is damaged ({path}: {detail['msg']}). Restore the file, or run the benchmark "
            "again into a new folder."
        ) from None
