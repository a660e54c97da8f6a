"""Names in braces in texts and in nested data, which values replace."""

import re
from collections.abc import Collection, Mapping
from typing import Any

_NAME = re.compile(r"\{(\w+)\}")
_NAME_OR_DOUBLED_BRACE = re.compile(r"\{\{|\}\}|\{(\w+)\}")


def fill_text(text: str, values: Mapping[str, str], *, has_doubled_braces: bool = False) -> str:
    """Replace every ``{name}`` in a text by the value of ``name``; names without a value stay.

    The text is scanned once, so braces in the values stay as they are.

    Args:
        text: The text.
        values: The values by name.
        has_doubled_braces: Whether ``{{`` and ``}}`` mean braces, as in a format string of Python.
    """

    def replace_match(match: re.Match[str]) -> str:
        """Return the value of a name in braces, or one brace for a doubled brace."""
        matched_text: str = match[0]
        if match[1] is None:
            return matched_text[0]
        return values.get(match[1], matched_text)

    return _pattern(has_doubled_braces=has_doubled_braces).sub(replace_match, text)


def match_text(text: str, filled_text: str, names: Collection[str]) -> dict[str, str] | None:
    """Return values with which :func:`fill_text` gives a filled text; None if there are none.

    Args:
        text: The text.
        filled_text: The text after the replacement.
        names: The names that have values. Other names in braces stay.
    """
    *pairs, end = re.split(rf"\{{({'|'.join(names)})\}}", text)
    pattern = ""
    found_names: set[str] = set()
    for literal, name in zip(pairs[::2], pairs[1::2], strict=True):
        group = f"(?P={name})" if name in found_names else f"(?P<{name}>.*)"
        pattern += re.escape(literal) + group
        found_names.add(name)
    match = re.fullmatch(pattern + re.escape(end), filled_text, re.DOTALL)
    return None if match is None else match.groupdict()


def names_in_braces(text: str, *, has_doubled_braces: bool = False) -> set[str]:
    """Return the names that :func:`fill_text` can replace in a text."""
    matches = _pattern(has_doubled_braces=has_doubled_braces).finditer(text)
    return {match[1] for match in matches if match[1]}


def _pattern(*, has_doubled_braces: bool) -> re.Pattern[str]:
    return _NAME_OR_DOUBLED_BRACE if has_doubled_braces else _NAME


def fill_placeholders(template: Any, values: Mapping[str, Any]) -> Any:
    """Replace every string ``{name}`` in nested lists and dicts by the value of ``name``.

    A placeholder is a complete string, so its value may have any type.
    """
    if isinstance(template, str):
        return values[template.strip("{}")] if template.startswith("{") else template
    if isinstance(template, list):
        return [fill_placeholders(item, values) for item in template]
    if isinstance(template, dict):
        return {name: fill_placeholders(item, values) for name, item in template.items()}
    return template
