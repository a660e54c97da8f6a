"""Command-line options: each is declared once; a command is a function of a dataclass of them."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from fsdpo_data.cli.choices import Device, Dtype, Engine

Given = TypeVar("Given")

#: An option's name to its annotated type.
Options = Mapping[str, Any]

# What commands of functions and commands of dataclasses have in common.
Source = Annotated[Path, typer.Argument(help="A sealed dataset; it is left as it is.")]
Out = Annotated[Path, typer.Option(help="Directory of the new dataset.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def option(kind: Any, help: str, *names: str, **more: Any) -> Any:
    """Return the annotated type of an option; ``names`` replace what its field gives."""
    return Annotated[kind, typer.Option(*names, help=help, **more)]


def command_of(
    kind: type[Given], options: Options
) -> Callable[[Callable[[Given], None]], Callable[..., None]]:
    """Turn a function of a dataclass into a command with an option for each of its fields.

    Args:
        kind: The dataclass; its fields' defaults are those of the options.
        options: One for each field, in the order in which ``--help`` shows them.

    Raises:
        TypeError: if fields and options are not the same names.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if odd := defaults.keys() ^ options.keys():
        raise TypeError(f"{kind.__name__}: {sorted(odd)} stand alone, as options or as fields.")

    def command_for(run: Callable[[Given], None]) -> Callable[..., None]:
        @functools.wraps(run)
        def command(**given: Any) -> None:
            run(kind(**{name: _plain(value) for name, value in given.items()}))

        # What typer reads of a function.
        command.__signature__ = Signature(  # type: ignore[attr-defined]
            [_parameter(name, each, defaults[name]) for name, each in options.items()]
        )
        command.__annotations__ = dict(options)
        return command

    return command_for


def _parameter(name: str, annotation: Any, default: Any) -> Parameter:
    choices = typing.get_args(annotation)[0]
    if default is dataclasses.MISSING:
        default = Parameter.empty
    elif isinstance(choices, type) and issubclass(choices, Enum):
        default = choices(default)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _plain(value: Any) -> Any:
    """Return choices as words and lists as tuples."""
    if isinstance(value, Enum):
        return value.value
    return tuple(value) if isinstance(value, list) else value


ENGINE_HELP = (
    "`auto` takes vLLM where it can run, else transformers; `ray` is `auto` on every GPU of a Ray "
    "cluster (`RAY_ADDRESS`, else this machine)."
)
ACTORS_HELP = "Copies of the model for `--engine ray`.  [default: all that fit]"

#: How a sampler runs; see :class:`fsdpo_data.cli.run_options.SamplerOptions`.
SAMPLER: Options = {
    "engine": option(Engine, ENGINE_HELP),
    "actors": option(int | None, ACTORS_HELP),
    "replay": option(Path | None, "Recorded completions for `--engine scripted`."),
    "device": option(Device, "For `--engine transformers`; `auto` takes a GPU where there is one."),
    "dtype": option(Dtype, "Precision; `auto` is the checkpoint's."),
    "engine_arg": option(
        list[str], "KEY=JSON passed on to `vllm.LLM`; may be given several times."
    ),
    "batch": option(int | None, "Prompts per durable batch.  [default: by engine]"),
    "workers": option(int | None, "Processes that grade.  [default: the cores at hand]"),
    "seed": option(int, "Sample i depends on seed, prompt, i."),
    "resume": Resume,
}

#: From a sealed dataset to a new one.
SOURCE: Options = {"directory": Source, "out": Out}
