"""Plug-ins: modules outside this package that add samplers, segmenters, losses and other things.

The user names a plug-in file or module with ``--plugin``. An installed package is a plug-in too if
it has entry points of a group such as ``fsdpo.segmenters``. All register their objects in a
:class:`~fsdpo_data.core.registry.Registry`. A plug-in runs with the rights of the program.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fsdpo_data.core.errors import InputError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: Environment variable with the plug-ins of ``--plugin``, separated like the entries of ``PATH``.
#: Worker processes, Ray actors and the processes of ``torchrun`` load them from here.
PLUGINS_VARIABLE = "FSDPO_PLUGINS"
#: Prefix of the packages of this program.
_PROGRAM_PREFIX = "fsdpo_"
#: Prefix of all groups of entry points.
GROUP_PREFIX = "fsdpo."


@dataclass(frozen=True, slots=True, order=True)
class PluginRef:
    """The identity of a loaded plug-in, as manifests record it."""

    module: str  #: Name of the module.
    version: str  #: Version of the installed package; empty for a file.
    sha256: str  #: SHA-256 of the module's source file; empty without a file.


#: The loaded plug-ins, by the name of their module.
_loaded_plugins: dict[str, PluginRef] = {}
#: The arguments of ``--plugin`` that this process has loaded.
_loaded_arguments: set[str] = set()


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
    is_file = path.suffix == ".py"
    if not is_file and path.is_file():
        raise InputError(
            "expected a Python file (.py), or the name of a module.", field="plugin", value=argument
        )
    # Worker processes may have another working directory.
    full_name = str(path.expanduser().resolve()) if is_file else argument
    plugin = _import_file(Path(full_name)) if is_file else _import_module(argument)
    _loaded_arguments.add(full_name)
    exported = _environment_plugins()
    if full_name not in exported:
        os.environ[PLUGINS_VARIABLE] = os.pathsep.join([*exported, full_name])
    return plugin


def import_submodules(package: str) -> None:
    """Import all modules of a package of this project, in the order of their names."""
    folders = importlib.import_module(package).__path__
    for module in sorted(pkgutil.iter_modules(folders), key=lambda module: module.name):
        importlib.import_module(f"{package}.{module.name}")


def load_environment_plugins() -> None:
    """Load the plug-ins that the parent process has loaded, once per process.

    Nothing happens while a module of this program is being imported, because the plug-in could not
    import that module yet. A later call loads the plug-ins.
    """
    new_arguments = [name for name in _environment_plugins() if name not in _loaded_arguments]
    if new_arguments and not _is_program_being_imported():
        for argument in new_arguments:
            load_plugin(argument)


def _is_program_being_imported() -> bool:
    """Return whether the import of a module of this program has not ended yet."""
    return any(
        # The attribute that importlib reads for "partially initialized module".
        getattr(module.__spec__, "_initializing", False)
        for name, module in list(sys.modules.items())
        if name.startswith(_PROGRAM_PREFIX)
    )


def plugin_environment() -> dict[str, str]:
    """Return the environment variables that load the same plug-ins in a process elsewhere."""
    plugins = os.environ.get(PLUGINS_VARIABLE)
    return {PLUGINS_VARIABLE: plugins} if plugins else {}


def plugin_arguments() -> list[str]:
    """Return the values of ``--plugin`` that load the plug-ins of this process.

    Plug-ins with entry points need no ``--plugin``, so they are not included.
    """
    return _environment_plugins()


def loaded_plugins() -> list[PluginRef]:
    """Return the plug-ins that this process has loaded, sorted by module name."""
    return sorted(_loaded_plugins.values())


def _environment_plugins() -> list[str]:
    return [name for name in os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep) if name]


def _import_file(path: Path) -> PluginRef:
    """Import a file as a top-level module with the name of the file."""
    if not path.is_file():
        raise InputError(
            "there is no such file. Expected a Python file, or the name of a module.",
            field="plugin",
            value=str(path),
        )
    module_name = path.stem
    existing_module = sys.modules.get(module_name)
    if existing_module is not None:
        if module_name in _loaded_plugins and _source_file(existing_module) == path:
            return _loaded_plugins[module_name]
        raise InputError(
            f"a module called {module_name!r} is already imported. Rename the file.",
            field="plugin",
            value=str(path),
        )
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None  # the file ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[module_name]
        raise _import_error("plugin", str(path), error) from error
    return _record_plugin(module, version="")


def _import_module(name: str) -> PluginRef:
    """Import an installed module."""
    try:
        module = importlib.import_module(name)
    except BaseException as error:
        raise _import_error("plugin", name, error) from error
    return _record_plugin(module, version=_package_version(name))


def _import_error(field: str, value: str, error: BaseException) -> BaseException:
    """Return the error for a plug-in whose import failed; Ctrl-C and exits stay as they are."""
    if not isinstance(error, Exception):
        return error
    return InputError(
        f"the plug-in cannot be imported ({type(error).__name__}: {error}). Fix the plug-in, or "
        "run without it.",
        field=field,
        value=value,
    )


def _record_plugin(module: ModuleType, version: str) -> PluginRef:
    source_file = _source_file(module)
    sha256 = hashlib.sha256(source_file.read_bytes()).hexdigest() if source_file else ""
    plugin = PluginRef(module=module.__name__, version=version, sha256=sha256)
    _loaded_plugins[plugin.module] = plugin
    return plugin


def _source_file(module: ModuleType) -> Path | None:
    return Path(module.__file__).resolve() if module.__file__ else None


def _package_version(module_name: str) -> str:
    """Return the version of the package that installed a module; empty if there is none."""
    from importlib import metadata

    top_level_name = module_name.partition(".")[0]
    for package in metadata.packages_distributions().get(top_level_name, ()):
        return metadata.version(package)
    return ""


@cache
def entry_points_by_group() -> Mapping[str, Mapping[str, EntryPoint]]:
    """Return the entry points of installed plug-ins, by group and name, without importing them."""
    from importlib import metadata

    groups: dict[str, dict[str, EntryPoint]] = {}
    for package in metadata.distributions():
        # Parsing the entry points of all installed packages would double the time of `--help`.
        if f"[{GROUP_PREFIX}" not in (package.read_text("entry_points.txt") or ""):
            continue
        for entry_point in package.entry_points:
            if entry_point.group.startswith(GROUP_PREFIX):
                # The first package on the path wins, as for imports.
                groups.setdefault(entry_point.group, {}).setdefault(entry_point.name, entry_point)
    return groups


def load_entry_point(entry_point: EntryPoint) -> Any:
    """Import the object of an entry point, and record its module as a plug-in.

    Raises:
        InputError: if the import fails; the error names the entry point.
    """
    try:
        value = entry_point.load()
    except Exception as error:
        name = f"{entry_point.group}: {entry_point.name} = {entry_point.value}"
        raise _import_error("plugin", name, error) from error
    package = entry_point.dist
    _record_plugin(
        sys.modules[entry_point.module], version="" if package is None else package.version
    )
    return value
