"""Docstrings of option classes, which are their help texts, also under ``python -OO``.

``python -OO`` removes docstrings from compiled code. Then they are read from the source file.
"""

import ast
import functools
import inspect
import sys

from fsdpo_data.core.errors import UnavailableError

_OPTIMIZE_WITHOUT_DOCSTRINGS = 2  #: Value of ``sys.flags.optimize`` under ``python -OO``.


def class_docstring(documented_class: type) -> str:
    """Return the docstring of a class without indentation; empty without a docstring."""
    if sys.flags.optimize < _OPTIMIZE_WITHOUT_DOCSTRINGS:
        return inspect.cleandoc(documented_class.__doc__ or "")
    module = sys.modules.get(documented_class.__module__)
    file = getattr(module, "__file__", None)
    docstrings = _docstrings_in_source(file) if file else {}
    return docstrings.get(documented_class.__qualname__, "")


def check_docstrings() -> None:
    """Raise an UnavailableError if the interpreter removes docstrings, which transformers reads."""
    if sys.flags.optimize >= _OPTIMIZE_WITHOUT_DOCSTRINGS:
        raise UnavailableError(
            "transformers does not work under `python -OO` or PYTHONOPTIMIZE=2, which remove its "
            "docstrings. Use `python` or `python -O`."
        )


@functools.cache
def _docstrings_in_source(file: str) -> dict[str, str]:
    """Return the docstrings of the classes in a Python file, by qualified name."""
    try:
        with open(file, "rb") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError):  # installed without source
        return {}
    docstrings: dict[str, str] = {}
    _add_docstrings(tree, "", docstrings)
    return docstrings


def _add_docstrings(node: ast.AST, prefix: str, docstrings: dict[str, str]) -> None:
    """Add the docstrings of all classes below a node, with ``prefix`` before their names."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            name = prefix + child.name
            docstrings[name] = ast.get_docstring(child) or ""
            _add_docstrings(child, f"{name}.", docstrings)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            _add_docstrings(child, f"{prefix}{child.name}.<locals>.", docstrings)
        else:
            _add_docstrings(child, prefix, docstrings)
