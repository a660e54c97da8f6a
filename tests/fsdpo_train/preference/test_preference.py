"""Compare the preference losses with the paper's equations, computed pair by pair."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache, partial
from itertools import accumulate
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fsdpo_data.core.errors import InputError  # noqa: E402
from fsdpo_data.core.sampling import Prompt  # noqa: E402
from fsdpo_data.engines import logprobs  # noqa: E402
from fsdpo_data.engines.logprobs import token_logprobs  # noqa: E402
from fsdpo_data.engines.prefix_sharing import masks  # noqa: E402
from fsdpo_data.engines.prefix_sharing.model_attention import (  # noqa: E402
    tree_inputs,
    use_tree_attention,
)
from fsdpo_data.engines.step_tokens import EncodedSolution  # noqa: E402
from fsdpo_train.losses.preference_losses import (  # noqa: E402
    PREFERENCE_LOSSES,
    PairLogprobs,
    PreferenceLoss,
    PreferenceSpec,
    SolutionBatch,
    step_weights,
)
from fsdpo_train.preference.batch_loss import preference_loss  # noqa: E402
from fsdpo_train.preference.data import (  # noqa: E402
    collate_groups,
    group_inputs,
    scatter_tokens,
)
from fsdpo_train.preference.pairs import PairedSolution, PromptGroup  # noqa: E402

EOS = 1
PAD = 0
VOCABULARY = 50
ARCHITECTURES = ("Qwen2", "Llama", "Mistral", "Gemma")


def policy(architecture: str, seed: int, attention: str = "sdpa") -> torch.nn.Module:
    import transformers

    torch.manual_seed(seed)
    config = getattr(transformers, f"{architecture}Config")(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=128,
        initializer_range=0.3,
        tie_word_embeddings=False,
    )
    model = getattr(transformers, f"{architecture}ForCausalLM")(config)
    # The norms of transformers always compute in float32, which hides errors below 1e-7.
    for layer in model.model.layers:
        layer.input_layernorm = torch.nn.RMSNorm(32, eps=1e-6)
        layer.post_attention_layernorm = torch.nn.RMSNorm(32, eps=1e-6)
    model.model.norm = torch.nn.RMSNorm(32, eps=1e-6)
    use_tree_attention(model, attention)
    return model.double().train()


def tokenized_group(tokens, rewards, pairs) -> PromptGroup:
    """Return a group of solutions without text."""
    solutions = [
        PairedSolution(
            steps=(),
            rewards=tuple(row),
            ends_with_eos=bool(encoded.input_ids[-1] == EOS),
            encoded=encoded,
        )
        for encoded, row in zip(tokens, rewards, strict=True)
    ]
    return PromptGroup(Prompt(""), solutions=solutions, pairs=pairs)


def make_groups(seed: int = 0, *, has_prompts: bool = True) -> list[PromptGroup]:
    """Return two prompts whose solutions have one to four steps and partly no EOS token."""
    draw = torch.Generator().manual_seed(seed)

    def random_count(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=draw))

    def tokens(n: int) -> list[int]:
        return torch.randint(2, VOCABULARY, (n,), generator=draw).tolist()

    groups = []
    for n_solutions, pairs in ((5, [(0, 2), (0, 3), (1, 2), (1, 3), (2, 4)]), (2, [(1, 0)])):
        prompt = tokens(random_count(3, 9)) if has_prompts else []
        solutions = []
        rewards = []
        for number in range(n_solutions):
            sizes = [random_count(1, 6) for _ in range(random_count(1, 5))]
            ids = tokens(sum(sizes))
            if number != 1:
                ids = [*ids, EOS]
            solutions.append(
                EncodedSolution(
                    input_ids=np.array([*prompt, *ids]),
                    prompt_length=len(prompt),
                    score_positions=[len(prompt) + end - 1 for end in accumulate(sizes)],
                    n_steps=len(sizes),
                )
            )
            rewards.append(torch.rand(len(sizes), generator=draw).tolist())
        groups.append(tokenized_group(solutions, rewards, pairs))
    return groups


def solution_logprobs(model: torch.nn.Module, solution: EncodedSolution) -> torch.Tensor:
    """Return the log-probabilities of a solution's tokens from its own forward pass."""
    logits = model(input_ids=torch.tensor(solution.input_ids)[None]).logits[0].log_softmax(-1)
    positions = range(solution.completion_start, len(solution.input_ids))
    return torch.stack(
        [logits[position - 1, solution.input_ids[position]] for position in positions]
    )


def naive_surrogate(
    model: torch.nn.Module,
    reference: torch.nn.Module,
    groups: list[PromptGroup],
    spec: PreferenceSpec,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a scalar with the loss's gradient, summed term by term, and the value of the loss.

    For losses with weights, these are the paper's gradient and the mean of −log σ.
    """
    terms = []
    values = []
    for group in groups:
        for pair in group.pairs:
            sides = []
            for index, sign in zip(pair, (1, -1), strict=True):
                solution = group.solutions[index].tokens
                logp = solution_logprobs(model, solution)
                with torch.no_grad():
                    reference_logp = solution_logprobs(reference, solution)
                log_ratio = logp - reference_logp
                ratio = log_ratio.detach()
                steps = torch.tensor(solution.step_ids[solution.completion_start :])
                weights = naive_weights(
                    spec, group.solutions[index].rewards, steps, sign, ratio, solution
                )
                sides.append((spec.beta * ratio.sum(), (weights * logp).sum(), log_ratio.sum()))
            (reward_w, gain_w, ratio_w), (reward_l, gain_l, ratio_l) = sides
            if spec.loss in NAIVE_PAIR_LOSSES:
                terms.append(NAIVE_PAIR_LOSSES[spec.loss](ratio_w - ratio_l, spec.beta))
                values.append(terms[-1])
                continue
            pull = torch.sigmoid(reward_l - reward_w)
            beta = 1.0 if spec.loss == "public-code" else spec.beta
            terms.append(-beta * pull * (gain_w - gain_l))
            values.append(-torch.log(torch.sigmoid(reward_w - reward_l)))
    return torch.stack(terms).mean(), torch.stack(values).mean()


#: Equation 17 of Azar et al. (2024), and a loss that a plug-in may add: the hinge of SLiC.
NAIVE_PAIR_LOSSES = {
    "ipo": lambda h, beta: (h - 1 / (2 * beta)) ** 2,
    "hinge": lambda h, beta: torch.relu(1 - beta * h),
}


def naive_weights(spec, rewards, steps, sign, ratio, solution):
    exps = [
        torch.tensor(sign * spec.gamma * reward, dtype=torch.float64).exp() for reward in rewards
    ]
    if spec.loss in ("dpo", "step-dpo", *NAIVE_PAIR_LOSSES):
        return torch.ones(len(steps)).double()
    if spec.loss == "public-code":
        completion_ids = solution.input_ids[solution.completion_start :]
        trained = [k for k, token in zip(steps, completion_ids, strict=True) if token != EOS]
        total = sum(exps[k] for k in trained)
        zero = torch.tensor(0.0).double()
        token_weights = [exps[k] / total for k in trained]
        token_weights += [zero] * (len(steps) - len(trained))
        return torch.stack(token_weights) * torch.sigmoid(-sign * ratio)
    scale = len(rewards) if spec.loss == "full-step-scaled" else 1
    return torch.stack([scale * exps[k] / sum(exps) for k in steps])


def grouped_loss(
    model: torch.nn.Module,
    reference: torch.nn.Module,
    groups: list[PromptGroup],
    spec: PreferenceSpec,
    share_prompt: bool,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    batch = collate_groups(groups)
    model_inputs = group_inputs(groups, share_prompt=share_prompt, pad_id=PAD)

    def table(net: torch.nn.Module) -> torch.Tensor:
        inputs = dict(model_inputs)
        source_N = inputs.pop("source_N")
        target_N = inputs.pop("target_N")
        hidden = net.model(**tree_inputs(net, **inputs)).last_hidden_state
        picked = hidden.flatten(0, 1)[source_N]
        logp_N = token_logprobs(picked, target_N, net.lm_head, chunk_tokens=7)
        return scatter_tokens(logp_N, batch.step_ST)

    with torch.no_grad():
        reference_ST = table(reference)
    solutions = batch._replace(reference_ST=reference_ST, reward_SK=batch.reward_SK.double())
    return preference_loss(table(model), solutions, spec)


def gradients(model: torch.nn.Module, loss: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def check_against_separate_pairs(
    model: torch.nn.Module,
    reference: torch.nn.Module,
    groups: list[PromptGroup],
    spec: PreferenceSpec,
    share_prompt: bool,
) -> dict[str, torch.Tensor]:
    """Compare value and gradients of a grouped batch with those of separate pairs.

    Returns:
        The metrics of the grouped batch.
    """
    surrogate, value = naive_surrogate(model, reference, groups, spec)
    expected = gradients(model, surrogate)
    assert expected.norm() > 0
    total, metrics = grouped_loss(model, reference, groups, spec, share_prompt)
    assert torch.allclose(total, value, rtol=1e-9, atol=0)
    error = (gradients(model, total) - expected).norm() / expected.norm()
    assert error <= 1e-9
    return metrics


@pytest.fixture
def flex_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the check that refuses FlexAttention gradients on CPUs; uncompiled they work."""
    from torch.nn.attention import flex_attention

    for name in ("_validate_device", "_warn_once"):
        monkeypatch.setattr(flex_attention, name, lambda *_, **__: None)


#: TorchDynamo reads the ``.grad`` attribute of every tensor, which warns for non-leaves.
IGNORE_NON_LEAF_WARNING = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf"
)


@IGNORE_NON_LEAF_WARNING
@pytest.mark.usefixtures("flex_on_cpu")
@pytest.mark.parametrize("attention", ["sdpa", "flex", "rows"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("loss", list(PREFERENCE_LOSSES))
def test_grouped_batches_equal_separate_pairs(loss, architecture, attention):
    share_prompt = attention != "rows"
    kind = attention if share_prompt else "auto"
    model, reference = (policy(architecture, seed, kind) for seed in (0, 1))
    gamma = {"gamma": 1.7} if "gamma" in PREFERENCE_LOSSES[loss].options else {}
    spec = PreferenceSpec(loss=loss, beta=0.3, **gamma)
    metrics = check_against_separate_pairs(model, reference, make_groups(), spec, share_prompt)
    assert 0 <= metrics["rewards/accuracies"] <= 1


@pytest.mark.parametrize("share_prompt", [True, False])
@pytest.mark.parametrize("loss", ["full-step", "public-code", "dpo"])
def test_groups_without_prompt_tokens_equal_separate_pairs(loss, share_prompt):
    """No token predicts the first one, so the loss does not read it."""
    model, reference = (
        policy("Qwen2", seed, "sdpa" if share_prompt else "auto") for seed in (0, 1)
    )
    spec = PreferenceSpec(loss=loss, beta=0.3)
    groups = make_groups(has_prompts=False)
    check_against_separate_pairs(model, reference, groups, spec, share_prompt)


def hinge_loss(pairs: PairLogprobs, spec: PreferenceSpec) -> torch.Tensor:
    return torch.relu(1 - spec.beta * pairs.ratio_difference_P)


def test_a_registered_pair_loss_equals_separate_pairs(monkeypatch):
    monkeypatch.setattr(PREFERENCE_LOSSES, "data", dict(PREFERENCE_LOSSES))
    PREFERENCE_LOSSES.register(
        PreferenceLoss(
            name="hinge",
            summary="Hinge",
            source="Zhao et al. 2023",
            pair_loss=hinge_loss,
        )
    )
    model, reference = (policy("Qwen2", seed) for seed in (0, 1))
    spec = PreferenceSpec(loss="hinge", beta=0.3)
    metrics = check_against_separate_pairs(model, reference, make_groups(), spec, share_prompt=True)
    assert metrics["alpha_entropy"].isnan()  # the loss has no step weights


@pytest.mark.parametrize("forms", [{}, {"step_weights": step_weights, "pair_loss": hinge_loss}])
def test_a_loss_has_exactly_one_form(forms):
    with pytest.raises(InputError, match=r"PreferenceLoss = 'mine': expected exactly one of"):
        PreferenceLoss(name="mine", summary="", source="", **forms)


@IGNORE_NON_LEAF_WARNING
@pytest.mark.filterwarnings("ignore:<class 'torch.autograd.function.Function'>")
@pytest.mark.proof
def test_other_lengths_do_not_compile_again(flex_on_cpu, monkeypatch):
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    compiled = cache(partial(torch.compile, backend=counter, dynamic=True))
    monkeypatch.setattr(masks, "compile_on_gpu", lambda call, device: compiled(call))
    model = policy("Qwen2", 0, "flex")
    compilations = []
    for seed in range(4):
        groups = [*make_groups(seed), *make_groups(seed + 9)[: seed % 2]] * (1 + 2 * seed)
        grouped_loss(model, model, groups, PreferenceSpec(), share_prompt=True)
        compilations.append(counter.frame_count)
    assert 0 < compilations[1] == compilations[-1]


def loss_gradients(spec: PreferenceSpec, groups: list[PromptGroup] | None = None) -> torch.Tensor:
    model = policy("Qwen2", 0)
    reference = policy("Qwen2", 1)
    total, _ = grouped_loss(model, reference, groups or make_groups(), spec, True)
    return gradients(model, total)


def test_full_step_scaled_with_gamma_0_is_dpo():
    dpo = loss_gradients(PreferenceSpec(loss="dpo", beta=0.2))
    scaled = loss_gradients(PreferenceSpec(loss="full-step-scaled", beta=0.2, gamma=0))
    assert torch.allclose(scaled, dpo, rtol=1e-12, atol=1e-14)


def test_equal_rewards_give_the_gradient_of_gamma_0():
    flat = [
        replace(g, solutions=[replace(s, rewards=(0.3,) * len(s.rewards)) for s in g.solutions])
        for g in make_groups()
    ]
    equal_rewards = loss_gradients(PreferenceSpec(loss="full-step", gamma=5), flat)
    without_rewards = loss_gradients(PreferenceSpec(loss="full-step", gamma=0), flat)
    assert torch.allclose(equal_rewards, without_rewards, rtol=1e-12, atol=1e-14)


def test_full_step_on_single_steps_is_dpo():
    def merge_steps(solution: EncodedSolution) -> EncodedSolution:
        return replace(solution, score_positions=[len(solution.input_ids) - 1], n_steps=1)

    single = [
        tokenized_group(
            [merge_steps(solution.tokens) for solution in g.solutions],
            [[solution.rewards[0]] for solution in g.solutions],
            g.pairs,
        )
        for g in make_groups()
    ]
    paper = loss_gradients(PreferenceSpec(loss="full-step", gamma=3), single)
    dpo = loss_gradients(PreferenceSpec(loss="dpo"), single)
    assert torch.allclose(paper, dpo, rtol=1e-12, atol=1e-14)


def test_step_weights_are_the_softmax_of_the_paper():
    rewards = torch.tensor([[0.9, 0.1, 0.4], [0.2, 0.7, torch.nan]]).double()
    mask = torch.tensor([[True] * 3, [True, True, False]])
    for sign in (1, -1):
        weights = step_weights(rewards.nan_to_num(), mask, 0.5, sign)
        for row, real in enumerate((3, 2)):
            exps = [torch.exp(torch.tensor(sign * 0.5 * float(r))) for r in rewards[row, :real]]
            expected = torch.tensor([float(e / sum(exps)) for e in exps]).double()
            assert torch.allclose(weights[row, :real], expected, rtol=1e-6)
        assert weights[1, 2] == 0
        assert torch.allclose(weights.sum(-1), torch.ones(2).double())


@pytest.mark.parametrize("gamma", [1e6, float("inf")])
def test_a_large_gamma_puts_all_weight_on_one_step(gamma):
    rewards = torch.tensor([[0.9, 0.1, 0.4]]).double()
    mask = torch.ones(1, 3, dtype=torch.bool)
    assert step_weights(rewards, mask, gamma, 1).tolist() == [[1, 0, 0]]
    assert step_weights(rewards, mask, gamma, -1).tolist() == [[0, 1, 0]]


@pytest.mark.parametrize(
    ("chosen", "rejected", "gamma", "expected"),
    [
        # One entropy per solution, of the weights that the loss gives to it.
        ([0.9, 0.9, 0.1], [0.9], math.inf, math.log(2) / math.log(3)),
        ([0.9, 0.1, 0.1], [0.9], math.inf, 0.0),
        ([0.9], [0.9, 0.1, 0.1], math.inf, math.log(2) / math.log(3)),
        ([0.9, 0.9, 0.1], [0.9, 0.9, 0.1], math.inf, math.log(2) / math.log(3) / 2),
        ([0.9, 0.1, 0.4], [0.9], 0.0, 1.0),
        ([0.9], [0.1], 0.5, math.nan),
    ],
)
def test_the_entropy_of_step_weights_is_relative_to_uniform_weights(
    chosen: list[float], rejected: list[float], gamma: float, expected: float
) -> None:
    n_steps = max(len(chosen), len(rejected))
    padding = [[math.nan] * (n_steps - len(rewards)) for rewards in (chosen, rejected)]
    rewards = torch.tensor([chosen + padding[0], rejected + padding[1]]).double()
    step_ST = torch.arange(n_steps).repeat(2, 1)
    step_ST[0, len(chosen) :] = -1
    step_ST[1, len(rejected) :] = -1
    solutions = SolutionBatch(
        reference_ST=torch.zeros(2, n_steps).double(),
        step_ST=step_ST,
        is_eos_ST=torch.zeros(2, n_steps, dtype=torch.bool),
        reward_SK=rewards,
        chosen_P=torch.tensor([0]),
        rejected_P=torch.tensor([1]),
    )
    spec = PreferenceSpec(gamma=gamma)
    _, metrics = preference_loss(torch.zeros(2, n_steps).double(), solutions, spec)
    assert metrics["alpha_entropy"].item() == pytest.approx(expected, nan_ok=True)


def test_the_entropy_is_that_of_the_weights_of_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss with its own weights of steps has their entropy; weights of tokens have none."""
    monkeypatch.setattr(PREFERENCE_LOSSES, "data", dict(PREFERENCE_LOSSES))

    def first_step(reward_SK: Any, mask_SK: Any, gamma: float, sign: int) -> Any:
        return 3 * torch.nn.functional.one_hot(torch.zeros(len(reward_SK), dtype=int), 3).double()

    PREFERENCE_LOSSES.register(
        PreferenceLoss(
            name="first", summary="s", source="t", uses_rewards=True, step_weights=first_step
        )
    )
    solutions = SolutionBatch(
        reference_ST=torch.zeros(2, 3).double(),
        step_ST=torch.arange(3).repeat(2, 1),
        is_eos_ST=torch.zeros(2, 3, dtype=torch.bool),
        reward_SK=torch.tensor([[0.9, 0.5, 0.1]] * 2).double(),
        chosen_P=torch.tensor([0]),
        rejected_P=torch.tensor([1]),
    )
    entropies = {
        loss: preference_loss(torch.zeros(2, 3).double(), solutions, PreferenceSpec(loss=loss))[1][
            "alpha_entropy"
        ].item()
        for loss in ("first", "full-step", "full-step-scaled", "public-code")
    }
    assert entropies["first"] == 0 and math.isnan(entropies["public-code"])
    assert 0.9 < entropies["full-step"] < 1
    assert entropies["full-step-scaled"] == pytest.approx(entropies["full-step"])


def test_a_policy_equal_to_its_reference_has_no_margin():
    model = policy("Llama", 0)
    total, metrics = grouped_loss(model, model, make_groups(), PreferenceSpec(), True)
    assert torch.allclose(total, torch.log(torch.tensor(2.0)).double())
    assert metrics["rewards/margins"] == metrics["kl"] == 0
    assert metrics["rewards/accuracies"] == 0.5
    assert 0.9 < metrics["alpha_entropy"] < 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "kto"}, r"loss = 'kto': expected one of full-step"),
        ({"beta": 0.0}, "beta = 0.0"),
        ({"beta": float("nan")}, "beta = nan"),
        ({"gamma": -1.0}, "gamma = -1.0"),
    ],
)
def test_options_out_of_range_are_named(options, message):
    with pytest.raises(InputError, match=message):
        PreferenceSpec(**options)


@pytest.mark.parametrize(("device", "max_tokens"), [("cpu", 128), ("cuda", 8192)])
def test_chunk_size_follows_the_free_memory(device, max_tokens, monkeypatch):
    """A chunk takes an eighth to a quarter of the free memory, within fixed bounds."""
    assert (
        16 <= logprobs.chunk_size(10**9, torch.device("cpu")) < 512
    )  # free memory of this machine
    chunk_sizes = []
    for gigabytes in (0, 1, 8, 16, 10_000):
        free = gigabytes * 10**9
        monkeypatch.setattr(logprobs, "available_memory", lambda free=free: free)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free // 2, 0))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device, free=free: free)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device, free=free: free // 2)
        chunk_sizes.append(logprobs.chunk_size(152_000, torch.device(device)))
    assert chunk_sizes == [16, 128, *([128, 128] if device == "cpu" else [1024, 2048]), max_tokens]
    assert logprobs.chunk_size(49_152, torch.device("cpu")) == 512


def test_chunking_does_not_change_log_probabilities_or_gradients(monkeypatch):
    torch.manual_seed(0)
    head = torch.nn.Linear(8, VOCABULARY, bias=False).double()
    hidden = torch.randn(20, 8).double().requires_grad_()
    target = torch.randint(0, VOCABULARY, (20,))
    sizes = []
    monkeypatch.setattr(logprobs, "chunk_size", lambda vocabulary, device: vocabulary // 10)
    pick = logprobs._gather_logprobs
    monkeypatch.setattr(
        logprobs,
        "_gather_logprobs",
        lambda *arguments: sizes.append(len(arguments[0])) or pick(*arguments),
    )

    def with_gradients(logp):
        return logp, *torch.autograd.grad((logp * torch.arange(20)).sum(), (hidden, head.weight))

    results = [
        with_gradients(token_logprobs(hidden, target, head, chunk)) for chunk in (3, 1000, None)
    ]
    assert sizes == [*[3] * 6, 2, 20, *[5] * 4]
    # A head with a hook is called as a module, and again in the backward pass.
    monkeypatch.setattr(logprobs, "_gather_logprobs", pick)
    hook = head.register_forward_hook(lambda *arguments: sizes.append(len(arguments[2])))
    sizes.clear()
    results += [
        with_gradients(token_logprobs(hidden, target, head, chunk)) for chunk in (3, 1000, None)
    ]
    assert max(sizes[:13]) == 3 and sizes[13:] == [20, *[5] * 7]  # the last chunk is not recomputed
    # All processes gather a weight that DeepSpeed shards, in a single call whatever their lengths.
    head.weight.ds_id = 0
    sizes.clear()
    results.append(with_gradients(token_logprobs(hidden, target, head, 3)))
    assert sizes == [20]
    hook.remove()
    expected = with_gradients(head(hidden).log_softmax(-1)[torch.arange(20), target])
    for result in results:
        for value, expected_value in zip(result, expected, strict=True):
            assert torch.allclose(value, expected_value, rtol=1e-12, atol=1e-14)


def test_a_frozen_head_gets_no_gradient_and_a_second_backward_is_refused():
    head = torch.nn.Linear(8, VOCABULARY, bias=False).requires_grad_(False)
    hidden = torch.randn(20, 8, requires_grad=True)
    logp = token_logprobs(hidden, torch.randint(0, VOCABULARY, (20,)), head, 7)
    logp.sum().backward(retain_graph=True)
    assert head.weight.grad is None and hidden.grad is not None
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        logp.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_computes_the_head_in_its_own_precision(dtype):
    head = torch.nn.Linear(8, VOCABULARY, bias=False).to(dtype)
    hidden = torch.randn(20, 8)
    target = torch.randint(0, VOCABULARY, (20,))
    with torch.autocast("cpu", torch.bfloat16):
        logp = token_logprobs(hidden, target, head, 7)
        expected = head(hidden).float().log_softmax(-1)[torch.arange(20), target]
    assert torch.allclose(logp, expected, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_bfloat16_logits_are_reduced_in_float32(rows, monkeypatch):
    monkeypatch.setattr(logprobs, "CPU_CACHE_LOGITS", rows * VOCABULARY)
    torch.manual_seed(0)
    logit = 3 * torch.randn(20, VOCABULARY).bfloat16()
    target = torch.randint(0, VOCABULARY, (20,))
    weight = torch.rand(20)
    results = []
    for precision in ("float64", "bfloat16"):
        leaf = (logit.double() if precision == "float64" else logit.clone()).requires_grad_()
        if precision == "float64":
            logp = leaf.log_softmax(-1)[torch.arange(20), target]
        else:
            logp = token_logprobs(leaf, target, torch.Tensor.clone, 7)
            assert logp.dtype == torch.float32
        results.append((logp.detach(), *torch.autograd.grad((logp * weight).sum(), leaf)))
    (expected, expected_grad), (logp, grad) = results
    assert torch.allclose(logp.double(), expected, rtol=0, atol=1e-5)
    assert torch.equal(grad, expected_grad.bfloat16()) or torch.allclose(
        grad.double(), expected_grad, rtol=2**-8, atol=1e-7
    )
