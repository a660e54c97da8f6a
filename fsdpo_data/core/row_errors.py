"""Errors about the rows of files, and words for Python errors about them."""

import re


class UnusableRowError(ValueError):
    """A row cannot be used; the message is the reason for its quarantine."""


#: Python's words about a value of the wrong type, and the words for the reader of a file.
_TYPE_ERRORS = (
    (re.compile(r"'(\w+)' object is not (?:subscriptable|iterable)"), "a list or an object"),
    (re.compile(r"object of type '(\w+)' has no len\(\)"), "a list or a text"),
    (re.compile(r"'(\w+)' object has no attribute '(?:strip|split|removeprefix)'"), "a text"),
    (re.compile(r"'(\w+)' object has no attribute '\w+'"), "an object"),
    (re.compile(r"(?:list|string|tuple) indices must be integers.*, not '?(\w+)'?"), "an object"),
)
_JSON_TYPE_NAMES = {
    "NoneType": "null",
    "float": "a number",
    "int": "a number",
    "bool": "true or false",
    "str": "a text",
    "list": "a list",
    "tuple": "a list",
    "dict": "an object",
}


def describe_row_error(error: Exception) -> str:
    """Describe why a row cannot be read, in terms of the file instead of Python."""
    if isinstance(error, KeyError) and error.args:
        return f"the field {error.args[0]!r} is missing"
    if isinstance(error, IndexError):
        return "a list has too few items"
    for pattern, expectation in _TYPE_ERRORS:
        if match := pattern.search(str(error)):
            if match[0].startswith(("list", "string", "tuple")):
                value_type = "a text" if match[0].startswith("string") else "a list"
            else:
                value_type = _JSON_TYPE_NAMES.get(match[1], match[1])
            return f"expected {expectation}, found {value_type}"
    return " ".join(str(error).split()) or "a field has an unexpected value"
