"""Scoring through vLLM's ``/pooling``: the server classifies tokens, and this process reads steps.

The prompt, the token ids and the score positions come from the tokenizer and the PRM format here,
as for a model in this process.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import httpx2

from fsdpo_data.core import event_loop
from fsdpo_data.core.errors import FsdpoError, InputError, ItemError
from fsdpo_data.core.input_files import parse_json
from fsdpo_data.core.lazy import torch
from fsdpo_data.core.row_files import summarize_list
from fsdpo_data.engines.item_errors import ItemResult, collect_results
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.scorers import ScoreResult, ScorerInput
from fsdpo_data.engines.scorers.prm_formats import PublishedPrm
from fsdpo_data.engines.scorers.published_prm import activate_logits
from fsdpo_data.engines.scorers.token_scorer import TokenScorer
from fsdpo_data.engines.server_client import PARSE_ERRORS, RejectedError, connect_scorer
from fsdpo_data.engines.step_tokens import EncodedSolution
from fsdpo_data.models.checkpoints import context_length, load_config
from fsdpo_data.models.prompts import load_tokenizer
from fsdpo_data.models.resolve import ResolvedWeights

#: The first vLLM whose ``/pooling`` has the task ``token_classify`` and ``use_activation``.
MIN_VLLM_VERSION = "0.11.1"
MAX_CLASS_BYTES = 40  #: Maximum size of a number in a response, with its brackets.
_MAX_CLASSES = 64  #: Maximum number of classes for the size of a response.
#: A solution that shows whether the server classifies tokens, and returns logits on request.
_PROBE = ScorerInput("What is 1 + 1?\n", ["1 + 1 is 2.\n", "The answer is 2.\n"], "What is 1 + 1?")


class PoolingScorer(TokenScorer):
    """Scorer that sends token ids to ``/pooling`` with the task ``token_classify``.

    Raises:
        InputError: if the server does not have the model, or does not classify its tokens.
        UnavailableError: if no server answers, or it rejects the key.
    """

    def __init__(self, weights: ResolvedWeights, options: ScorerOptions) -> None:
        self._server = connect_scorer(options.server)
        self._prm_format = weights.prm_format if isinstance(weights, PublishedPrm) else None
        self._version = "unknown"
        entry = event_loop.call(lambda: self._find_model(weights))
        self._name = str(entry["id"])
        context = context_length(load_config(weights))
        if isinstance(entry.get("max_model_len"), int):
            context = min(context, entry["max_model_len"])
        super().__init__(weights, load_tokenizer(weights.path, weights.commit), context)
        self._check_answers()

    async def _find_model(self, weights: ResolvedWeights) -> Mapping[str, Any]:
        """Return the entry of the model on the server, and set the version of the server."""
        async with self._server.open() as client:
            models = await self._server.list_models(client, "/v1/models") or {}
            response = await self._server.get(client, "/version")
        if response.status == 200:
            with suppress(*PARSE_ERRORS):  # another server; the version is only for messages
                self._version = str(parse_json(response.body)["version"])[:40]
        for name in (weights.path, weights.ref.name):
            if name in models:
                return models[name]
        raise InputError(
            f"the server has {summarize_list(list(models)) or 'no model'}. Give this name, "
            "or choose the name with the option `served-model-name` of vLLM.",
            field="prm",
            value=weights.ref.name,
        )

    def _check_answers(self) -> None:
        """Check that the server classifies tokens, and that it returns logits on request."""
        solution = self._encode(_PROBE)
        try:
            logits, values = collect_results(
                self._classify([solution, solution], use_activation=[False, True])
            )
        except RejectedError as error:
            raise self._old_server_error(f"it rejects the task token_classify: {error}") from None
        if logits == values:
            raise self._old_server_error("it ignores `use_activation`")

    def _old_server_error(self, reason: str) -> FsdpoError:
        return InputError(
            f"the server (vLLM {self._version}) does not return the logits of each token: "
            f"{reason}. Use vLLM {MIN_VLLM_VERSION} or newer.",
            field="base_url",
            value=self._server.url,
        )

    def _score_encoded(self, encoded: dict[int, EncodedSolution]) -> Iterator[ScoreResult]:
        indices = list(encoded)
        solutions = list(encoded.values())
        results = self._classify(solutions, use_activation=[False] * len(solutions))
        for position, step_logits in results:
            if isinstance(step_logits, ItemError):
                yield indices[position], step_logits
            else:
                yield indices[position], self._activate(step_logits)

    def _activate(self, step_logits: list[list[float]]) -> list[float]:
        """Return the rewards of the logits of the steps, [K, C]."""
        logits_1KC = torch.tensor([step_logits])
        if self._prm_format is None:
            rewards = logits_1KC[..., 0].sigmoid()
        else:
            rewards = activate_logits(self._prm_format, logits_1KC)
        result: list[float] = rewards[0].tolist()
        return result

    def _request_body(self, solution: EncodedSolution, *, use_activation: bool) -> dict[str, Any]:
        """Return the request for the classes of the tokens of a solution."""
        return {
            "model": self._name,
            "input": solution.input_ids.tolist(),
            "task": "token_classify",
            "use_activation": use_activation,
            "encoding_format": "float",
        }

    def _classify(
        self, solutions: Sequence[EncodedSolution], *, use_activation: Sequence[bool]
    ) -> Iterator[ItemResult[list[list[float]]]]:
        """Yield the index of each solution, and the classes at its score positions, [K, C].

        A solution that the server rejects, or for which alone it has no result, has its error in
        place of the classes.

        Raises:
            InputError: if the server does not classify every token.
        """
        test_body = self._request_body(self._encode(_PROBE), use_activation=False)

        async def classify(client: httpx2.AsyncClient, index: int) -> Any:
            solution = solutions[index]
            n_tokens = len(solution.input_ids)
            return await self._server.post(
                client,
                "/pooling",
                self._request_body(solution, use_activation=use_activation[index]),
                max_bytes=2**20 + n_tokens * _MAX_CLASSES * MAX_CLASS_BYTES,
                parse=lambda response, _seconds: response["data"][0]["data"],
                test_body=test_body,
            )

        for index, data in self._server.send_all(classify, len(solutions)):
            is_error = isinstance(data, ItemError)
            yield index, data if is_error else self._read_steps(solutions[index], data)

    def _read_steps(self, solution: EncodedSolution, data: Any) -> list[list[float]]:
        """Return the classes at the score positions, [K, C], from the classes of the tokens.

        vLLM returns all tokens, or those equal to the step token if it pools by steps.
        """
        is_by_token = isinstance(data, list) and all(isinstance(row, list) for row in data)
        if not is_by_token or not all(_is_finite(row) for row in data):
            raise self._old_server_error("it returns one vector for the complete text")
        positions = solution.score_positions
        if len(data) == len(solution.input_ids):
            return [data[position] for position in positions]
        token_ids = solution.input_ids.tolist()
        step_token_ids = {token_ids[position] for position in positions}
        rows = [
            position for position, token_id in enumerate(token_ids) if token_id in step_token_ids
        ]
        if len(step_token_ids) == 1 and len(data) == len(rows):
            return [data[rows.index(position)] for position in positions]
        raise InputError(
            f"the server (vLLM {self._version}) returned {len(data)} rows for "
            f"{len(solution.input_ids)} tokens and {len(positions)} steps. Set "
            "`tok_pooling_type` of its pooler config to ALL.",
            field="base_url",
            value=self._server.url,
        )


def _is_finite(row: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and math.isfinite(value) for value in row)
