"""Plug-ins: modules outside this package that add samplers, segmenters, losses and other things.

The user names a plug-in file or module with ``--plugin``. An installed package is a plug-in too if
it has entry points of a group such as ``fsdpo.segmenters``. All register their objects in a
:class:`~fsdpo_data.core.registry.Registry`. A plug-in runs with the rights of the program.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from fsdpo_data.core.errors import InputError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: Environment variable with the plug-ins of ``--plugin``, separated like the entries of ``PATH``.
#: Worker processes, Ray actors and the processes of ``torchrun`` load them from here.
PLUGINS_VARIABLE = "FSDPO_PLUGINS"

EntryT = TypeVar("EntryT", bound=Any)


@dataclass(frozen=True, slots=True, order=True)
class PluginRef:
    """The identity of a loaded plug-in, as manifests record it."""

    module: str  #: Name of the module.
    version: str  #: Version of the installed package; empty for a file.
    sha256: str  #: SHA-256 of the module's source file; empty without a file.


#: The loaded plug-ins, by the name of their module.
_loaded_plugins: dict[str, PluginRef] = {}


def load_plugin(argument: str) -> PluginRef:
    """Import a plug-in, and make it available to the processes that this process starts.

    Example:
        plugin = load_plugin("my_plugin.py")

    Args:
        argument: Path of a Python file, or the dotted name of an importable module.

    Raises:
        InputError: if the file does not exist, or the import fails.
    """
    path = Path(argument)
    if path.suffix == ".py":
        # Worker processes may have another working directory.
        path = path.expanduser().resolve()
        argument = str(path)
        plugin = _import_file(path)
    elif path.is_file():
        raise InputError(
            "expected a Python file (.py), or the name of a module.", field="plugin", value=argument
        )
    else:
        with _import_errors(argument):
            importlib.import_module(argument)
        plugin = _record_plugin(argument, version=_package_version(argument))
    arguments = plugin_arguments()
    if argument not in arguments:
        os.environ[PLUGINS_VARIABLE] = os.pathsep.join([*arguments, argument])
    return plugin


def load_environment_plugins() -> None:
    """Load the plug-ins that the parent process has loaded. Each program and worker starts so."""
    for argument in plugin_arguments():
        load_plugin(argument)


def plugin_arguments() -> list[str]:
    """Return the values of ``--plugin`` that load the plug-ins of this process.

    Plug-ins with entry points need no ``--plugin``, so they are not included.
    """
    return [name for name in os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep) if name]


def plugin_environment() -> dict[str, str]:
    """Return the environment variables that load the same plug-ins in a process elsewhere."""
    plugins = os.environ.get(PLUGINS_VARIABLE)
    return {PLUGINS_VARIABLE: plugins} if plugins else {}


def loaded_plugins() -> list[PluginRef]:
    """Return the plug-ins that this process has loaded, sorted by module name."""
    return sorted(_loaded_plugins.values())


def import_submodules(package: str) -> None:
    """Import all modules of a package of this project, in the order of their names."""
    folders = importlib.import_module(package).__path__
    for module in sorted(pkgutil.iter_modules(folders), key=lambda module: module.name):
        importlib.import_module(f"{package}.{module.name}")


@cache
def entry_points(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group of installed plug-ins by name, without importing them."""
    by_name: dict[str, EntryPoint] = {}
    for entry_point in _program_entry_points():
        if entry_point.group == group:
            by_name.setdefault(entry_point.name, entry_point)  # as for imports, the first one wins
    return by_name


@cache
def _program_entry_points() -> Sequence[EntryPoint]:
    """Return the entry points of all groups of this program."""
    from importlib import metadata

    return [
        entry_point
        for package in metadata.distributions()
        # Parsing the entry points of all installed packages would double the time of `--help`.
        if "[fsdpo." in (package.read_text("entry_points.txt") or "")
        for entry_point in package.entry_points
    ]


def load_entry_point(
    entry_point: EntryPoint, entry_type: type[EntryT], convert: Callable[[Any], Any]
) -> EntryT:
    """Import the object of an entry point, and record its module as a plug-in.

    Args:
        entry_point: The entry point.
        entry_type: The expected class of the entry.
        convert: Function from the object to the entry.

    Raises:
        InputError: if the import fails, or the object is not an entry with the expected name.
    """
    location = f"{entry_point.group}: {entry_point.name} = {entry_point.value}"
    with _import_errors(location):
        value = entry_point.load()
    package = entry_point.dist
    _record_plugin(entry_point.module, version="" if package is None else package.version)
    entry = convert(value)
    if isinstance(entry, entry_type) and entry.name == entry_point.name:
        return entry
    raise InputError(
        f"expected a {entry_type.__name__} with the name of the entry point. Fix the package "
        f"{entry_point.module}.",
        field="plugin",
        value=location,
    )


def _import_file(path: Path) -> PluginRef:
    """Import a file as a top-level module with the name of the file."""
    if not path.is_file():
        raise InputError(
            "there is no such file. Expected a Python file, or the name of a module.",
            field="plugin",
            value=str(path),
        )
    # At the end, so that no file next to the plug-in replaces a module of a library.
    sys.path.append(str(path.parent))
    importlib.invalidate_caches()
    with _import_errors(str(path)):
        module = importlib.import_module(path.stem)
    if _source_file(module) == path:
        return _record_plugin(path.stem, version="")
    raise InputError(
        f"another module is called {path.stem!r}. Rename the file.", field="plugin", value=str(path)
    )


@contextmanager
def _import_errors(plugin: str) -> Iterator[None]:
    """Turn errors of the import of a plug-in into an InputError that names the plug-in."""
    try:
        yield
    except Exception as error:
        raise InputError(
            f"the plug-in cannot be imported ({type(error).__name__}: {error}). Fix the plug-in, "
            "or run without it.",
            field="plugin",
            value=plugin,
        ) from error


def _record_plugin(module_name: str, version: str) -> PluginRef:
    """Record a plug-in when it is loaded first: its file may change later."""
    if module_name not in _loaded_plugins:
        source_file = _source_file(sys.modules[module_name])
        sha256 = hashlib.sha256(source_file.read_bytes()).hexdigest() if source_file else ""
        _loaded_plugins[module_name] = PluginRef(module_name, version, sha256)
    return _loaded_plugins[module_name]


def _source_file(module: ModuleType) -> Path | None:
    return Path(module.__file__).resolve() if module.__file__ else None


def _package_version(module_name: str) -> str:
    """Return the version of the package that installed a module; empty if there is none."""
    from importlib import metadata

    packages = metadata.packages_distributions().get(module_name.partition(".")[0], [])
    return metadata.version(packages[0]) if packages else ""
