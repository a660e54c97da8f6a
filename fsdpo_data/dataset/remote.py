"""Options with URLs of datasets and shards on object storage.

Commands work on local directories. An input is copied to the cache of the user, and an output is
written to a local directory and then uploaded.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fsdpo_data.core.errors import FsdpoError, InputError
from fsdpo_data.core.options import Options, declared_fields
from fsdpo_data.core.progress import NO_PROGRESS, Progress
from fsdpo_data.core.remote_folder import RemoteFolder
from fsdpo_data.core.urls import is_url
from fsdpo_data.dataset.remote_copies import local_copy
from fsdpo_data.dataset.remote_outputs import local_output

OptionsT = TypeVar("OptionsT", bound=Options)

ALL_FOLDERS = "/*"  #: End of a URL that stands for all folders in a folder.


@contextlib.contextmanager
def local_paths(options: OptionsT, progress: Progress = NO_PROGRESS) -> Iterator[OptionsT]:
    """Yield options with local directories in place of URLs; upload the output after the block.

    The fields with ``Option.dataset`` hold datasets. If the block fails, nothing is uploaded, and
    the local files of the output stay for ``resume``.

    Raises:
        InputError: if the output is also an input.
        RunMismatchError: if the output's folder holds another run or other files.
        SchemaError: if an input is not a complete dataset or shard, or is damaged.
        UnavailableError: if a store cannot be reached, or refuses.
    """
    declarations = declared_fields(type(options)).items()
    roles = {name: field.option.dataset for name, field in declarations if field.option.dataset}
    inputs = [name for name, role in roles.items() if role == "input"]
    outputs = [name for name, role in roles.items() if role == "output"]
    local_values: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        for name in outputs:
            url = getattr(options, name)
            if is_url(url):
                _check_not_input(name, url, [getattr(options, name) for name in inputs])
                resume = bool(getattr(options, "resume", True))
                output = local_output(url, resume=resume, progress=progress)
                local_values[name] = stack.enter_context(output)
        copies: dict[Path, str] = {}
        for name in inputs:
            value = getattr(options, name)
            items = value if isinstance(value, tuple | list) else [value]
            if not any(map(is_url, items)):
                continue
            local_items = tuple(local_copy(item, progress) for item in items)
            local_values[name] = local_items if items is value else local_items[0]
            copies |= {
                copy: item for copy, item in zip(local_items, items, strict=True) if is_url(item)
            }
        if copies:
            stack.enter_context(errors_with_urls(copies))
        yield dataclasses.replace(options, **local_values) if local_values else options  # type: ignore[type-var]


@contextlib.contextmanager
def errors_with_urls(copies: Mapping[Path, str]) -> Iterator[None]:
    """Write the URLs of copies in place of their paths in errors of the block.

    Args:
        copies: URLs by the path of the local copy.
    """
    try:
        yield
    except FsdpoError as error:
        renamed_error = error
        for copy, url in copies.items():
            renamed_error = renamed_error.with_text(str(copy), url)
        raise renamed_error from None


def _check_not_input(name: str, url: str, inputs: Sequence[object]) -> None:
    """Refuse an output that is also an input."""
    if url.rstrip("/") in [str(value).rstrip("/") for value in inputs]:
        raise InputError(
            "a sealed dataset is never changed. Choose a new folder.", field=name, value=url
        )


def expand_folders(locations: Sequence[str | Path]) -> list[str | Path]:
    """Return locations with the folders in a folder in place of a URL that ends in ``/*``.

    A shell expands only local patterns. No other character of a URL is a pattern.

    Raises:
        InputError: if such a folder has no folders.
    """
    expanded: list[str | Path] = []
    for location in locations:
        if not is_url(location) or not str(location).endswith(ALL_FOLDERS):
            expanded.append(location)
            continue
        folder = RemoteFolder(str(location).removesuffix(ALL_FOLDERS))
        urls = folder.list_folders()
        if not urls:
            raise InputError(f"{folder.url} holds no folders. Check the URL before `/*`.")
        expanded += urls
    return expanded
