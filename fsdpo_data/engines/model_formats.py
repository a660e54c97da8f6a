"""Formats of published models: rows of a TOML file, or files of users, and the search by model.

A format states how a model is asked and how its output is read. Reward models and judges of steps
have a :class:`~fsdpo_data.engines.scorers.prm_formats.PrmFormat`, and judges of answers an
:class:`~fsdpo_data.engines.answer_judge_formats.AnswerJudgeFormat`.
"""

from collections.abc import Collection, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from fsdpo_data.core.errors import FsdpoError, InputError, unknown_name_error
from fsdpo_data.core.identity import digest
from fsdpo_data.core.input_files import read_toml_file
from fsdpo_data.core.options import Options
from fsdpo_data.core.toml_tables import TomlTable, read_module_table


class ModelFormat(Options):
    """How published models are asked, and how their output is read."""

    name: str
    """Name of the row in the TOML file, or of the TOML file of the user."""
    models: Sequence[str] = ()
    """The repositories with this format, with ``*`` for any characters."""

    #: The fields that change neither what a model is asked nor how its output is read.
    fields_without_effect: ClassVar[Collection[str]] = ("name", "models")

    @property
    def digest(self) -> str:
        """Digest of the fields with an effect that differ from their defaults."""
        changed_fields = {}
        for name, value in self:
            default = type(self).model_fields[name].get_default(call_default_factory=True)
            if name not in self.fields_without_effect and value != default:
                changed_fields[name] = value
        return digest(changed_fields)


FormatT = TypeVar("FormatT", bound=ModelFormat)


class FormatTable(TomlTable[FormatT]):
    """Formats by name: rows that may be based on one another, and files of users."""

    def __init__(
        self,
        module: str,
        format_class: type[FormatT],
        *,
        title: str,
        field: str,
        not_inherited: Collection[str],
    ) -> None:
        """Set up the table without reading its file.

        Args:
            module: Path of the module next to the TOML file, usually ``__file__``.
            format_class: Option class with a field for each key of a row.
            title: Name of such a format in errors, such as "PRM format".
            field: Option that names a format, for errors.
            not_inherited: Keys that a row with ``based_on`` does not take from its base.
        """
        super().__init__(module, self.build)
        self._format_class = format_class
        self._title = title
        self._field = field
        self._not_inherited = not_inherited

    def build(self, name: str, based_on: str = "", **keys: Any) -> FormatT:
        """Build a format from a row; a row with ``based_on`` contains only its differences.

        Raises:
            InputError: if the base does not exist, or a key is unknown.
        """
        keys = {**keys, "name": name}
        while based_on:
            rows = read_module_table(self._module)
            if based_on not in rows:
                raise unknown_name_error(f"{name}.based_on", based_on, rows)
            base = rows[based_on]
            inherited = {key: base[key] for key in base if key not in self._not_inherited}
            keys = inherited | keys
            based_on = keys.pop("based_on", "")
        known_keys = self._format_class.model_fields.keys()
        if unknown_keys := sorted(keys.keys() - known_keys):
            raise InputError(
                f"the {self._title} {name} has unknown keys: {', '.join(unknown_keys)}. Expected "
                f"{', '.join(sorted(known_keys))}, or `based_on` with the name of a format.",
                field=self._field,
                value=name,
            )
        return self._format_class(**keys)

    def find(self, name: str) -> FormatT:
        """Return a format by its name, or from a TOML file.

        Raises:
            InputError: if the format does not exist, or the file is invalid.
        """
        if name in self:
            return self[name]
        file = Path(name)
        if file.suffix != ".toml":
            raise InputError(
                f"expected one of {', '.join(self)}, or a .toml file of your own.",
                field=self._field,
                value=name,
            )
        try:
            return self.build(**{**read_toml_file(file), "name": file.name})
        except FsdpoError as error:
            if error.field in ("", self._field):
                raise error.for_field(self._field) from None
            # The field is a key of the file, so the message keeps it.
            raise InputError(str(error), field=self._field, value=name) from None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(
                f"the file cannot be read: {error}.", field=self._field, value=name
            ) from error

    def find_by_model(self, model: str) -> FormatT | None:
        """Return the first format that lists a model, by its repository or by the last folder.

        A name without an owner, such as the path of a local folder, matches by its last part.
        """
        owner, slash, name = model.lower().rpartition("/")
        # A path has folders before the name, and no owner.
        has_owner = bool(slash) and "/" not in owner and owner not in ("", ".", "..", "~")
        for model_format in self.values():
            for pattern in model_format.models:
                owner_pattern, _, name_pattern = pattern.lower().rpartition("/")
                is_same_owner = not has_owner or fnmatch(owner, owner_pattern)
                if is_same_owner and fnmatch(name, name_pattern):
                    return model_format
        return None
