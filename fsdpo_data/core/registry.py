"""Registries: everything that the program asks about a thing stands in its entry."""

import contextlib
from collections import UserDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fsdpo_data.core.errors import InputError, unknown_name_error
from fsdpo_data.core.plugins import entry_points, import_submodules, load_entry_point

EntryT = TypeVar("EntryT", bound=Any)  #: Class of entries; each has a ``name``.


@dataclass(eq=False, repr=False)
class Registry(UserDict[str, EntryT]):
    """The entries of one kind by name: built-in entries first, then the entries of plug-ins.

    A name without its version stands for the latest version. The names of entry points are known
    without an import. The first access to such an entry imports its plug-in, so a broken plug-in
    stops only the commands that use it.
    """

    kind: str  #: Word for the things in messages, such as ``segmenter``.
    entry_type: type[EntryT]  #: Class of the entries.
    group: str = ""  #: Group of entry points with entries; empty if plug-ins cannot add any.
    convert: Callable[[Any], Any] = lambda value: value  #: Makes an entry of an entry point.
    package: str = ""  #: Package whose modules register the built-in entries.
    data: dict[str, EntryT] = field(default_factory=dict)  #: The entries that are imported.

    @property
    def source_of_names(self) -> str:
        """Sentence for errors about unknown names: how to load plug-ins that add names."""
        if not self.group:
            return ""
        return "A plug-in can add names: `--plugin MODULE` before the command, or `load_plugin`."

    def register(self, entry: EntryT) -> EntryT:
        """Add an entry, and return it; an InputError if another entry has the name."""
        if entry.name in self.data:
            reason = f"another {self.kind} has this name. Choose another name."
            raise InputError(reason, field=self.kind, value=entry.name)
        self.data[entry.name] = entry
        return entry

    def find(self, name: str, *, field: str = "") -> EntryT:
        """Return the entry of the name in the option ``field``; an InputError if there is none."""
        if name not in self:
            raise unknown_name_error(field or self.kind, name, self)
        return self[name]

    def importable_entries(self) -> list[EntryT]:
        """Return all entries, without the entries of plug-ins that cannot be imported."""
        entries = []
        for name in self:
            with contextlib.suppress(InputError):
                entries.append(self[name])
        return entries

    def loaded_entries(self) -> list[EntryT]:
        """Return the entries that are registered so far, without importing more plug-ins."""
        return [self.data[name] for name in self if name in self.data]

    def __missing__(self, name: str) -> EntryT:
        if entry_point := entry_points(self.group).get(name):
            return self.register(load_entry_point(entry_point, self.entry_type, self.convert))
        versions = [key for key in self if key.startswith(f"{name}@")]
        if not versions:
            raise KeyError(name)
        return self[max(versions, key=lambda version: int(version.partition("@")[2]))]

    def __contains__(self, name: object) -> bool:
        return name in self.data or any(name in (key, key.partition("@")[0]) for key in self)

    def __iter__(self) -> Iterator[str]:
        if self.package:
            import_submodules(self.package)
        yield from dict.fromkeys([*self.data, *entry_points(self.group)])

    def __len__(self) -> int:
        return sum(1 for _ in self)  # list() would ask for the length
