"""Common prompts are read once, and nobody can tell from the numbers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import BloomConfig, BloomForCausalLM

from groupwise.language.adapters import Lora, add_adapter, without_adapter
from groupwise.language.batch_layout import can_share, lay_out, share_prompts
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.policy import LanguagePolicy
from groupwise.types import Tensors

from .engine.conftest import FAMILIES, VOCABULARY, make_model


def groups(lengths: tuple[int, ...] = (20, 14, 20), members: int = 4, seed: int = 0) -> dict[str, Tensor]:
    """Groups of rows with a common prompt and answers of several lengths, in mixed order, padded behind."""
    generator = torch.Generator().manual_seed(seed)

    def tokens(count: int) -> Tensor:
        return torch.randint(1, VOCABULARY, (count,), generator=generator)

    prompts = [tokens(length) for length in lengths]
    answers = [(p, tokens(int(torch.randint(2, 9, (), generator=generator)))) for _ in range(members) for p in prompts]
    width = max(len(p) + len(a) for p, a in answers)
    inputs = {
        "input_ids": torch.zeros(len(answers), width, dtype=torch.long),
        "attention_mask": torch.zeros(len(answers), width, dtype=torch.long),
        "action_mask": torch.zeros(len(answers), width, dtype=torch.bool),
    }
    for row, (prompt, answer) in enumerate(answers):
        end = len(prompt) + len(answer)
        inputs["input_ids"][row, :end] = torch.cat((prompt, answer))
        inputs["attention_mask"][row, :end] = 1
        inputs["action_mask"][row, len(prompt) : end] = True
    return inputs


@contextmanager
def tokens_read(model: Any) -> Iterator[list[int]]:
    """How many tokens each pass puts through the model."""
    counts: list[int] = []
    embedding = model.get_input_embeddings()
    hook = embedding.register_forward_pre_hook(lambda _, given: counts.append(given[0].numel()))
    yield counts
    hook.remove()


def values_and_gradients(policy: LanguagePolicy, inputs: Tensors) -> list[Tensor]:
    seen = policy.evaluate(inputs)
    loss = (seen.logp * (1 + seen.entropy.detach())).sum() - 0.3 * seen.entropy.sum()
    return [seen.logp.detach(), seen.entropy.detach(), *torch.autograd.grad(loss, policy.actor_parameters())]


@pytest.mark.parametrize("lengths", [(20, 20), (20, 14, 20), (3, 1, 30)], ids=["even", "ragged", "one token"])
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2-window", "qwen3", "gemma3", "phi", "gpt2"])
def test_shared_prompts_leave_values_and_gradients_as_they_are(family: str, lengths: tuple[int, ...]) -> None:
    model, inputs = make_model(family), groups(lengths)
    policy = LanguagePolicy(model)
    with tokens_read(model) as shared:
        ours = values_and_gradients(policy, inputs)
    policy._shares_prompts = False
    with tokens_read(model) as whole:
        theirs = values_and_gradients(policy, inputs)
    assert len(shared) == (1 if family in ("llama", "qwen3") else 2)  # together, or prompts first
    assert sum(shared) < 0.85 * sum(whole)
    for one, other in zip(ours, theirs, strict=True):
        assert (one - other).abs().max() <= 2e-4 * other.abs().max() + 1e-6


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_of_the_engine_can_share(family: str) -> None:
    assert can_share(make_model(family).base_model)


def test_a_model_that_cannot_take_prompts_from_elsewhere_reads_whole_rows() -> None:
    torch.manual_seed(0)
    model = BloomForCausalLM(BloomConfig(vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4)).eval()
    assert not can_share(model.base_model)
    inputs = groups()
    with tokens_read(model) as read:
        LanguagePolicy(model).evaluate(inputs)
    assert read[-1] == inputs["input_ids"][:, 1:].numel()


def test_token_0_in_front_makes_another_prompt() -> None:
    """Token 0 may begin a prompt, and padding is filled with it: neither may be taken for the other."""
    inputs = {name: torch.nn.functional.pad(tensor, (1, 0)) for name, tensor in groups((20,), members=8).items()}
    inputs["attention_mask"][::2, 0] = 1
    policy = LanguagePolicy(make_model("llama"))
    shared = share_prompts(lay_out(inputs))
    assert shared is not None
    assert len(shared.prompts) == 2
    ours = values_and_gradients(policy, inputs)
    policy._shares_prompts = False
    for one, other in zip(ours, values_and_gradients(policy, inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=2e-4, atol=2e-4)


def test_rows_that_have_little_in_common_are_not_cut() -> None:
    assert share_prompts(lay_out(groups((20, 20)))) is not None
    assert share_prompts(lay_out(groups((20, 20), members=1))) is None
    assert share_prompts(lay_out(groups((2, 2)))) is None


def test_a_row_without_actions_and_turns_in_the_middle_are_no_trouble() -> None:
    inputs = groups()
    inputs["action_mask"][1] = False
    inputs["action_mask"][3, 22:24] = False  # a tool's reply inside the answer
    policy = LanguagePolicy(make_model("llama"))
    ours = values_and_gradients(policy, inputs)
    policy._shares_prompts = False
    for one, other in zip(ours, values_and_gradients(policy, inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("learning", [True, False])
def test_layers_that_recompute_get_whole_rows(learning: bool) -> None:
    """Transformers takes no cache where it recomputes; where nothing is learned, nothing is recomputed."""
    model, inputs = make_model("llama"), groups()
    wanted = LanguagePolicy(model).evaluate(inputs).logp
    model.gradient_checkpointing_enable({"use_reentrant": False})
    policy = LanguagePolicy(model)
    with tokens_read(model) as read, torch.set_grad_enabled(learning):
        seen = policy.evaluate(inputs)
    whole = inputs["input_ids"][:, 1:].numel()
    assert sum(read) == whole if learning else sum(read) < 0.85 * whole
    torch.testing.assert_close(seen.logp, wanted, rtol=1e-4, atol=1e-4)


def adapted(family: str) -> Any:
    model = add_adapter(make_model(family), Lora(rank=4, alpha=8), seed=0)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_(0, 0.2, generator=generator)
    return model


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_the_model_below_an_adapter_shares_every_tensor(family: str) -> None:
    model = adapted(family)
    below = without_adapter(model)
    own = {p.data_ptr() for p in model.parameters()}
    assert all(p.data_ptr() in own for p in below.parameters())
    assert not any("lora" in name for name, _ in below.named_parameters())
    assert [p.requires_grad for p in model.parameters()].count(True) == sum(
        "lora" in n for n, _ in model.named_parameters()
    )
    ids = torch.arange(1, 12)[None]
    with torch.no_grad():
        assert torch.equal(below(ids).logits, make_model(family)(ids).logits)
        assert (below(ids).logits - model(ids).logits).abs().max() > 0.01


@pytest.mark.parametrize("copy_weights", [True, False])
def test_asking_the_reference_does_not_disturb_an_engine_at_work(copy_weights: bool) -> None:
    """The adapter is the policy's for as long as the engine samples, however often the reference is asked."""
    model, inputs, params = adapted("llama"), groups(members=2), SamplingParams(max_new_tokens=60)
    prompts = [(list(range(1, 6 + n)), n) for n in range(12)]
    wanted = Engine(model, eos=(), slots=4, copy_weights=copy_weights).generate(prompts, params)
    policy, reference = LanguagePolicy(model), LanguagePolicy(make_model("llama")).evaluate(inputs).logp.detach()
    done = threading.Event()
    wrong: list[float] = []

    def ask() -> None:
        while not done.is_set():
            wrong.append(float((policy.reference_logp(inputs) - reference).abs().max()))

    asking = threading.Thread(target=ask)
    with Engine(model, eos=(), slots=4, copy_weights=copy_weights).start() as engine:
        asking.start()
        futures = [engine.submit(ids, params, seed) for ids, seed in prompts]
        results = [future.result(timeout=600) for future in futures]
        done.set()
        asking.join()
    assert len(wrong) > 1
    assert max(wrong) < 1e-5
    for ours, theirs in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(ours.ids, theirs.ids)
        np.testing.assert_allclose(ours.logp, theirs.logp, atol=1e-5)


def test_rows_that_only_begin_alike_share_their_beginning() -> None:
    """A list of tools before questions that differ: it is read once, and the numbers stay."""
    inputs = groups(lengths=(24,) * 6, members=1)
    inputs["input_ids"][:, :18] = inputs["input_ids"][:1, :18]
    layout = lay_out(inputs)
    shared = share_prompts(layout)
    assert shared is not None
    assert shared.prompts.shape == (1, 18)
    assert shared.tokens < 0.6 * layout.ids.numel()
    model = make_model("llama")
    policy = LanguagePolicy(model)
    found = values_and_gradients(policy, inputs)
    policy._shares_prompts = False
    for one, other in zip(found, values_and_gradients(policy, inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
