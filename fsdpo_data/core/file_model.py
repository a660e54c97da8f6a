"""The base of the records that files store, such as the entries of a manifest."""

from __future__ import annotations

from typing import Any

import pydantic


class FileModel(pydantic.BaseModel):
    """A record of a JSON file. Fields that have their default are not written.

    Other fields of a file are ignored.
    """

    model_config = pydantic.ConfigDict(
        extra="ignore", strict=True, allow_inf_nan=False, defer_build=True
    )

    @pydantic.model_serializer(mode="wrap")
    def _omit_defaults(self, handler: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        return {
            name: value
            for name, value in data.items()
            if (field := type(self).model_fields.get(name)) is None
            or field.is_required()
            or getattr(self, name) != field.get_default(call_default_factory=True)
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        return self.model_dump(mode="json")
