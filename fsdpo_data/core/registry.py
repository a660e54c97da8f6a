"""Registries: the things of one kind that the program knows by name.

An entry carries everything that the program asks about a thing, so no other file contains its name.
Built-in entries are registered where they are defined. Plug-ins add entries from outside
(:mod:`fsdpo_data.core.plugins`).
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from fsdpo_data.core.errors import InputError, unknown_name_error
from fsdpo_data.core.plugins import (
    entry_points_by_group,
    import_submodules,
    load_entry_point,
    load_environment_plugins,
)


class NamedEntry(Protocol):
    """An object with a name, which a registry can hold."""

    @property
    def name(self) -> str:
        """The name on the command line and in files."""
        ...


EntryT = TypeVar("EntryT", bound=NamedEntry)


class Registry(Mapping[str, EntryT]):
    """The entries of one kind by name: built-in entries first, then the entries of plug-ins.

    Names of entry points are known without an import. The first access to such a name imports the
    plug-in, so a broken plug-in stops only the commands that use it.
    """

    def __init__(
        self,
        kind: str,
        entry_type: type[EntryT],
        group: str = "",
        convert: Callable[[Any], Any] | None = None,
        package: str = "",
    ) -> None:
        """Set up an empty registry.

        Args:
            kind: Word for the things in messages, such as ``segmenter``.
            entry_type: Class of the entries.
            group: Group of the entry points that add entries, such as ``fsdpo.segmenters``; empty
                for a kind that plug-ins cannot add.
            convert: Function from the object of an entry point to the entry; by default, the object
                is the entry.
            package: Package whose modules register the built-in entries. The first access imports
                all its modules, so a new module needs no line elsewhere.
        """
        self.kind = kind
        self.group = group
        self._entry_type = entry_type
        self._convert = convert
        self._package = package
        self._entries: dict[str, EntryT] = {}

    @property
    def source_of_names(self) -> str:
        """Sentence for errors about unknown names: how to load plug-ins that add names."""
        return "A plug-in with other names needs `plugin`." if self.group else ""

    def register(self, entry: EntryT) -> EntryT:
        """Add an entry, and return it.

        Raises:
            InputError: if another entry has the name.
        """
        if entry.name in self._entries:
            raise InputError(
                f"another {self.kind} has this name. Choose another name.",
                field=self.kind,
                value=entry.name,
            )
        self._entries[entry.name] = entry
        return entry

    def find(self, name: str, *, field: str = "") -> EntryT:
        """Return the entry of a name that a user gave.

        Args:
            name: The name.
            field: Option with the name, for the error; the kind if empty.

        Raises:
            InputError: if there is no such entry; the error lists similar names.
        """
        if name not in self:
            raise unknown_name_error(field or self.kind, name, self)
        return self[name]

    def registered_entries(self) -> list[EntryT]:
        """Return the entries that are registered so far, without importing more plug-ins."""
        self._load_package()
        return list(self._entries.values())

    def importable_entries(self) -> list[EntryT]:
        """Return all entries, without the entries of plug-ins that cannot be imported."""
        entries = []
        for name in self:
            with contextlib.suppress(InputError):
                entries.append(self[name])
        return entries

    def __getitem__(self, name: str) -> EntryT:
        """Return the entry of a name; KeyError if there is none."""
        if name not in self._entries:
            self._load_modules()
        if name not in self._entries:
            self._load_entry_point(name)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        """Return whether a name is known, without importing the plug-in of an entry point."""
        if name in self._entries:
            return True
        self._load_modules()
        return name in self._entries or name in self._entry_points

    def __iter__(self) -> Iterator[str]:
        """Yield all names, without importing the plug-ins of entry points."""
        self._load_modules()
        yield from self._entries
        yield from (name for name in self._entry_points if name not in self._entries)

    def __len__(self) -> int:
        """Return the number of names."""
        return len(list(iter(self)))

    def descriptions(self) -> dict[str, str]:
        """Return the ``description`` of each entry that has one and needs no import, by name."""
        self._load_modules()
        texts = {name: getattr(entry, "description", "") for name, entry in self._entries.items()}
        return {name: text for name, text in texts.items() if text}

    def _load_modules(self) -> None:
        """Import the modules that register entries: first the package's own, then plug-ins."""
        self._load_package()
        load_environment_plugins()

    def _load_package(self) -> None:
        """Import the modules of the package at the first access."""
        if self._package:
            package = self._package
            self._package = ""  # the modules may use the registry themselves
            import_submodules(package)

    @property
    def _entry_points(self) -> Mapping[str, object]:
        return entry_points_by_group().get(self.group, {}) if self.group else {}

    def _load_entry_point(self, name: str) -> None:
        """Register the entry of an entry point.

        Raises:
            KeyError: if there is no such entry point.
            InputError: if its import fails, or its object is not an entry of this kind.
        """
        entry_point = entry_points_by_group().get(self.group, {})[name]
        entry = load_entry_point(entry_point)
        if self._convert is not None:
            entry = self._convert(entry)
        problem = ""
        if not isinstance(entry, self._entry_type):
            problem = f"is not a {self._entry_type.__name__}"
        elif entry.name != name:
            problem = f"is the {self.kind} {entry.name!r}, but the entry point has another name"
        if problem:
            raise InputError(
                f"the object {entry_point.value} {problem}. Fix the package {entry_point.module}.",
                field=self.kind,
                value=name,
            )
        self._entries.setdefault(name, entry)


class UnversionedNames(Collection[str]):
    """The names of a registry without versions, as options list them; full names are valid too."""

    def __init__(self, registry: Registry[EntryT]) -> None:
        self._registry = registry

    @property
    def source_of_names(self) -> str:
        """Sentence for errors about unknown names: how to load plug-ins that add names."""
        return self._registry.source_of_names

    def __contains__(self, name: object) -> bool:
        """Return whether a name with or without a version is known."""
        return name in self._registry or name in list(self)

    def __iter__(self) -> Iterator[str]:
        """Yield each name once, in the order of the registry."""
        yield from dict.fromkeys(_without_version(name) for name in self._registry)

    def __len__(self) -> int:
        """Return the number of names."""
        return len(list(iter(self)))

    def descriptions(self) -> dict[str, str]:
        """Return the descriptions of the registry's entries; the latest version counts."""
        descriptions = self._registry.descriptions().items()
        return {_without_version(name): text for name, text in descriptions}


def resolve_version(name: str, known_names: Collection[str], *, field: str) -> str:
    """Return a name with its version, e.g. ``auto@1``; without a version, the latest one.

    Args:
        name: The name that a user gave, with or without a version.
        known_names: The known names, all with a version.
        field: Option with the name, for the error.

    Raises:
        InputError: if there is no such name.
    """
    if name in known_names:
        return name
    full_names = [full_name for full_name in known_names if _without_version(full_name) == name]
    if not full_names:
        raise unknown_name_error(field, name, known_names)
    return max(full_names, key=lambda full_name: int(full_name.partition("@")[2]))


def _without_version(name: str) -> str:
    return name.partition("@")[0]
