"""Changes of file contents that break careless readers."""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
from typing import Any

#: Texts that stand for JSON that Python cannot write, and their replacements.
_PLACEHOLDERS = {
    "@deep": "[" * 300 + "]" * 300,
    "@deeper": '{"a":' * 5_000 + "1" + "}" * 5_000,
    "@open": "[" * 100_000,
    "@digits": "9" * 5_000,
    "@overflow": "1e999",
    "@twice": '{"a": 1, "a": [], "a": null}',
}
#: Values that break careless readers.
_HOSTILE_VALUES = (
    None, True, -1, 0, 0.5, 2**31, 2**40, 2**62, 2**63, 10**22, 1e308, float("nan"), float("inf"),
    "", "7", "\x00", "\x1b[2J\x07", "../../x", "/etc/passwd", "/dev/zero", "\ud800", "é\u2028",
    "a" * 10_000, [], {}, [[]], {"a": {"b": []}}, [None], ["x"],
    "{% for i in range(10**9) %}x{% endfor %}", "{{ messages.__class__ }}", "{{ nothing.at.all }}",
    *_PLACEHOLDERS,
)  # fmt: skip
#: 32-bit lengths and counts that break careless decoders.
_HOSTILE_BYTES = (
    b"NaN", b"null", b"\xff\xfe", b"\x00", b"[" * 5_000, b'{"', b"-", b"9" * 30, b"\n\n", b",,;",
    b"\xef\xbb\xbf", b'"',
)  # fmt: skip
#: Right sides of ``key = value`` in TOML.
_HOSTILE_TOML = (
    "true", "-1", "0", "1e308", "nan", "inf", '""', "[]", "{}", "[[[]]]", '["x"]', '"\\u0000"',
    '"../../x"', '"/etc/passwd"', "9" * 30, "9" * 5_000, "[" * 200 + "]" * 200, "[" * 5_000,
    "1979-05-27", '"{x}"', '"' + "a" * 10_000 + '"', "{a = {b = []}}", "[{}]", '"\\u001b[2J"',
)  # fmt: skip
_ENCODINGS = ("utf-16", "utf-32", "utf-8-sig", "latin-1", "cp1252", "utf-7")


def mutate(data: bytes, rng: random.Random, suffix: str = "") -> bytes:
    """Return changed contents of a file with a suffix: a changed value, line or encoding, or bytes.

    Args:
        data: The contents.
        rng: Chooses the change.
        suffix: Suffix of the file, which selects the changes of values.
    """
    if rng.random() < 0.6:
        with contextlib.suppress(ValueError, TypeError, LookupError, RecursionError):
            if suffix == ".toml":
                return _change_toml(data.decode(), rng).encode()
            if suffix == ".csv":
                return _change_cell(data.decode(), rng).encode()
            if suffix == ".parquet":
                return _change_table(data, rng)
            return _change_json(data, rng)
    if suffix not in ("", ".parquet") and rng.random() < 0.3:
        return _change_text(data, rng)
    return _change_bytes(data, rng)


def _change_json(data: bytes, rng: random.Random) -> bytes:
    """Change a value in JSON, or in a line of JSON lines."""
    lines = data.split(b"\n") if data[:1] == b"{" and b"\n{" in data else [data]
    index = rng.randrange(max(1, len(lines) - 1))
    text = json.dumps(_change_value(json.loads(lines[index]), rng))
    for name, replacement in _PLACEHOLDERS.items():
        text = text.replace(f'"{name}"', replacement)
    if rng.random() < 0.1:  # repeat the first key with another value
        text = re.sub(r'^\{("[^"]*")', r"{\1: null, \1", text)
    lines[index] = text.encode()
    return b"\n".join(lines)


def _change_value(value: Any, rng: random.Random) -> Any:
    """Return JSON with one value replaced, repeated or removed."""
    node = value
    paths = _list_paths(value)
    *parents, last = rng.choice(paths) if paths else [None]
    if last is None:
        return rng.choice(_HOSTILE_VALUES)
    for key in parents:
        node = node[key]
    kind = rng.random()
    if kind < 0.2:
        del node[last]
    elif kind < 0.3 and isinstance(node, list):
        node.insert(last, node[last])
    else:
        node[last] = rng.choice(_HOSTILE_VALUES)
    return value


def _list_paths(value: Any) -> list[list[Any]]:
    """Return the paths (lists of keys and indices) of all values in a JSON value."""
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value[:50]) if isinstance(value, list) else items
    return [[key, *path] for key, child in items for path in ([], *_list_paths(child))]


def _change_toml(text: str, rng: random.Random) -> str:
    """Replace the value of a key by a hostile one, rename the key, or repeat or remove its line."""
    lines = text.splitlines(keepends=True)
    numbers = [number for number, line in enumerate(lines) if re.match(r"\s*[\w.-]+\s*=", line)]
    number = rng.choice(numbers)
    key = lines[number].partition("=")[0]
    kind = rng.random()
    if kind < 0.1:
        lines[number] *= 2
    elif kind < 0.2:
        del lines[number]
    elif kind < 0.3:
        lines[number] = f"x{lines[number].lstrip()}"
    else:
        lines[number] = f"{key}= {rng.choice(_HOSTILE_TOML)}\n"
    return "".join(lines)


def _change_cell(text: str, rng: random.Random) -> str:
    """Replace a value of a CSV file, or the delimiter."""
    if rng.random() < 0.2:
        return text.replace(",", rng.choice([";", "\t", "|"]))
    cells = text.split(",")
    value = rng.choice(_HOSTILE_VALUES)
    cells[rng.randrange(len(cells))] = str(value)
    return ",".join(cells)


def _change_table(data: bytes, rng: random.Random) -> bytes:
    """Change a column of a parquet file: its values, its type or its name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(data))
    index = rng.randrange(table.num_columns)
    name = table.column_names[index]
    kind = rng.randrange(6)
    if kind == 0:
        table = table.drop_columns([name])
    elif kind == 1:
        table = table.rename_columns({name: rng.choice(["", "x", "\x1b[2J", name.upper()])})
    elif kind == 2:
        table = pa.concat_tables([table] * 2)
    else:
        column_type = table.schema.field(index).type
        values = table.column(index).to_pylist()
        if kind == 3:
            column = pa.nulls(len(values), column_type)
        elif kind == 4:
            column = pa.array([rng.choice(["x", "", "../../x"])] * len(values))
        else:
            row = rng.randrange(len(values))
            value = rng.choice([None, "", "\x1b[2J", 2**31 - 1, -1, [], [None], [""], float("nan")])
            column = pa.array([*values[:row], value, *values[row + 1 :]], column_type)
        table = table.set_column(index, name, column)
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def _change_text(data: bytes, rng: random.Random) -> bytes:
    """Write a text in another encoding, or repeat, remove or swap its lines."""
    if rng.random() < 0.5:
        return data.decode(errors="replace").encode(rng.choice(_ENCODINGS), "replace")
    lines = data.splitlines(keepends=True)
    index = rng.randrange(max(1, len(lines)))
    kind = rng.randrange(3)
    if kind == 0:
        return b"".join(lines[:index] + lines[index : index + 1] * 2 + lines[index:])
    if kind == 1:
        return b"".join(lines[:index] + lines[index + 1 :])
    return b"".join(lines[index:] + lines[:index])


def _change_bytes(data: bytes, rng: random.Random) -> bytes:
    """Cut, insert, remove, repeat or replace bytes, or flip a bit."""
    start = rng.randrange(len(data) + 1)
    size = rng.choice((1, 1, 2, 16, 1000))
    end = start + size
    kind = rng.randrange(6)
    if kind == 0:
        return data[:start]
    if kind == 1:
        return data[:start] + rng.choice(_HOSTILE_BYTES) + data[start:]
    if kind == 2:
        return data[:start] + data[end:]
    if kind == 3:
        return data[:start] + data[start:end] * 2 + data[end:]
    if kind == 4:
        return data[:start] + rng.randbytes(size) + data[end:]
    flipped = bytes(byte ^ 1 << rng.randrange(8) for byte in data[start : start + 1])
    return data[:start] + flipped + data[start + 1 :]
