"""Refuse names and terms that a reader cannot understand: ``python tests/support/check_words.py``.

Prints ``file:line: message`` for each finding and exits with 1 if there are any. The words, and the
exceptions with their reasons, are in ``tests/vocabulary.toml``.
"""

from __future__ import annotations

import ast
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = ("fsdpo_data", "fsdpo_train", "benchmarks", "cards")
OTHER_FOLDERS = ("docs", "tests", "examples")
PROSE_SUFFIXES = {".md", ".html"}
#: Kept outputs and sealed fixtures quote older versions.
SKIPPED_FOLDERS = ("benchmarks/measured", "tests/data")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


class Finding(NamedTuple):
    """One refused name or term."""

    file: str  #: Path from the root of the checkout, with forward slashes.
    line: int  #: Line number, from 1.
    name: str  #: The refused name or term.
    message: str  #: The rule that it breaks.


@dataclass(frozen=True)
class Vocabulary:
    """The refused words of ``tests/vocabulary.toml``."""

    banned_bindings: frozenset[str]  #: Names that no variable, parameter or attribute has.
    retired_in_definitions: frozenset[str]  #: Words that no definition contains.
    participles: re.Pattern[str]  #: Matches function names that are only a participle.
    retired_terms: dict[re.Pattern[str], str]  #: Patterns of old terms, with the new term.
    exceptions: dict[str, str]  #: Reasons by ``file: name``.

    @classmethod
    def read(cls, file: Path) -> Vocabulary:
        """Read the vocabulary from its TOML file."""
        table = tomllib.loads(file.read_text(encoding="utf-8"))
        stems = "|".join(table["participles"].split())
        adjectives = "|".join(table["not_participles"].split())
        particle = r"(?:_(?:as|at|by|for|from|in|of|on|out|to|with)\b.*)?"
        return cls(
            banned_bindings=frozenset(table["banned_bindings"].split()),
            retired_in_definitions=frozenset(table["retired_in_definitions"].split()),
            participles=re.compile(rf"_?(?:{stems}|(?!{adjectives})[a-z]+ed){particle}"),
            retired_terms={
                re.compile(pattern, re.IGNORECASE): term
                for pattern, term in table["retired_terms"].items()
            },
            exceptions=dict(table["exceptions"]),
        )


def bindings(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield every variable, parameter and attribute that a module binds, with its name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node, node.attr
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node, node.name
        elif isinstance(node, ast.alias) and node.asname:
            yield node, node.asname


def is_property(node: Function) -> bool:
    """Return whether a function is decorated as a property."""
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def words_of(name: str) -> set[str]:
    """Split a ``snake_case`` or ``CamelCase`` name into lower-case words."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def check_module(file: str, tree: ast.Module, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Yield the refused names of one Python module."""
    for node, name in bindings(tree):
        if name in vocabulary.banned_bindings:
            yield Finding(file, node.lineno, name, "the name does not say what its value is")  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        if not isinstance(node, Definition):
            continue
        if retired := words_of(node.name) & vocabulary.retired_in_definitions:
            message = f"the name contains a retired word: {', '.join(sorted(retired))}"
            yield Finding(file, node.lineno, node.name, message)
        if isinstance(node, ast.ClassDef) or is_property(node):
            continue
        if vocabulary.participles.fullmatch(node.name):
            yield Finding(file, node.lineno, node.name, "a function is a verb with an object")


def prose_of(path: Path, source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of comments, docstrings and pages, with their numbers."""
    if path.suffix != ".py":
        yield from enumerate(source.splitlines(), start=1)
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | Definition) and ast.get_docstring(node, clean=False):
            text: Any = node.body[0].value.value  # type: ignore[attr-defined]
            yield from enumerate(text.splitlines(), start=node.body[0].lineno)
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def check_prose(path: Path, file: str, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Yield the retired terms in the prose of one file."""
    for number, text in prose_of(path, path.read_text(encoding="utf-8")):
        for pattern, term in vocabulary.retired_terms.items():
            if match := pattern.search(text):
                yield Finding(file, number, match[0], f"the term is now: {term}")


def repeated_classes(trees: dict[str, ast.Module]) -> Iterator[Finding]:
    """Yield the second and later definitions of a class name, over all packages."""
    first_files: dict[str, str] = {}
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                first_file = first_files.setdefault(node.name.lstrip("_"), file)
                if first_file != file:
                    message = f"the class name has another meaning in {first_file}"
                    yield Finding(file, node.lineno, node.name, message)


def check_checkout(root: Path, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Yield every finding of a checkout, exceptions included."""
    package_trees: dict[str, ast.Module] = {}
    for folder in (*PACKAGES, *OTHER_FOLDERS):
        for path in sorted((root / folder).rglob("*")):
            file = path.relative_to(root).as_posix()
            if file.startswith(SKIPPED_FOLDERS) or "__pycache__" in file:
                continue
            if path.suffix == ".py":
                tree = ast.parse(path.read_text(encoding="utf-8"))
                yield from check_module(file, tree, vocabulary)
                if folder in PACKAGES:
                    package_trees[file] = tree
            if path.suffix in {".py", *PROSE_SUFFIXES}:
                yield from check_prose(path, file, vocabulary)
    yield from repeated_classes(package_trees)


def main() -> None:
    """Print the findings without the exceptions, and the exceptions that match nothing."""
    vocabulary = Vocabulary.read(ROOT / "tests" / "vocabulary.toml")
    unused = set(vocabulary.exceptions)
    refused: list[Finding] = []
    for finding in check_checkout(ROOT, vocabulary):
        key = f"{finding.file}: {finding.name}"
        unused.discard(key)
        if key not in vocabulary.exceptions:
            refused.append(finding)
    for finding in refused:
        print(f"{finding.file}:{finding.line}: {finding.name}: {finding.message}")
    for key in sorted(unused):
        print(f"tests/vocabulary.toml: the exception {key!r} matches nothing. Remove it.")
    if refused or unused:
        sys.exit(1)


if __name__ == "__main__":
    main()
