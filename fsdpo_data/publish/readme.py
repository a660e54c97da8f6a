"""The card of a dataset in the README of a repository, next to the text of its owner.

A push replaces only what an earlier push has written:

- the text between two markers;
- the keys of the metadata that still have the value of the last card. A comment between the markers
  records these values.

The exceptions are ``configs`` and ``dataset_info``. They describe the files, so they are always the
card's.
"""

import json
import re
from typing import Any

from fsdpo_cards.render import front_matter

_BEGIN = "<!-- fsdpo: the card begins. A push replaces it; write above or below. -->"
_END = "<!-- fsdpo: the card ends. -->"
_FRONT_MATTER = re.compile(r"---\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_MARKED_CARD = re.compile(rf"{re.escape(_BEGIN)}.*?{re.escape(_END)}\n?", re.DOTALL)
_RECORD = re.compile(r"<!-- fsdpo: the metadata of the card: (.*) -->")
_FILE_KEYS = ("configs", "dataset_info")  #: Keys of the metadata that describe the files.


def merge_card(card: str, readme: str = "") -> str:
    """Return a README with a card, and with the owner's text and metadata of an existing README.

    Args:
        card: The card: metadata in YAML, and Markdown.
        readme: The existing README; empty without one. Text without markers stays below the card.
    """
    metadata, body = _split(card)
    old_metadata, old_body = _split(readme)
    marked_card = f"{_BEGIN}\n{body.strip()}\n\n{_format_record(metadata)}\n{_END}\n"
    last_card = _MARKED_CARD.search(old_body)
    if last_card:
        new_body = old_body[: last_card.start()] + marked_card + old_body[last_card.end() :]
    else:
        own_text = old_body.strip()
        new_body = "\n".join([marked_card, f"{own_text}\n"]) if own_text else marked_card
    last_metadata = _read_record(last_card[0]) if last_card else {}
    own_metadata = {
        name: value
        for name, value in old_metadata.items()
        if name not in _FILE_KEYS and (name, value) not in last_metadata.items()
    }
    return f"{front_matter({**metadata, **own_metadata})}\n{new_body.lstrip()}"


def _split(text: str) -> tuple[dict[str, Any], str]:
    """Return the metadata and the Markdown of a card; no metadata if they cannot be read."""
    import yaml

    match = _FRONT_MATTER.match(text)
    if match is None:
        return {}, text
    try:
        metadata = yaml.safe_load(match[1])
    except yaml.YAMLError:
        return {}, text
    return (metadata if isinstance(metadata, dict) else {}), text[match.end() :]


def _format_record(metadata: dict[str, Any]) -> str:
    """Return the comment that records the metadata of a card that its owner may change."""
    recorded = {name: value for name, value in metadata.items() if name not in _FILE_KEYS}
    # The sequence `-->` in a value would end the comment.
    text = json.dumps(recorded, ensure_ascii=False).replace(">", "\\u003e")
    return f"<!-- fsdpo: the metadata of the card: {text} -->"


def _read_record(marked_card: str) -> dict[str, Any]:
    """Return the metadata that a push has recorded; empty if they cannot be read."""
    match = _RECORD.search(marked_card)
    try:
        metadata = json.loads(match[1]) if match else {}
    except ValueError:  # the owner has edited the comment
        return {}
    return metadata if isinstance(metadata, dict) else {}
