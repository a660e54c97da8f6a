"""The card of a dataset in the README of a repository, next to the text of its owner.

The card is between two markers. A push replaces the text between them, and the keys of the
metadata that the card has. Everything else in the README stays.
"""

import re
from typing import Any

_BEGIN = "<!-- fsdpo: the card begins. A push replaces it; write above or below. -->"
_END = "<!-- fsdpo: the card ends. -->"
_FRONT_MATTER = re.compile(r"---\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_MARKED_CARD = re.compile(rf"{re.escape(_BEGIN)}.*?{re.escape(_END)}\n?", re.DOTALL)


def merge_card(card: str, readme: str = "") -> str:
    """Return a README with a card, and with the other text of an existing README.

    Args:
        card: The card: metadata in YAML, and Markdown.
        readme: The existing README; empty without one. Text without markers stays below the card.
    """
    metadata, body = _split(card)
    old_metadata, old_body = _split(readme)
    marked_card = f"{_BEGIN}\n{body.strip()}\n{_END}\n"
    if _MARKED_CARD.search(old_body):
        new_body = _MARKED_CARD.sub(lambda _: marked_card, old_body, count=1)
    else:
        own_text = old_body.strip()
        new_body = "\n".join([marked_card, f"{own_text}\n"]) if own_text else marked_card
    kept_metadata = {name: old_metadata[name] for name in old_metadata if name not in metadata}
    front_matter = _FRONT_MATTER.match(card)
    assert front_matter is not None  # every card begins with its metadata
    return f"---\n{front_matter[1]}{_to_yaml(kept_metadata)}---\n\n{new_body.lstrip()}"


def _split(text: str) -> tuple[dict[str, Any], str]:
    """Return the metadata and the Markdown of a card; no metadata if they cannot be read."""
    import yaml

    front_matter = _FRONT_MATTER.match(text)
    if front_matter is None:
        return {}, text
    try:
        metadata = yaml.safe_load(front_matter[1])
    except yaml.YAMLError:
        return {}, text
    return (metadata if isinstance(metadata, dict) else {}), text[front_matter.end() :]


def _to_yaml(metadata: dict[str, Any]) -> str:
    """Return metadata as YAML; empty without metadata."""
    import yaml

    return yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True) if metadata else ""
