"""Describe a published dataset in the format Croissant 1.1 of MLCommons, as JSON-LD.

The structure (files, digests, columns) comes from the manifest and the parquet files;
``fsdpo_cards`` writes the texts.
"""

from __future__ import annotations

import datetime
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fsdpo_cards.croissant import CroissantCardData, croissant_properties
from fsdpo_cards.dataset import dataset_title

from fsdpo_data.core.input_files import parse_json, read_file
from fsdpo_data.core.lazy import pa
from fsdpo_data.core.parquet_files import open_parquet
from fsdpo_data.dataset.card import ordered_configs
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.manifest_sections import FileEntry
from fsdpo_data.dataset.schema import describe_columns
from fsdpo_data.dataset.stage_registry import card_rows
from fsdpo_data.dataset.summary import dataset_warnings, summary_rows

CROISSANT_FILE = "croissant.json"
CONFORMS_TO = ("http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0")
_CONTEXT_FILE = Path(__file__).with_name("croissant_context.json")
_PARQUET_FORMAT = "application/x-parquet"
#: Croissant types by the name of the Arrow type.
_DATA_TYPES = {
    "string": "sc:Text",
    "bool": "sc:Boolean",
    "int8": "cr:Int8",
    "int32": "cr:Int32",
    "float": "cr:Float32",
    "double": "cr:Float64",
}
#: Columns of ids that are unique within their config.
_KEYS = {"problems": "problem_id", "solutions": "solution_id"}


@dataclass(frozen=True, slots=True)
class Publication:
    """A version of a dataset on the Hub."""

    name: str  #: ``org/name``.
    hub_url: str  #: Address of the Hub.
    tag: str  #: Tag of the version, such as ``v2.0``.
    date: datetime.date  #: Date of the publication.
    #: Type of the account ``org``; None if it is not known.
    owner_type: Literal["Organization", "Person"] | None

    @property
    def owner(self) -> str:
        """Name of the account."""
        return self.name.partition("/")[0]

    @property
    def url(self) -> str:
        """Address of the dataset's page."""
        return f"{self.hub_url}/datasets/{self.name}"

    def file_url(self, path: str) -> str:
        """Return the address of a file of this version."""
        return f"{self.url}/resolve/{self.tag}/{path}"


def croissant_metadata(root: Path, manifest: Manifest, publication: Publication) -> str:
    """Return the Croissant metadata of the dataset in ``root``, as JSON-LD."""
    card_data = CroissantCardData(
        manifest=manifest.to_dict(),
        table=summary_rows(manifest),
        stage_rows=card_rows(manifest),
        warnings=dataset_warnings(manifest),
        revision=publication.tag,
    )
    metadata = {
        "@context": parse_json(read_file(_CONTEXT_FILE)),
        "@type": "sc:Dataset",
        "conformsTo": list(CONFORMS_TO),
        "name": publication.name.partition("/")[2],
        "url": publication.url,
        "version": f"{publication.tag.removeprefix('v')}.0",
        "datePublished": publication.date.isoformat(),
        **_creator(publication),
        "citeAs": _citation(dataset_title(card_data.spec), publication),
        **croissant_properties(card_data),
        "distribution": _distribution(manifest, publication),
        "recordSet": [_record_set(root, manifest, config) for config in ordered_configs(manifest)],
    }
    return json.dumps(metadata, indent=2, ensure_ascii=False) + "\n"


def _creator(publication: Publication) -> dict[str, Any]:
    """Return the property ``creator``; empty if the type of the account is not known."""
    if publication.owner_type is None:
        return {}
    return {
        "creator": {
            "@type": f"sc:{publication.owner_type}",
            "name": publication.owner,
            "url": f"{publication.hub_url}/{publication.owner}",
        }
    }


def _citation(title: str, publication: Publication) -> str:
    """Return a BibTeX entry of this version."""
    key = re.sub(r"\W", "-", f"{publication.name}-{publication.tag}")
    return (
        f"@misc{{{key}, title = {{{title}}}, author = {{{{{publication.owner}}}}}, "
        f"year = {{{publication.date.year}}}, howpublished = {{\\url{{{publication.url}}}}}, "
        f"note = {{Version {publication.tag}}}}}"
    )


def _distribution(manifest: Manifest, publication: Publication) -> list[dict[str, Any]]:
    """Return the parquet files, and a set of files for each config with several files."""
    files = [
        {
            "@type": "cr:FileObject",
            "@id": entry.path,
            "name": entry.path,
            "contentUrl": publication.file_url(entry.path),
            "contentSize": f"{entry.bytes} B",
            "encodingFormat": _PARQUET_FORMAT,
            "sha256": entry.sha256,
        }
        for entry in manifest.files
    ]
    file_sets = [
        {
            "@type": "cr:FileSet",
            "@id": _file_set_id(config),
            "name": _file_set_id(config),
            "encodingFormat": _PARQUET_FORMAT,
            "includes": f"{config}/*.parquet",
        }
        for config in ordered_configs(manifest)
        if len(manifest.config_files(config)) > 1
    ]
    return files + file_sets


def _file_set_id(config: str) -> str:
    return f"{config}-files"


def _record_set(root: Path, manifest: Manifest, config: str) -> dict[str, Any]:
    """Return the record set of a config: one record per row, one field per column."""
    entries = manifest.config_files(config)
    descriptions = describe_columns(config)
    record_set: dict[str, Any] = {
        "@type": "cr:RecordSet",
        "@id": config,
        "name": config,
        "description": f"{sum(entry.rows for entry in entries)} rows of the config {config}.",
    }
    if config in _KEYS:
        record_set["key"] = {"@id": f"{config}/{_KEYS[config]}"}
    record_set["field"] = [
        {
            "@type": "cr:Field",
            "@id": f"{config}/{column.name}",
            "name": column.name,
            "description": descriptions[column.name],
            **_field_type(f"{config}/{column.name}", column, _source(config, entries)),
        }
        for column in open_parquet(root / entries[0].path).schema_arrow
    ]
    return record_set


def _source(config: str, entries: list[FileEntry]) -> dict[str, Any]:
    """Return the resource of a config: its file, or the set of its files.

    A set of files has no address, because mlcroissant 1.1.1 reads a set only from a folder.
    """
    if len(entries) == 1:
        return {"fileObject": {"@id": entries[0].path}}
    return {"fileSet": {"@id": _file_set_id(config)}}


def _field_type(field_id: str, column: pa.Field, source: dict[str, Any]) -> dict[str, Any]:
    """Return the type and the source of a column; a list of structs has one field per member."""
    column_source = {**source, "extract": {"column": column.name}}
    if not pa.types.is_list(column.type):
        return {"dataType": _DATA_TYPES[str(column.type)], "source": column_source}
    item_type = column.type.value_type
    if not pa.types.is_struct(item_type):
        data_type = _DATA_TYPES[str(item_type)]
        return {"dataType": data_type, "isArray": True, "source": column_source}
    members = [
        {
            "@type": "cr:Field",
            "@id": f"{field_id}/{member.name}",
            "name": member.name,
            "dataType": _DATA_TYPES[str(member.type)],
            "source": {**column_source, "transform": {"jsonPath": member.name}},
        }
        for member in item_type.fields
    ]
    return {"isArray": True, "subField": members}
