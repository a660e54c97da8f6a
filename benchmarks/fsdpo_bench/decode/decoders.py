"""The decoders by name.

To add a decoder, register one more :class:`~fsdpo_bench.decode.decoder.Decoder`, here or in a
plug-in. Results list the decoders in the order of this file.
"""

from dataclasses import replace

from fsdpo_bench.decode.decoder import Decoder, DecoderSetup, DecodingRequest
from fsdpo_bench.decode.solution import (
    DecodingCost,
    OwnSolution,
    add_rewards,
    greedy_sampling,
    sample_solutions,
    searched_solution,
)
from fsdpo_bench.decoders.choices import best_of_n, vote, weighted_vote
from fsdpo_data.core.registry import Registry
from fsdpo_data.core.sampling import Prompt, SamplingSpec
from fsdpo_data.engines.beam_search import BeamSampler
from fsdpo_data.engines.samplers import stream

DEFAULT_DECODER = "greedy"  #: The decoder of a run without the option ``decoder``.
#: The default decoder for recorded responses that may be random samples.
FIRST_RESPONSE_DECODER = "first"
DECODERS: Registry[Decoder] = Registry("decoder", Decoder, group="fsdpo.decoders")


def parse_result_name(name: str) -> DecoderSetup | None:
    """Return the decoder and the parameters of a result name; None for an unknown decoder."""
    decoder_name, at_sign, parameters = name.partition("@")
    if decoder_name not in DECODERS:
        return None
    return DECODERS[decoder_name].parse_suffix(at_sign + parameters)


def default_decoders(*, has_metric: bool, has_random_samples: bool = False) -> list[str]:
    """Return the decoders of a run without the option ``decoder``.

    Args:
        has_metric: Whether a benchmark has a metric over samples, such as ``avg@8``.
        has_random_samples: Whether recorded responses may be random samples, so none is greedy.
    """
    single_decoder = FIRST_RESPONSE_DECODER if has_random_samples else DEFAULT_DECODER
    if not has_metric:
        return [single_decoder]
    metric_decoders = [decoder.name for decoder in DECODERS.importable_entries() if decoder.metric]
    return [single_decoder, *metric_decoders]


def prm_decoders() -> list[str]:
    """Return the names of the decoders that need step rewards."""
    return [decoder.name for decoder in DECODERS.importable_entries() if decoder.needs_rewards]


def _decode_greedily(request: DecodingRequest) -> list[OwnSolution]:
    """Return the greedy solution of each prompt, and its cost."""
    return _sample_once(request, greedy_sampling(request.sampling))


def _take_first_sample(request: DecodingRequest) -> list[OwnSolution]:
    """Return the first sample of each prompt, and its cost."""
    return _sample_once(request, replace(request.sampling, n=1))


def _sample_once(request: DecodingRequest, sampling: SamplingSpec) -> list[OwnSolution]:
    """Return one solution of each prompt, and its cost."""
    solutions = sample_solutions(
        request.prompts,
        sampler=request.sampler,
        sampling=sampling,
        segmenter=request.segmenter,
        on_finished=request.on_finished,
    )
    if request.load_scorer is not None:
        # Reports show these rewards. They decide nothing, so the cost does not include them.
        scorer = request.load_scorer()
        solutions = add_rewards(request.prompts, solutions, scorer, request.questions)
    return [
        OwnSolution(
            solution, DecodingCost(tokens=solution.n_tokens, prm_calls=0, seconds=solution.seconds)
        )
        for [solution] in solutions
    ]


def _search_with_beam(request: DecodingRequest) -> list[OwnSolution]:
    """Return the solution that a beam search finds for each prompt, and its cost."""
    assert request.load_scorer is not None  # the decoder needs rewards
    beam = replace(request.beam, b1=request.setup.b1, b2=request.setup.b2)
    sampler = BeamSampler(request.sampler, request.load_scorer(), request.segmenter, beam)
    prompts = [
        Prompt(prompt, question)
        for prompt, question in zip(request.prompts, request.questions, strict=True)
    ]
    solutions: dict[int, OwnSolution] = {}
    for prompt_index, [completion] in stream(sampler, prompts, replace(request.sampling, n=1)):
        solution = searched_solution(completion)
        solutions[prompt_index] = solution
        request.on_finished(1, solution.cost.tokens or 0)
    return [solutions[prompt_index] for prompt_index in range(len(prompts))]


DECODERS.register(
    Decoder(
        name="greedy",
        title="one solution by greedy decoding",
        description="the most likely token at every step",
        decode=_decode_greedily,
        colour=1,
    )
)
DECODERS.register(
    Decoder(
        name="first",
        title="one random sample: the first one",
        description="the first of the samples or of the recorded responses",
        decode=_take_first_sample,
        colour=1,
    )
)
DECODERS.register(
    Decoder(
        name="sc",
        title="the most frequent answer of K samples (self-consistency)",
        description="self-consistency: the majority of K samples",
        suffix="@{k}",
        choose=lambda candidates: vote(candidates.answer_classes()),
        metric="maj",
        colour=2,
    )
)
DECODERS.register(
    Decoder(
        name="weighted",
        title="a vote of K samples, weighted by their rewards",
        description="a majority weighted by the aggregated step rewards",
        suffix="@{k}:{aggregate}",
        choose=lambda candidates: weighted_vote(candidates.answer_classes(), candidates.rewards),
        needs_rewards=True,
        needs_probabilities=True,
        colour=3,
    )
)
DECODERS.register(
    Decoder(
        name="bon",
        title="the sample with the highest reward (best-of-N)",
        description="best-of-N: the sample with the best aggregated step rewards",
        suffix="@{k}:{aggregate}",
        choose=lambda candidates: best_of_n(candidates.rewards),
        needs_rewards=True,
        colour=4,
    )
)
DECODERS.register(
    Decoder(
        name="sbs",
        title="step-wise beam search",
        description="step-wise beam search",
        suffix="@{b1},{b2}",
        decode=_search_with_beam,
        needs_rewards=True,
        needs_continuations=True,
        options=("first_keep", "beam_aggregate", "max_steps", "step_tokens"),
        colour=5,
    )
)
