"""The command line that a run stores: its options, with pinned names in place of local paths."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from fsdpo_cards.commands import pinned_name

from fsdpo_bench.runs.options import RunOptions
from fsdpo_bench.runs.run import RunSpec
from fsdpo_bench.tasks.table import Task, pinned_task_name, suites
from fsdpo_data.core.command_line import command_line
from fsdpo_data.engines.answer_judge import pin_answer_judge
from fsdpo_data.engines.options import resolved_engine
from fsdpo_data.models.prompts import RECORDED_TEMPLATE, TEMPLATE_SUFFIX

#: The options of beam searches.
_BEAM_FIELDS = ("b1", "b2", "first_keep", "beam_aggregate", "max_steps", "step_tokens")


def run_command(options: RunOptions, spec: RunSpec, tasks: Sequence[Task]) -> list[str]:
    """Return the words of the command line that repeats a run.

    Options without an effect on the run are left out.

    Args:
        options: The options of the run.
        spec: The spec of the run.
        tasks: The benchmarks; none if the golds are in a file of responses.
    """
    is_model_known = not options.is_replay or options.model is not None
    pinned_options = replace(
        options,
        model=pinned_name(asdict(spec.model)) if is_model_known else None,
        suite=None,
        task=_task_names(options) if tasks else (),
        engine=resolved_engine(options.engine, spec.engine),
        segmenter=spec.segmenter,
        **_decoder_options(options, spec),
        **pin_answer_judge(options, spec.answer_judge),
        **_prompt_options(options, spec),
    )
    return command_line(pinned_options, "fsdpo-bench", "run")


def _task_names(options: RunOptions) -> tuple[str, ...]:
    """Return the names of the benchmarks, because a later version may change a suite."""
    suite = options.suite or (None if options.task else "all")
    names = [*(suites()[suite] if suite else ()), *map(pinned_task_name, options.task)]
    return tuple(dict.fromkeys(names))


def _decoder_options(options: RunOptions, spec: RunSpec) -> dict[str, Any]:
    """Return the decoders, with default values for the parameters that none of them has."""
    setups = spec.plan.setups
    unused = [] if spec.plan.beams else [*_BEAM_FIELDS]
    if not any(setup.aggregate for setup in setups):
        unused.append("aggregate")
    defaults = {field.name: field.default for field in fields(options) if field.name in unused}
    return (
        {"aggregate": spec.plan.aggregate}
        | defaults
        | {
            "decoder": (",".join(spec.plan.decoders),),
            "k": spec.plan.ks if any(setup.k for setup in setups) else (),
        }
    )


def _prompt_options(options: RunOptions, spec: RunSpec) -> dict[str, Any]:
    """Return the prompt template, and the reward model with its format."""
    prm = spec.prm or {}
    is_prm_named = options.prm is not None and spec.prm is not None
    template: str | None = spec.template.argument
    if template == RECORDED_TEMPLATE.name:
        template = _prm_template_argument(prm)
    return {
        "template": template,
        "prm": pinned_name(prm) if is_prm_named else None,
        "prm_format": prm["prm_format"]["name"] if "prm_format" in prm else None,
    }


def _prm_template_argument(prm: Mapping[str, Any]) -> str | None:
    """Return the option of the prompt template of a reward model; None without one."""
    if "template" not in prm:
        return None
    name: str = prm["template"]["name"]
    return f"{name}{TEMPLATE_SUFFIX}" if "text" in prm["template"] else name
