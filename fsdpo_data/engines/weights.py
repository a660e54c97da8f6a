"""Resolves the weights that an engine loads: a model, or a reward model with its PRM format."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import FsdpoError, InputError
from fsdpo_data.core.identity import ModelRef, file_sha256
from fsdpo_data.engines.options import SamplerOptions, ScorerOptions
from fsdpo_data.engines.registry import SAMPLERS, SCORERS
from fsdpo_data.engines.scorers.prm_formats import PRM_FORMATS, PrmFormat, PublishedPrm
from fsdpo_data.engines.scorers.prm_recognition import (
    Recognition,
    architecture_name,
    recognise_format,
    recognise_policy,
)
from fsdpo_data.engines.scorers.trained_prm import TrainedPrm, has_trained_last_steps_only
from fsdpo_data.models import resolve
from fsdpo_data.models.checkpoints import load_config
from fsdpo_data.models.resolve import (
    ResolvedModel,
    ResolvedWeights,
    resolve_weights,
    served_weights,
)


def resolve_model(name: str, options: SamplerOptions, template: str | None = None) -> ResolvedModel:
    """Resolve the model that an engine runs, and its prompt template.

    Raises:
        InputError: if the model or the template does not exist.
        UnavailableError: if the Hub cannot be reached, or denies access.
    """
    if SAMPLERS[options.engine].is_remote:
        model = resolve.resolve_served(name, template, chat=options.server.api == "chat")
    else:
        model = resolve.resolve(name, template)
    if not options.template_arg:
        return model
    return replace(model, template=model.template.with_chat_arguments(options.template_args))


def resolve_judge(name: str, options: SamplerOptions, template: str) -> ResolvedModel:
    """Resolve a judge; for recorded chat replies, the digest of the file is the revision.

    Raises:
        InputError: if the model or the template does not exist.
        UnavailableError: if the Hub cannot be reached, or denies access.
    """
    recording = digest_recording(options)
    if recording is None or options.server.api != "chat":
        try:
            return resolve_model(name, options, template)
        except InputError as error:  # the template is a key of the format, not an option
            raise error.with_text(
                "Choose another `template`",
                "Give a judge format of your own, whose key template names another template",
            ) from None
    model = resolve.resolve_served(name, template, chat=True)
    return replace(model, ref=ModelRef(name, recording))


def digest_recording(options: SamplerOptions) -> str | None:
    """Return the digest of the file that takes the place of a model; None without a replay.

    Raises:
        InputError: if the file cannot be read.
    """
    if options.replay is None:
        return None
    try:
        return f"sha256:{file_sha256(Path(options.replay))}"
    except OSError as error:
        raise options.field_error(
            "replay", f"{error.strerror}. Expected recorded completions."
        ) from None


def resolve_sampler_weights(name: str, engine: str) -> ResolvedWeights:
    """Resolve the weights of a model without its prompt template.

    Args:
        name: A short name, a directory or ``org/name[@revision]``; the name on a server.
        engine: Name of the sampler.

    Raises:
        InputError: if the model does not exist.
        UnavailableError: if the Hub cannot be reached, or denies access.
    """
    return served_weights(name) if SAMPLERS[engine].is_remote else resolve_weights(name)


def resolve_prm(name: str, options: ScorerOptions | None = None) -> ResolvedWeights:
    """Resolve a process reward model and its PRM format.

    The options can name the format. Otherwise the content and the names of the model decide. A
    scorer that lists the architecture of the checkpoint needs no format.

    Returns:
        A :class:`PublishedPrm`, or a :class:`TrainedPrm` for a model that fsdpo trained.

    Raises:
        InputError: if the model or the format does not exist, or the format is not recognised.
        UnavailableError: if the model cannot be read.
    """
    options = options or ScorerOptions()
    try:
        weights = resolve_weights(name)
        config = load_config(weights)
    except FsdpoError as error:
        raise error.for_field("prm") from None
    try:
        recognition = _recognise_format(weights, config, options)
    except InputError as error:  # a short name has a path that the user did not give
        raise error.with_text(weights.path, name) from None
    if recognition is None:
        if options.beta is not None:
            raise _unread_beta_error(options, name)
        return TrainedPrm(
            weights.ref,
            weights.path,
            weights.commit,
            last_step_only=has_trained_last_steps_only(config),
        )
    prm_format, evidence = recognition
    if prm_format.unsupported_reason:
        raise InputError(f"{prm_format.unsupported_reason}.", field="prm", value=name)
    reference = options.reference or prm_format.reference or None
    _check_reference(prm_format, reference)
    if options.beta is not None:
        if not _has_log_ratios(prm_format):
            raise _unread_beta_error(options, f"the PRM format {prm_format.name}")
        prm_format = prm_format.replace(beta=options.beta)
    return PublishedPrm(
        weights.ref,
        weights.path,
        weights.commit,
        prm_format=prm_format,
        format_evidence=evidence,
        reference=resolve_weights(reference) if reference else None,
    )


def _recognise_format(
    weights: ResolvedWeights, config: Any, options: ScorerOptions
) -> Recognition | None:
    """Return the PRM format of a checkpoint; None if it needs no format."""
    if options.prm_format:
        return Recognition(PRM_FORMATS.find(options.prm_format), "option prm_format")
    if SCORERS[options.engine].reads(architecture_name(config)):
        return None
    if options.reference:
        return recognise_policy(weights)
    return recognise_format(weights, config)


def _has_log_ratios(prm_format: PrmFormat) -> bool:
    """Return whether a reward is a log-ratio of the model and a reference model."""
    return prm_format.activation.startswith("log-ratio")


def _unread_beta_error(options: ScorerOptions, owner: str) -> InputError:
    """Return the error for a factor of log-ratios that the owner of the rewards does not have."""
    message = f"only implicit rewards have this factor; {owner} has others. Leave the option out."
    return options.field_error("beta", message)


def _check_reference(prm_format: PrmFormat, reference: str | None) -> None:
    """Raise InputError unless exactly the formats with log-ratios have a reference model."""
    needs_reference = _has_log_ratios(prm_format)
    if needs_reference and reference is None:
        message = (
            f"the PRM format {prm_format.name} needs a reference model. Add `reference=MODEL`."
        )
    elif reference is not None and not needs_reference:
        message = f"the PRM format {prm_format.name} uses no reference model. Remove `reference`."
    else:
        return
    raise InputError(message, field="reference", value=reference)
