"""Scoring with a reward model on a server: ``fsdpo-data serve``, or vLLM's ``/pooling``."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

from fsdpo_data.core.errors import InputError, ItemError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.row_files import replace_surrogates, summarize_list
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.scorers import ScoreOutcome, Scorer, ScorerInput
from fsdpo_data.engines.scorers.prm_formats import ServedPrm
from fsdpo_data.engines.server_client import MAX_OVERHEAD_BYTES, connect_scorer
from fsdpo_data.models.resolve import ResolvedWeights


class ServedScorer:
    """A scorer that sends questions and steps to ``fsdpo-data serve``."""

    def __init__(self, weights: ServedPrm, options: ScorerOptions) -> None:
        self.model = weights.ref
        self._server = connect_scorer(options.server)

    def score(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        """Return the step rewards of each item; see :class:`fsdpo_data.engines.scorers.Scorer`.

        Raises:
            InputError: if the server rejects a request.
            UnavailableError: if requests failed for ``idle_timeout`` seconds without any response.
        """
        outcomes = self._score(items, yields_errors=False)
        return [None if isinstance(outcome, ItemError) else outcome for outcome in outcomes]

    def score_outcomes(self, items: Sequence[ScorerInput]) -> list[ScoreOutcome]:
        """Return the step rewards of each item, or the reason of a rejection.

        Raises:
            InputError: if the server rejects more than an item.
            UnavailableError: if requests failed for ``idle_timeout`` seconds without any response.
        """
        return self._score(items, yields_errors=True)

    def _score(self, items: Sequence[ScorerInput], *, yields_errors: bool) -> list[ScoreOutcome]:
        async def score_item(client: httpx2.AsyncClient, index: int) -> list[float] | None:
            item = items[index]
            if not item.steps:
                return []
            return await self._server.post(
                client,
                "/step_rewards",
                _step_rewards_body(item),
                max_bytes=MAX_OVERHEAD_BYTES,
                parse=lambda response, _seconds: _parse_rewards(response, len(item.steps)),
            )

        results: list[ScoreOutcome] = [None] * len(items)
        stream = self._server.stream(score_item, len(items), yields_errors=yields_errors)
        for index, rewards in stream:
            results[index] = rewards
        return results


def _step_rewards_body(item: ScorerInput) -> dict[str, Any]:
    """Return the body of ``POST /step_rewards`` for a solution."""
    body: dict[str, Any] = {"steps": [replace_surrogates(step) for step in item.steps]}
    if item.question is not None:
        body["question"] = replace_surrogates(item.question)
    if item.prompt:
        body["prompt"] = replace_surrogates(item.prompt)
    return body


def _parse_rewards(response: Mapping[str, Any], n_steps: int) -> list[float] | None:
    """Return the rewards of a response.

    Raises:
        ValueError: if the response does not have one finite reward per step.
    """
    if response["rewards"] is None:
        return None
    rewards = [float(reward) for reward in response["rewards"]]
    if len(rewards) != n_steps or not all(map(math.isfinite, rewards)):
        raise ValueError(f"the server returned {len(rewards)} rewards for {n_steps} steps")
    return rewards


def find_served_prm(name: str, options: ScorerOptions) -> ServedPrm | None:
    """Return the reward model of ``fsdpo-data serve``; None for another server, such as vLLM.

    Args:
        name: Name of the model on the server, with ``@revision`` if only this revision will do.
        options: Options with the address of the server.

    Raises:
        InputError: if the server has another model, or an option is for a model in this process.
        UnavailableError: if no server answers, or it rejects the key.
    """
    server = connect_scorer(options.server)

    async def list_models() -> Mapping[str, Mapping[str, Any]] | None:
        async with server.open() as client:
            return await server.list_models(client, "/v1/models")

    with asyncio.Runner() as runner:
        models = runner.run(list_models()) or {}
    if not any(model.get("owned_by") == "fsdpo" for model in models.values()):
        return None
    for field in ("prm_format", "reference", "beta"):
        if getattr(options, field) is not None:
            raise options.field_error(
                field,
                f"`fsdpo-data serve` has its own. Start the server with it, without `{field}`.",
            )
    base_name, _, revision = name.partition("@")
    entry = models.get(name) or models.get(base_name)
    if entry is None or (revision not in ("", entry["revision"]) and name not in models):
        served = summarize_list([f"{model['id']}@{model['revision']}" for model in models.values()])
        raise InputError(f"the server has {served}.", field="prm", value=name)
    return ServedPrm(
        ModelRef(str(entry["id"]), str(entry["revision"])),
        str(entry["id"]),
        format_entry=dict(entry["format"]),
        reads_question=bool(entry["reads_question"]),
    )


def load_prm(weights: ResolvedWeights, options: ScorerOptions) -> Scorer:
    """Load the client of ``fsdpo-data serve``, or of vLLM's ``/pooling``."""
    if isinstance(weights, ServedPrm):
        return ServedScorer(weights, options)
    from fsdpo_data.engines.scorers.pooling import PoolingScorer

    return PoolingScorer(weights, options)
