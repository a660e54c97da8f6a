"""Strategies of changed file contents that break careless readers."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]

#: A sequence that clears the screen of a terminal that prints it.
ESCAPE_SEQUENCE = "\x1b[2J"
#: JSON texts of values: other types, large numbers, NaN, control characters, deep nesting.
HOSTILE_JSON = (
    "null", "true", "-1", "0", "0.5", "2147483648", "1099511627776", "9223372036854775808",
    "1e308", "1e999", "NaN", "-Infinity", "9" * 5_000, '""', '"7"', '"\\u0000"', '"\\u001b[2J"',
    '"\\ud800"', '"é\\u2028"', '"../../x"', '"/etc/passwd"', '"/dev/zero"',
    f'"\\u001b[2J{"a" * 10_000}"',
    '"{{ messages.__class__ }}"', '"{% for i in range(10**9) %}x{% endfor %}"', "[]", "{}", "[[]]",
    "[null]", '["x"]', '{"a": {"b": []}}', '{"a": 1, "a": [], "a": null}', "[" * 300 + "]" * 300,
    "[" * 100_000, '{"a":' * 5_000 + "1" + "}" * 5_000,
)  # fmt: skip
#: TOML texts of values.
HOSTILE_TOML = (
    "true", "-1", "0", "1e308", "nan", "inf", "9" * 30, "9" * 5_000, "1979-05-27", '""',
    '"\\u0000"', '"\\u001b[2J"', '"../../x"', '"/etc/passwd"', '"{x}"', '"' + "a" * 10_000 + '"',
    "[]", "{}", "[{}]", '["x"]', "{a = {b = []}}", "[" * 200 + "]" * 200, "[" * 5_000,
)  # fmt: skip
#: Inserted bytes: NUL, invalid UTF-8, a byte order mark, parts of JSON and of numbers.
HOSTILE_BYTES = (
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"NaN", b"null", b"[" * 5_000, b'{"', b'"', b"-",
    b"9" * 30, b"\n\n", b",,;",
)  # fmt: skip
ENCODINGS = ("utf-16", "utf-32", "utf-8-sig", "latin-1", "cp1252", "utf-7")
#: Values of a column, besides values of other types.
HOSTILE_CELLS = (None, "", ESCAPE_SEQUENCE, 2**31 - 1, -1, [], [None], [""], float("nan"))
#: A value that `_changed_json` replaces by a text of ``HOSTILE_JSON``.
_PLACEHOLDER = "the changed value"


def changed_contents(data: bytes, suffix: str) -> st.SearchStrategy[bytes]:
    """Return a strategy of changed contents of a file with a suffix."""
    if suffix == ".parquet":
        return _changed_parquet(data) | _changed_bytes(data)
    try:
        data.decode()
    except UnicodeDecodeError:
        return _changed_bytes(data)
    text_changes = _changed_text(data) | _changed_bytes(data)
    if suffix not in _VALUE_CHANGES:
        return text_changes
    changed_values = _VALUE_CHANGES[suffix](data)
    # Most of the careless readers are careless about values, so half of the changes are of values.
    return changed_values | changed_values | text_changes


@st.composite
def _changed_json(draw: Draw, data: bytes) -> bytes:
    """Replace, remove, rename or repeat a value of a JSON text."""
    value = json.loads(data)
    paths = _list_paths(value)
    if not paths:
        return draw(st.sampled_from(HOSTILE_JSON)).encode()
    *parents, key = draw(st.sampled_from(paths))
    node = value
    for parent in parents:
        node = node[parent]
    change = draw(st.sampled_from(["replace", "replace", "replace", "remove", "move"]))
    if change == "replace":
        node[key] = _PLACEHOLDER
    elif change == "remove":
        del node[key]
    elif isinstance(node, dict):
        node[f"{key}{ESCAPE_SEQUENCE}"] = node.pop(key)
    else:
        node.append(node[key])
    text = json.dumps(value)
    if change == "replace":
        text = text.replace(json.dumps(_PLACEHOLDER), draw(st.sampled_from(HOSTILE_JSON)))
    return text.encode()


def _list_paths(value: Any) -> list[list[Any]]:
    """Return the paths (lists of keys and indices) of all values in a JSON value."""
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value[:50]) if isinstance(value, list) else items
    return [[key, *path] for key, child in items for path in ([], *_list_paths(child))]


@st.composite
def _changed_json_lines(draw: Draw, data: bytes) -> bytes:
    """Change the JSON text of a line."""
    lines = data.splitlines()
    index = draw(st.integers(0, len(lines) - 1))
    lines[index] = draw(_changed_json(lines[index]))
    return b"\n".join(lines) + b"\n"


@st.composite
def _changed_toml(draw: Draw, data: bytes) -> bytes:
    """Replace the value of a key, rename the key, or repeat or remove its line."""
    lines = data.decode().splitlines(keepends=True)
    numbers = [number for number, line in enumerate(lines) if re.match(r"\s*[\w.-]+\s*=", line)]
    number = draw(st.sampled_from(numbers))
    line = lines[number]
    key, _, value = line.partition("=")
    changed_lines = [f"{key}= {hostile_value}\n" for hostile_value in HOSTILE_TOML]
    changed_lines += [line * 2, "", f'"{key.strip()}\\u001b[2J" = {value}']
    lines[number] = draw(st.sampled_from(changed_lines))
    return "".join(lines).encode()


@st.composite
def _changed_csv(draw: Draw, data: bytes) -> bytes:
    """Replace a cell of a table, or its delimiter."""
    cells = data.decode().split(",")
    delimiter = draw(st.sampled_from([",", ",", ",", ";", "\t", "|"]))
    if delimiter == ",":
        index = draw(st.integers(0, len(cells) - 1))
        cells[index] = draw(st.sampled_from(HOSTILE_JSON))
    return delimiter.join(cells).encode()


@st.composite
def _changed_parquet(draw: Draw, data: bytes) -> bytes:
    """Remove or rename a column, change its values or its type, or repeat the rows."""
    table = pq.read_table(io.BytesIO(data))
    index = draw(st.integers(0, table.num_columns - 1))
    name = table.column_names[index]
    column_type = table.schema.field(index).type
    values = table.column(index).to_pylist()
    change = draw(st.sampled_from(["value", "type", "nulls", "name", "remove", "repeat"]))
    if change == "value":
        row = draw(st.integers(0, len(values) - 1))
        values[row] = draw(st.sampled_from(HOSTILE_CELLS))
        try:
            column = pa.array(values, column_type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            column = pa.nulls(len(values), column_type)
        table = table.set_column(index, name, column)
    elif change == "type":
        text = draw(st.sampled_from(["x", "", "../../x"]))
        table = table.set_column(index, name, pa.array([text] * len(values)))
    elif change == "nulls":
        table = table.set_column(index, name, pa.nulls(len(values), column_type))
    elif change == "name":
        new_name = draw(st.sampled_from(["", "x", ESCAPE_SEQUENCE, name.upper()]))
        table = table.rename_columns({name: new_name})
    elif change == "remove":
        table = table.drop_columns([name])
    else:
        table = pa.concat_tables([table, table])
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


@st.composite
def _changed_text(draw: Draw, data: bytes) -> bytes:
    """Write a text in another encoding, or repeat, remove or swap its lines."""
    change = draw(st.sampled_from(["encode", "repeat", "remove", "swap"]))
    if change == "encode":
        encoding = draw(st.sampled_from(ENCODINGS))
        return data.decode().encode(encoding, "replace")
    lines = data.splitlines(keepends=True)
    index = draw(st.integers(0, len(lines) - 1))
    if change == "repeat":
        lines.insert(index, lines[index])
    elif change == "remove":
        del lines[index]
    else:
        lines = lines[index:] + lines[:index]
    return b"".join(lines)


@st.composite
def _changed_bytes(draw: Draw, data: bytes) -> bytes:
    """Cut the contents, flip a bit, or insert, remove, repeat or replace bytes."""
    start = draw(st.integers(0, len(data) - 1))
    end = start + draw(st.sampled_from([1, 2, 16, 1000]))
    head, part, tail = data[:start], data[start:end], data[end:]
    change = draw(st.sampled_from(["cut", "flip", "insert", "remove", "repeat", "replace"]))
    if change == "cut":
        return head
    if change == "flip":
        bit = draw(st.integers(0, 7))
        return head + bytes([part[0] ^ 1 << bit]) + part[1:] + tail
    if change == "insert":
        return head + draw(st.sampled_from(HOSTILE_BYTES)) + part + tail
    if change == "remove":
        return head + tail
    if change == "repeat":
        return head + part + part + tail
    return head + draw(st.binary(min_size=1, max_size=16)) + tail


#: Strategies of changed values, by the suffix of the file.
_VALUE_CHANGES: dict[str, Callable[[bytes], st.SearchStrategy[bytes]]] = {
    ".json": _changed_json,
    ".jsonl": _changed_json_lines,
    ".toml": _changed_toml,
    ".csv": _changed_csv,
}
