"""The engine's promises: sharing, batching, sessions, fresh weights, ends."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.errors import ConfigError, ContractError
from groupwise.language.engine import Engine, Sampled, SamplingParams
from groupwise.language.engine import engine as engine_module

from .conftest import VOCABULARY, make_model
from .test_families import logp_error
from .test_model_batcher import own_model

LONG = np.random.default_rng(5).integers(0, VOCABULARY, 40).tolist()
PROMPT = LONG[:12]


def same(one: Sampled, other: Sampled) -> None:
    np.testing.assert_array_equal(one.ids, other.ids)
    np.testing.assert_allclose(one.logp, other.logp, atol=1e-5)
    assert one.end == other.end


def test_a_request_does_not_depend_on_its_company(model: Any) -> None:
    rng = np.random.default_rng(0)
    mixes = [
        SamplingParams(max_new_tokens=30),
        SamplingParams(max_new_tokens=9, temperature=0.5, top_k=7),
        SamplingParams(max_new_tokens=21, top_p=0.8, repetition_penalty=1.3),
        SamplingParams(max_new_tokens=14, temperature=0),
        SamplingParams(max_new_tokens=17, min_p=0.1, stop_token_ids=(3, 4, 5, 6)),
    ]
    requests = [(rng.integers(0, VOCABULARY, rng.integers(1, 30)).tolist(), mixes[i % 5], i) for i in range(25)]
    crowd = Engine(model, eos=(), slots=7)
    futures = [crowd.submit(*request) for request in requests]
    crowd.run_until_idle()
    for request, future in zip(requests, futures, strict=True):
        alone = Engine(model, eos=(), slots=1)
        single = alone.submit(*request)
        alone.run_until_idle()
        same(future.result(), single.result())


def test_equal_seeds_agree_and_different_seeds_differ(model: Any) -> None:
    engine = Engine(model, eos=())
    one, two, other = engine.generate([(PROMPT, 1), (PROMPT, 1), (PROMPT, 2)], SamplingParams(max_new_tokens=20))
    same(one, two)
    assert one.ids.tolist() != other.ids.tolist()


@pytest.mark.parametrize("slots", [64, 4])
def test_a_groups_prompt_is_read_once(model: Any, slots: int) -> None:
    """Also when the group is larger than the free rows and its members start at different times."""
    engine = Engine(model, eos=(), slots=slots)
    prompts = [LONG[:10], LONG[:15]]
    results = engine.generate([(p, s) for p in prompts for s in range(8)], SamplingParams(max_new_tokens=5))
    assert engine.tokens_read == 25
    for i, result in enumerate(results):
        assert logp_error(model, prompts[i // 8], result) < 1e-4
    assert not engine._inside.prompts.snapshots
    assert not engine._inside.prompts.waiting


def test_a_latecomer_shares_the_prompt_of_a_running_request(model: Any) -> None:
    engine = Engine(model, eos=())
    params = SamplingParams(max_new_tokens=9)
    first = engine.submit(PROMPT, params, 0)
    engine.step()
    late = [engine.submit(PROMPT, params, seed) for seed in (1, 2)]
    engine.run_until_idle()
    assert engine.tokens_read == len(PROMPT) + 1
    alone = [Engine(model, eos=()).generate([(PROMPT, seed)], params)[0] for seed in range(3)]
    for one, other in zip((first, *late), alone, strict=True):
        same(one.result(), other)


def test_a_prompt_nobody_waits_for_is_not_kept(model: Any) -> None:
    engine = Engine(model, eos=(), slots=1)
    futures = [engine.submit(PROMPT, SamplingParams(max_new_tokens=9), seed) for seed in range(3)]
    engine.step()
    assert len(engine._inside.prompts.snapshots) == 1
    for future in futures[1:]:
        engine.cancel(future)
    engine.run_until_idle()
    assert not engine._inside.prompts.snapshots


def test_a_session_reads_only_what_is_new(model: Any) -> None:
    params = SamplingParams(max_new_tokens=6)
    engine = Engine(model, eos=())
    ids = list(PROMPT)
    for turn in range(3):
        before = engine.tokens_read
        future = engine.submit(ids, params, turn, session="talk")
        engine.run_until_idle()
        scratch = Engine(model, eos=()).generate([(ids, turn)], params)[0]
        same(future.result(), scratch)
        assert engine.tokens_read - before == (len(PROMPT) if turn == 0 else 5)  # the last sampled, and 4 new
        ids = ids + future.result().ids.tolist() + LONG[turn : turn + 4]


def test_a_session_asked_the_same_again_answers_as_from_scratch(model: Any) -> None:
    """All tokens of the second prompt are in the cache; the last is still read again, for its logits."""
    params = SamplingParams(max_new_tokens=6)
    engine = Engine(model, eos=())
    for seed in range(2):
        future = engine.submit(PROMPT, params, seed, session="again")
        engine.run_until_idle()
        same(future.result(), Engine(model, eos=()).generate([(PROMPT, seed)], params)[0])


def test_a_session_whose_history_was_edited_starts_from_the_edit(model: Any) -> None:
    params = SamplingParams(max_new_tokens=4)
    engine = Engine(model, eos=())
    engine.submit(LONG[:20], params, 0, session=1)
    engine.run_until_idle()
    edited = [*LONG[:15], 1, 2, 3]
    future = engine.submit(edited, params, 1, session=1)
    engine.run_until_idle()
    assert engine.tokens_read == 20 + 3
    same(future.result(), Engine(model, eos=()).generate([(edited, 1)], params)[0])


def test_sessions_give_way_when_rows_run_out_and_stay_right(model: Any) -> None:
    """Many sessions of several turns on few rows: parked, moved, evicted, resumed, always as from scratch."""
    rng = np.random.default_rng(3)
    engine = Engine(model, eos=(), slots=5)
    histories = {s: rng.integers(0, VOCABULARY, 3 + s).tolist() for s in range(8)}
    for turn in range(6):
        chosen = rng.permutation(8)[: rng.integers(1, 8)].tolist()
        asked = {}
        for s in chosen:
            params = SamplingParams(max_new_tokens=int(rng.integers(1, 7)))
            asked[s] = (params, engine.submit(histories[s], params, turn, session=s))
        engine.run_until_idle()
        for s, (params, future) in asked.items():
            same(future.result(), Engine(model, eos=()).generate([(histories[s], turn)], params)[0])
            histories[s] += future.result().ids.tolist() + rng.integers(0, VOCABULARY, 2).tolist()
        rows = [p.row for p in engine._inside.sessions.parked.values()]
        assert len(rows) == len(set(rows)) <= 5


def test_the_least_recently_used_session_is_dropped(model: Any) -> None:
    engine = Engine(model, eos=(), slots=2)
    params = SamplingParams(max_new_tokens=2)
    for session in "abca":
        engine.submit(PROMPT, params, 0, session=session)
        engine.run_until_idle()
    assert list(engine._inside.sessions.parked) == ["c", "a"]


def optimiser_step(model: Any) -> None:
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.05)
    model(torch.tensor([LONG]), labels=torch.tensor([LONG])).loss.backward()
    optimiser.step()
    optimiser.zero_grad()


def scale_norms_and_projections(model: Any) -> None:
    """Only weights the engine keeps copies of."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(part in name for part in ("norm", "q_proj", "up_proj")):
                parameter.mul_(1.5)


def replace_parameters(model: Any) -> None:
    state = {name: value * 1.1 for name, value in model.state_dict().items()}
    model.load_state_dict(state, assign=True)


def write_through_data(model: Any) -> None:
    for parameter in model.parameters():
        parameter.data.mul_(1.2)


CHANGES = [optimiser_step, scale_norms_and_projections, replace_parameters]


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt2"])
@pytest.mark.parametrize("copy_weights", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_changed_weights_are_used_without_being_told(
    change: Callable[[Any], None], copy_weights: bool, family: str
) -> None:
    model = make_model(family)
    engine = Engine(model, eos=(), copy_weights=copy_weights)
    params = SamplingParams(max_new_tokens=8)
    engine.submit(PROMPT, params, 0, session="s")
    engine.run_until_idle()
    change(model)
    model.eval()
    future = engine.submit([*PROMPT, 1], params, 0, session="s")  # its session's cache is of the old weights
    engine.run_until_idle()
    assert logp_error(model, [*PROMPT, 1], future.result()) < 1e-4


@pytest.mark.parametrize("change", [*CHANGES, write_through_data])
def test_load_always_takes_up_the_live_weights(change: Callable[[Any], None]) -> None:
    model = make_model("qwen3")
    engine = Engine(model, eos=())
    engine.generate([(PROMPT, 0)], SamplingParams(max_new_tokens=3))
    change(model)
    model.eval()
    engine.load(model, 7)
    result = engine.generate([(PROMPT, 0)], SamplingParams(max_new_tokens=8))[0]
    assert logp_error(model, PROMPT, result) < 1e-4
    assert result.version == 7


def test_running_requests_go_on_with_new_weights() -> None:
    old, new = make_model("llama", seed=1), make_model("llama", seed=2)
    engine = Engine(old, eos=())
    futures = [engine.submit(LONG[: 10 + i], SamplingParams(max_new_tokens=10), i) for i in range(3)]
    for _ in range(4):
        engine.step()
    engine.load(new.state_dict(), 1)
    engine.run_until_idle()
    for i, future in enumerate(futures):
        result = future.result()
        made = int((result.versions == 0).sum())
        assert result.versions.tolist() == [0] * made + [1] * (10 - made)
        assert result.version == 0
        assert 0 < made < 10
        rest = Sampled(result.ids[made:], result.logp[made:], result.versions[made:], 1, result.end)
        assert logp_error(new, LONG[: 10 + i] + result.ids[:made].tolist(), rest) < 1e-4


def test_versions_move_with_their_request() -> None:
    """The first row ends, and the second, which began under newer weights, takes its place."""
    model = make_model("llama")
    engine = Engine(model, eos=())
    engine.load(model, 5)
    short = engine.submit(PROMPT, SamplingParams(max_new_tokens=6), 0)
    engine.step()
    engine.load(model, 6)
    late = engine.submit(LONG, SamplingParams(max_new_tokens=9), 1)
    for _ in range(5):
        engine.step()
    engine.load(model, 9)
    engine.run_until_idle()
    assert short.result().versions.tolist() == [5, 5, 6, 6, 6, 6]
    assert late.result().versions.tolist() == [6] * 6 + [9] * 3
    assert (short.result().version, late.result().version) == (5, 6)
    waiting = engine.submit(PROMPT, SamplingParams(), 0)
    engine.cancel(waiting)
    engine.run_until_idle()
    assert (waiting.result().version, waiting.result().end) == (9, "cancelled")


@pytest.mark.parametrize("family", ["llama", "experts"])
def test_members_that_waited_while_weights_changed_use_the_new_ones(family: str) -> None:
    """What was read of their common prompt is of the old weights; in a change without notice, too."""
    for announced in (True, False):
        model = make_model(family) if family == "llama" else own_model(family)
        engine, params = Engine(model, eos=(), slots=1), SamplingParams(max_new_tokens=3)
        futures = [engine.submit(PROMPT, params, seed) for seed in range(3)]
        while not futures[0].done():
            engine.step()
        scale_norms_and_projections(model)
        if announced:
            engine.load(model, 1)
        engine.run_until_idle()
        for future in futures[1:]:
            assert logp_error(model, PROMPT, future.result()) < 1e-4
            assert future.result().version == int(announced)


def test_weights_that_change_under_a_running_request_are_noticed() -> None:
    model = make_model("llama")
    engine = Engine(model, eos=())
    future = engine.submit(PROMPT, SamplingParams(max_new_tokens=10), 0)
    for _ in range(4):
        engine.step()
    made = int(engine._inside.rows.made[0])
    scale_norms_and_projections(model)
    engine.run_until_idle()
    result = future.result()
    rest = Sampled(result.ids[made:], result.logp[made:], result.versions[made:], 0, result.end)
    assert logp_error(model, PROMPT + result.ids[:made].tolist(), rest) < 1e-4


def test_another_module_can_be_loaded_and_a_misfit_is_refused() -> None:
    engine = Engine(make_model("llama", seed=1), eos=())
    other = make_model("llama", seed=2)
    engine.load(other, 3)
    assert logp_error(other, PROMPT, engine.generate([(PROMPT, 0)], SamplingParams(max_new_tokens=5))[0]) < 1e-4
    with pytest.raises(ContractError, match="cannot load qwen3"):
        engine.load(make_model("qwen3"), 4)
    with pytest.raises(ContractError, match="cannot load an unknown model family"):
        engine.load(own_model("experts"), 4)
    with pytest.raises(ContractError, match="this engine was built for llama .*'layers': 3.* cannot load llama .*2"):
        engine.load(make_model("llama", num_hidden_layers=2), 4)
    assert engine.version == 3
    assert engine.model is other, "the model it had is the one that later weights are copied into"
    third = make_model("llama", seed=3)
    engine.load(third.state_dict(), 4)
    assert logp_error(third, PROMPT, engine.generate([(PROMPT, 0)], SamplingParams(max_new_tokens=5))[0]) < 1e-4


def test_another_module_brings_its_own_rotary_table() -> None:
    """The same sizes, other angles."""
    engine = Engine(make_model("llama"), eos=())
    engine.generate([(LONG, 0)], SamplingParams(max_new_tokens=3))
    other = make_model("llama-scaled-rope", tie_word_embeddings=False)
    engine.load(other, 1)
    assert logp_error(other, LONG, engine.generate([(LONG, 0)], SamplingParams(max_new_tokens=9))[0]) < 1e-4


def test_the_end_says_why(model: Any) -> None:
    engine = Engine(model, eos=(), max_length=20)
    length, context = (engine.generate([(PROMPT, 0)], SamplingParams(max_new_tokens=n))[0] for n in (8, 9))
    assert (length.end, len(length)) == ("length", 8)
    assert (context.end, len(context)) == ("context", 8)
    token = int(length.ids[3])
    stopped = engine.generate([(PROMPT, 0)], SamplingParams(max_new_tokens=8, stop_token_ids=(token,)))[0]
    first = length.ids.tolist().index(token)
    assert (stopped.end, stopped.ids.tolist()) == ("stop", length.ids[: first + 1].tolist())
    eos = Engine(model, eos=(token,)).generate([(PROMPT, 0)], SamplingParams(max_new_tokens=8))[0]
    same(eos, stopped)


@pytest.mark.parametrize(("new", "room", "full"), [(5, 9, "length"), (9, 5, "context")])
def test_a_stop_at_the_last_token_is_a_stop(model: Any, tokenizer: Any, new: int, room: int, full: str) -> None:
    engine, params = Engine(model, tokenizer, eos=(), max_length=len(PROMPT) + room), {"max_new_tokens": new}
    free = engine.generate([(PROMPT, 2)], SamplingParams(**params))[0]
    assert (free.end, len(free)) == (full, 5)
    last = int(free.ids[-1])
    assert last not in free.ids[:-1]
    for stop in ({"stop_token_ids": (last,)}, {"stop": (tokenizer.decode(free.ids[-2:]),)}):
        stopped = engine.generate([(PROMPT, 2)], SamplingParams(**params, **stop))[0]  # type: ignore[arg-type]
        assert (stopped.end, stopped.ids.tolist()) == ("stop", free.ids.tolist())
    first = int(free.ids[0])
    once = engine.generate([(PROMPT, 2)], SamplingParams(**params, stop_token_ids=(first,)))[0]
    assert (once.end, once.ids.tolist()) == ("stop", [first])


def test_a_prompt_may_leave_room_for_one_token(model: Any) -> None:
    engine = Engine(model, eos=(), max_length=len(PROMPT) + 1)
    for new, end in ((1, "length"), (2, "context")):
        result = engine.generate([(PROMPT, 0)], SamplingParams(max_new_tokens=new))[0]
        assert (len(result), result.end) == (1, end)


def test_every_request_has_stop_tokens_of_its_own(model: Any) -> None:
    """More sets of them than are kept, one after the other and beside a request that runs all the while."""
    engine = Engine(model, eos=(), slots=2)
    free = Engine(model, eos=()).generate([(PROMPT, 1)], SamplingParams(max_new_tokens=220))[0].ids.tolist()
    late = max(free, key=free.index)
    assert free.index(late) > VOCABULARY + 1
    for beside in (False, True):
        if beside:
            long = engine.submit(PROMPT, SamplingParams(max_new_tokens=220, stop_token_ids=(late,)), 1)
        for token in (*range(VOCABULARY), free[0]):
            params = SamplingParams(max_new_tokens=1, stop_token_ids=(token, VOCABULARY, 10 * VOCABULARY))
            future = engine.submit(PROMPT, params, 1)
            engine.step()
            assert future.result().end == ("stop" if token == free[0] else "length")
    assert not long.done()
    engine.run_until_idle()
    assert (long.result().end, long.result().ids.tolist()) == ("stop", free[: free.index(late) + 1])


def test_the_models_end_of_text_token_ends_a_request() -> None:
    model = make_model("llama")
    model.generation_config.eos_token_id = [5, 6]
    ends = Engine(model).generate([(PROMPT, s) for s in range(20)], SamplingParams(max_new_tokens=60))
    assert {int(r.ids[-1]) for r in ends if r.end == "stop"} == {5, 6}
    assert all(not {5, 6} & set(r.ids[:-1].tolist()) for r in ends)


def test_the_tokens_of_an_answer_are_drawn_independently() -> None:
    """All tokens are equally likely to this model, so only the random numbers choose."""
    model = make_model("llama")
    with torch.no_grad():
        model.lm_head.weight.zero_()
    results = Engine(model, eos=()).generate([(PROMPT, seed) for seed in range(4)], SamplingParams(max_new_tokens=60))
    assert all(len(set(result.ids.tolist())) > 30 for result in results)
    assert len({token for result in results for token in result.ids.tolist()}) > VOCABULARY * 0.8


def test_the_tokenizers_end_token_ends_a_request_beside_the_models() -> None:
    """Chat models often name <|endoftext|> in their configuration and end turns with <|im_end|>."""
    model = make_model("llama")
    model.generation_config.eos_token_id = 5
    engine = Engine(model, SimpleNamespace(eos_token_id=6))
    ends = engine.generate([(PROMPT, s) for s in range(20)], SamplingParams(max_new_tokens=60))
    assert {int(r.ids[-1]) for r in ends if r.end == "stop"} == {5, 6}


def test_long_results_and_caches_grow_as_needed(model: Any) -> None:
    engine = Engine(model, eos=())
    result = engine.generate([(LONG, 0), (PROMPT, 1)], SamplingParams(max_new_tokens=500))
    assert [(r.end, len(r)) for r in result] == [("context", 256 - 40), ("context", 256 - 12)]
    assert logp_error(model, PROMPT, result[1]) < 1e-4


def test_a_prompt_longer_than_the_cache_joins_rows_that_run() -> None:
    """The cache starts with room for 128 positions and grows under the rows that are in it."""
    model = make_model("llama", max_position_embeddings=1024)
    long = np.random.default_rng(8).integers(0, VOCABULARY, 700).tolist()
    engine, params = Engine(model, eos=(), slots=4), SamplingParams(max_new_tokens=40)
    first = engine.submit(PROMPT, params, 0)
    for _ in range(5):
        engine.step()
    late = [engine.submit(long, params, seed) for seed in (1, 2)]
    engine.run_until_idle()
    for prompt, seed, future in ((PROMPT, 0, first), (long, 1, late[0]), (long, 2, late[1])):
        assert logp_error(model, prompt, future.result()) < 1e-4
        same(future.result(), Engine(model, eos=()).generate([(prompt, seed)], params)[0])


def test_the_context_ends_in_the_middle_of_a_turn(model: Any) -> None:
    """One row of several, and a session's later turn: both keep what they have, and neighbours go on."""
    engine = Engine(model, eos=(), max_length=50)
    params = SamplingParams(max_new_tokens=30)
    near, far = engine.generate([(LONG, 0), (PROMPT, 1)], params)
    assert [(r.end, len(r)) for r in (near, far)] == [("context", 10), ("length", 30)]
    turn = engine.submit(PROMPT, params, 2, session="s")
    engine.run_until_idle()
    ids = PROMPT + turn.result().ids.tolist()
    last = engine.submit(ids, params, 3, session="s")
    engine.run_until_idle()
    assert (last.result().end, len(last.result())) == ("context", 8)
    assert logp_error(model, ids, last.result()) < 1e-4


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "at least 1 token"),
        ([[1, 2]], "list of at least 1 token"),
        (LONG[:20], "20 tokens, but max_length is 20"),
        ([1, VOCABULARY], f"token {VOCABULARY} is not in the model's vocabulary of {VOCABULARY}"),
        ([-1], "token -1"),
    ],
)
def test_impossible_prompts_are_refused(model: Any, ids: list[Any], message: str) -> None:
    engine = Engine(model, max_length=20)
    with pytest.raises(ValueError, match=message):
        engine.submit(ids, SamplingParams(), 0)
    assert not engine.step()


def test_impossible_engines_are_refused(model: Any) -> None:
    with pytest.raises(ConfigError, match="slots is 0"):
        Engine(model, slots=0)
    with pytest.raises(ConfigError, match="max_length is 1000; it must be between 2 and 256"):
        Engine(model, max_length=1000)
    with pytest.raises(ContractError, match="need a tokenizer"):
        Engine(model).submit(PROMPT, SamplingParams(stop=("x",)), 0)


@pytest.mark.parametrize(
    ("of_model", "of_tokenizer", "given", "ends", "expected"),
    [
        (None, None, None, (), set()),
        (5, None, None, (), {5}),
        (0, 0, None, (), {0}),
        ([5, 0], 6, None, (7,), {5, 0, 6, 7}),
        ((5, 8), None, None, (), {5, 8}),
        (5, 6, (), (), set()),
        (5, 6, (), (7, 8), {7, 8}),
        (5, 6, (9,), (7,), {9, 7}),
        (None, 6, None, (), {6}),
    ],
)
def test_what_ends_every_request(
    of_model: Any, of_tokenizer: int | None, given: tuple[int, ...] | None, ends: tuple[int, ...], expected: set[int]
) -> None:
    model = make_model("llama")
    model.generation_config.eos_token_id = of_model
    engine = Engine(model, SimpleNamespace(eos_token_id=of_tokenizer), eos=given, ends=ends)
    assert engine._inside.eos == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_are_copied_up_to_a_size_unless_told(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine_module.COPY_BYTES == 2 * 1024**3
    model = make_model("llama").to(dtype)
    size = sum(parameter.numel() for parameter in model.parameters()) * (4 if dtype == torch.float32 else 2)
    for limit, copied in ((size - 1, False), (size, True), (size + 1, True)):
        monkeypatch.setattr(engine_module, "COPY_BYTES", limit)
        inside: list[Any] = [Engine(model, copy_weights=wanted)._inside for wanted in (None, True, False)]
        assert [batcher.copy for batcher in inside] == [copied, True, False]


@pytest.mark.parametrize("family", ["llama", "experts"])
def test_a_row_that_is_not_finite_fails_alone(family: str) -> None:
    """A token whose embedding is NaN: the requests that read it fail, those beside and after them do not."""
    model = make_model("llama") if family == "llama" else own_model(family)
    params, poison = SamplingParams(max_new_tokens=6), 3
    with torch.no_grad():
        model.get_input_embeddings().weight[poison] = float("nan")
        model.lm_head.weight[poison] = 0.0
    clean = [token for token in LONG if token != poison]
    asked = [clean[:9], [*clean[:20], poison], clean[:5], [poison], clean[:12]]
    engine = Engine(model, eos=(), slots=4)
    seen: list[int] = []
    futures = [engine.submit(ids, params, 1, on_token=lambda t, _: seen.append(t)) for ids in asked for _ in range(2)]
    engine.run_until_idle()
    for i, future in enumerate(futures):
        if poison in asked[i // 2]:
            with pytest.raises(ContractError, match=r"not finite \(weights of version 0\)"):
                future.result()
        elif poison not in future.result().ids:
            assert len(future.result()) == 6
            assert logp_error(model, asked[i // 2], future.result()) < 1e-4
    assert seen, "only finite tokens are passed on"


@pytest.mark.parametrize("family", ["llama", "experts"])
def test_a_step_that_breaks_keeps_what_had_ended_and_leaves_nothing_behind(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model("llama") if family == "llama" else own_model(family)
    engine, params = Engine(model, eos=(), slots=3), SamplingParams(max_new_tokens=4)
    engine.submit(PROMPT, params, 0, session="talk")
    engine.run_until_idle()
    lengths = (9, 1, 9, 9, 9)
    futures = [engine.submit(PROMPT, SamplingParams(max_new_tokens=n), seed) for seed, n in enumerate(lengths)]
    with monkeypatch.context() as patch:
        patch.setattr(engine._inside, "_next_logits", lambda: 1 / 0)
        assert engine.step()
    # The second had its only token before the step broke; the others, running or waiting, fail.
    assert (len(futures[1].result()), futures[1].result().end) == (1, "length")
    assert [type(f.exception()) for i, f in enumerate(futures) if i != 1] == [ZeroDivisionError] * 4
    assert not engine.step()
    before = engine.tokens_read
    again = engine.submit([*PROMPT, 1], params, 5, session="talk")
    engine.run_until_idle()
    assert engine.tokens_read - before == len(PROMPT) + 1
    same(again.result(), Engine(model, eos=()).generate([([*PROMPT, 1], 5)], params)[0])


def test_diverged_weights_are_reported_and_leave_no_trace() -> None:
    model = make_model("llama")
    engine = Engine(model, eos=())
    good = engine.generate([(PROMPT, 0)], SamplingParams(max_new_tokens=5))[0]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight.fill_(float("nan"))
    with pytest.raises(ContractError, match="not finite"):
        engine.generate([(LONG, 0)], SamplingParams(max_new_tokens=5))
    engine.load(state, 1)
    same(engine.generate([(PROMPT, 0), (LONG, 0)], SamplingParams(max_new_tokens=5))[0], good)


def random_params(rng: np.random.Generator) -> SamplingParams:
    rules: list[dict[str, Any]] = [
        {}, {"temperature": 0.0}, {"repetition_penalty": 1.7}, {"top_k": 5, "temperature": 0.7},
        {"stop_token_ids": tuple(range(0, VOCABULARY, 9))}, {"repetition_penalty": 0.6, "top_p": 0.7}, {"min_p": 0.05},
    ]  # fmt: skip
    return SamplingParams(max_new_tokens=int(rng.integers(1, 12)), **rules[rng.integers(len(rules))])


@pytest.mark.parametrize(("family", "slots"), [("llama", 3), ("llama", 6), ("experts", 4)])
def test_whatever_happens_around_a_request_it_gets_what_it_would_get_alone(family: str, slots: int) -> None:
    """Requests with and without sessions, with shared and own prompts, come, end, fail and are cancelled at random."""
    model = make_model("llama") if family == "llama" else own_model(family)
    rng = np.random.default_rng(slots)
    engine, alone = Engine(model, eos=(), slots=slots), Engine(model, eos=(), slots=1)
    shared = [LONG[:5], LONG[:9], LONG[3:20]]
    histories: dict[int, list[int]] = {}
    made: list[tuple[Any, Any, list[tuple[int, float]], bool]] = []
    busy: set[int] = set()
    for number in range(45):
        session = int(rng.integers(6)) if rng.random() < 0.5 else None
        if session is None or session in busy:
            session, ids = None, shared[rng.integers(3)]
        else:
            ids = histories.setdefault(session, rng.integers(0, VOCABULARY, 4).tolist())
        params, streamed = random_params(rng), list[tuple[int, float]]()
        fails = rng.random() < 0.1

        def watch(token: int, logp: float, seen: list[Any] = streamed, fails: bool = fails) -> None:
            seen.append((token, logp))
            assert not (fails and len(seen) == 2)

        asked = (list(ids), params, number)
        future = engine.submit(*asked, session, watch)
        made.append((asked, future, streamed, fails))
        if session is not None:
            busy.add(session)
            heard = rng.integers(0, 9, 2).tolist()

            def go_on(done: Any, session: int = session, more: list[int] = heard) -> None:
                busy.discard(session)
                said = [] if done.exception() else done.result().ids.tolist()
                histories[session] = [*histories[session], *said, *more][:80]

            future.add_done_callback(go_on)
        for _ in range(rng.integers(0, 6)):
            engine.step()
        if rng.random() < 0.25:
            engine.cancel(made[rng.integers(len(made))][1])
    engine.run_until_idle()
    ends = set()
    for asked, future, streamed, fails in made:
        wanted = alone.generate([(asked[0], asked[2])], asked[1])[0]
        if future.exception():
            assert fails
            assert len(streamed) == 2
            continue
        found = future.result()
        ends.add(found.end)
        if found.end != "cancelled":
            same(found, wanted)
        np.testing.assert_array_equal(found.ids, wanted.ids[: len(found)])
        np.testing.assert_allclose(found.logp, wanted.logp[: len(found)], atol=1e-5)
        assert [token for token, _ in streamed] == found.ids.tolist()
        np.testing.assert_array_equal(np.array([logp for _, logp in streamed], np.float32), found.logp)
    assert ends == {"stop", "length", "cancelled"}


def test_a_session_whose_turn_was_cancelled_goes_on_from_there_and_one_that_failed_starts_over(model: Any) -> None:
    params = SamplingParams(max_new_tokens=9)
    for fails, new in ((False, 3), (True, len(PROMPT) + 6)):
        engine = Engine(model, eos=())

        def watch(token: int, logp: float, engine: Engine = engine, fails: bool = fails) -> None:
            if fails and engine._inside.rows.made[0] == 4:
                raise KeyError("watch")

        first = engine.submit(PROMPT, params, 0, "s", watch)
        for _ in range(3):
            engine.step()
        if fails:
            assert isinstance(first.exception(), KeyError)
            said = Engine(model, eos=()).generate([(PROMPT, 0)], params)[0].ids[:4].tolist()
        else:
            engine.cancel(first)
            engine.run_until_idle()
            said = first.result().ids.tolist()
        assert len(said) == 4
        before, ids = engine.tokens_read, [*PROMPT, *said, 1, 2]
        second = engine.submit(ids, params, 1, "s")
        engine.run_until_idle()
        same(second.result(), Engine(model, eos=()).generate([(ids, 1)], params)[0])
        assert engine.tokens_read - before == new
