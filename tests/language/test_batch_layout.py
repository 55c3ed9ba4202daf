"""Common prompts are read once, and nobody can tell from the numbers."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import BloomConfig, BloomForCausalLM

from groupwise.errors import ContractError
from groupwise.language.adapters import Lora, add_adapter, without_adapter
from groupwise.language.batch_layout import (
    BatchLayout,
    SharedPrompts,
    can_share,
    close_up,
    lay_out,
    reads_rightly,
    share_prompts,
)
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


def scattered(seed: int, rows: int = 4, width: int = 7) -> dict[str, Tensor]:
    """Rows with gaps anywhere, filled with a number that is not a token, and actions anywhere but first."""
    generator = torch.Generator().manual_seed(seed)
    there = torch.rand(rows, width, generator=generator) < (0.2, 0.5, 0.8)[seed % 3]
    ids = torch.randint(1, 50, (rows, width), generator=generator).masked_fill(~there, -100)
    first = there & (there.cumsum(1) == 1)
    action = (torch.rand(rows, width, generator=generator) < 0.6) & there & ~first
    return {"input_ids": ids, "attention_mask": there.long(), "action_mask": action.long()}


@pytest.mark.parametrize("seed", range(12))
def test_every_action_is_found_behind_the_tokens_before_it(seed: int) -> None:
    inputs = scattered(seed)
    layout = lay_out(inputs)
    wanted = []
    for row, there in enumerate(inputs["attention_mask"].tolist()):
        kept = [column for column, is_text in enumerate(there) if is_text]
        for place, column in enumerate(kept):
            if inputs["action_mask"][row, column]:
                tokens = inputs["input_ids"][row, kept].tolist()
                wanted.append((row, place - 1, tokens[place], column, tokens[:place]))
    found = [
        (row, before, token, column, layout.ids[row, : before + 1].tolist())
        for row, before, token, column in zip(
            layout.rows.tolist(), layout.before.tolist(), layout.tokens.tolist(), layout.columns.tolist(), strict=True
        )
    ]
    assert found == wanted
    assert layout.ids.shape == (4, max((place + 1 for _, place, *_ in wanted), default=1))
    assert layout.ids.min() >= 0, "padding becomes token 0, which every model has"
    numbers = torch.arange(1.0, len(wanted) + 1)
    spread = torch.zeros(4, 7)
    for number, (row, _, _, column, _) in zip(numbers, wanted, strict=True):
        spread[row, column] = number
    assert torch.equal(layout.spread(numbers), spread)


@pytest.mark.parametrize("seed", range(6))
def test_closed_rows_are_as_wide_as_the_longest(seed: int) -> None:
    inputs = scattered(seed)
    ids, columns = close_up(inputs["input_ids"], inputs["attention_mask"])
    lengths = inputs["attention_mask"].sum(1).tolist()
    assert ids.shape == columns.shape == (4, max(1, *lengths))
    for row, length in enumerate(lengths):
        kept = inputs["attention_mask"][row].nonzero()[:, 0]
        assert torch.equal(columns[row, :length], kept)
        assert torch.equal(ids[row, :length], inputs["input_ids"][row, kept])
        assert ids[row, length:].eq(0).all()
    assert close_up(torch.full((2, 3), -100), torch.zeros(2, 3))[0].tolist() == [[0], [0]]


def test_a_row_whose_first_token_is_an_action_is_named() -> None:
    ones = torch.ones(3, 4, dtype=torch.long)
    action = torch.tensor([[0, 1, 1, 1], [0, 0, 0, 1], [0, 1, 1, 0]])
    lay_out({"input_ids": ones, "attention_mask": ones, "action_mask": action})
    with pytest.raises(ContractError, match="row 2 begins with an action"):
        # Padding in front does not count.
        there = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 1], [0, 1, 1, 1]])
        lay_out({"input_ids": ones, "attention_mask": there, "action_mask": action})
    with pytest.raises(ContractError, match="marks padding"):
        there = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1]])
        lay_out({"input_ids": ones, "attention_mask": there, "action_mask": action})


def related(seed: int) -> BatchLayout:
    """Rows that continue a few prompts of several lengths, which may begin alike; some rows have no action."""
    generator = torch.Generator().manual_seed(seed)

    def number(most: int) -> int:
        return int(torch.randint(most, (), generator=generator))

    def tokens(count: int) -> list[int]:
        return torch.randint(0, 3, (count,), generator=generator).tolist()

    beginning = tokens(number(5))
    prompts = [[*beginning, *tokens(1 + number(5))] for _ in range(1 + number(3))]
    rows = [(prompts[number(len(prompts))], tokens(1 + number(4))) for _ in range(1 + number(6))]
    width = max(len(prompt) + len(answer) for prompt, answer in rows)
    ids, action = torch.zeros(len(rows), width, dtype=torch.long), torch.zeros(len(rows), width, dtype=torch.bool)
    for row, (prompt, answer) in enumerate(rows):
        ids[row, : len(prompt) + len(answer)] = torch.tensor([*prompt, *answer])
        action[row, len(prompt) : len(prompt) + len(answer)] = row == 0 or number(5) > 0
    return lay_out({"input_ids": ids, "attention_mask": torch.ones_like(ids), "action_mask": action})


def starts_and_lasts(layout: BatchLayout) -> tuple[list[int], list[int]]:
    """The places whose predictions are wanted first and last in each row."""
    places = [layout.before[layout.rows == row].tolist() or [0] for row in range(len(layout.ids))]
    return [min(p) for p in places], [max(p) for p in places]


def costs(layout: BatchLayout) -> tuple[float, float]:
    """The tokens to read with every distinct prompt once, and with the common beginning once; ∞ if there is none."""
    rows = layout.ids.tolist()
    starts, lasts = starts_and_lasts(layout)
    rest = max(last - start for start, last in zip(starts, lasts, strict=True)) + 1
    prompts = {tuple(row[:start]) for row, start in zip(rows, starts, strict=True)}
    common = 0
    while common < min(starts) and len({row[common] for row in rows}) == 1:
        common += 1
    apart = len(prompts) * max(starts) + len(rows) * rest if max(starts) else math.inf
    return apart, common + len(rows) * (layout.ids.shape[1] - common) if common else math.inf


@pytest.mark.parametrize("seed", range(40))
def test_shared_prompts_contain_every_token_before_an_action_and_cost_the_least(seed: int) -> None:
    layout = related(seed)
    cheapest = min(costs(layout))
    for most in (math.inf, cheapest):
        shared = share_prompts(layout, most)
        if cheapest == math.inf:
            assert shared is None
            return
        assert shared is not None
        assert shared.tokens == shared.prompts.numel() + shared.rests.numel() == cheapest
        place = shared.place()
        for row, before in zip(layout.rows.tolist(), layout.before.tolist(), strict=True):
            group, start = int(shared.group[row]), int(shared.start[row])
            assert place[group].tolist() == list(range(start - place.shape[1], start))
            prompt = shared.prompts[group, place[group] >= 0].tolist()
            rest = shared.rests[row, : before - start + 1].tolist()
            assert [*prompt, *rest] == layout.ids[row, : before + 1].tolist()
    assert share_prompts(layout, cheapest - 1) is None


@pytest.mark.parametrize(("prompt", "pays"), [(2, False), (3, True), (4, True)])
def test_sharing_pays_from_fifteen_in_a_hundred_tokens(prompt: int, pays: bool) -> None:
    """Two rows of ten with a common prompt, which is saved once: three of twenty are enough."""
    rows = torch.arange(2).repeat_interleave(10 - prompt)
    before = torch.arange(prompt, 10).repeat(2)
    ids = torch.arange(20).view(2, 10)
    ids[1, :prompt] = ids[0, :prompt]
    layout = BatchLayout(ids, rows, before, torch.zeros_like(rows), before + 1, (2, 11))
    assert (share_prompts(layout) is not None) == pays


def test_a_reader_of_prompts_is_tried_on_ragged_and_on_common_ones() -> None:
    decoder, tried = make_model("llama").base_model, []

    def rightly(shared: SharedPrompts) -> Tensor:
        tried.append(shared)
        return shared.hidden(decoder)

    assert reads_rightly(decoder, rightly)
    assert tried[0].group.bincount().tolist() in ([1, 2], [2, 1])
    assert (tried[0].place() < 0).any()
    assert reads_rightly(decoder.bfloat16(), lambda shared: shared.hidden(decoder))


def swapped(shared: SharedPrompts) -> SharedPrompts:
    return SharedPrompts(shared.prompts, shared.rests, 1 - shared.group, shared.start)


def moved(shared: SharedPrompts) -> SharedPrompts:
    return SharedPrompts(shared.prompts, shared.rests, shared.group, shared.start + 1)


@pytest.mark.parametrize(
    "read",
    [
        lambda decoder, shared: 1.01 * shared.hidden(decoder),
        lambda decoder, shared: decoder(input_ids=shared.rests).last_hidden_state,
        lambda decoder, shared: swapped(shared).hidden(decoder),
        lambda decoder, shared: moved(shared).hidden(decoder),
    ],
    ids=["a little off", "without prompts", "with others' prompts", "at other positions"],
)
def test_a_reader_that_gives_other_states_is_not_used(read: Callable[[Any, SharedPrompts], Tensor]) -> None:
    decoder = make_model("llama").base_model
    assert not reads_rightly(decoder, lambda shared: read(decoder, shared))


@pytest.mark.parametrize("error", [AttributeError, TypeError, ValueError, RuntimeError])
def test_a_reader_that_cannot_take_the_cache_is_not_used(error: type[Exception]) -> None:
    def fail(shared: SharedPrompts) -> Tensor:
        raise error("another kind of cache")

    assert not reads_rightly(make_model("llama").base_model, fail)


def test_a_common_beginning_ends_at_the_first_token_that_differs() -> None:
    inputs = groups(lengths=(24,) * 6, members=1)
    inputs["input_ids"][:, :18] = inputs["input_ids"][:1, :18]
    inputs["input_ids"][:, 5] = torch.arange(1, 7)
    shared = share_prompts(lay_out(inputs), math.inf)
    assert shared is not None
    assert shared.prompts.shape == (1, 5)
