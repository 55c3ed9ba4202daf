"""Tokens as they are made: stop strings, callbacks, cancellation, threads, asyncio."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from groupwise.errors import ContractError
from groupwise.language.engine import Engine, Sampled, SamplingParams
from groupwise.language.engine.request import StopStrings

from .conftest import VOCABULARY, make_model
from .test_engine import LONG, PROMPT, same

PATIENCE = 300.0  # seconds: only a hang takes so long, on a busy machine too
FOREVER = SamplingParams(max_new_tokens=10_000)


@pytest.fixture
def running(model: Any, tokenizer: Any) -> Iterator[Engine]:
    with Engine(model, tokenizer, eos=()).start() as engine:
        yield engine


def text_of(tokenizer: Any, ids: Any) -> str:
    text: str = tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)
    return text


def test_a_stop_string_split_over_tokens_is_found_where_it_ends(model: Any, tokenizer: Any) -> None:
    """Every piece of three characters of a free run is taken as a stop string in turn."""
    engine = Engine(model, tokenizer, eos=())
    free = engine.generate([(PROMPT, 4)], SamplingParams(max_new_tokens=30))[0]
    text = text_of(tokenizer, free.ids)
    ends = [len(text_of(tokenizer, free.ids[: i + 1])) for i in range(30)]
    for start in range(len(text) - 2):
        stop = text[start : start + 3]
        if "�" in stop:
            continue
        result = engine.generate([(PROMPT, 4)], SamplingParams(max_new_tokens=30, stop=("#never#", stop)))[0]
        expected = next(i for i, end in enumerate(ends) if end >= text.index(stop) + 3)
        assert result.ids.tolist() == free.ids[: expected + 1].tolist()
        assert result.end == "stop"


@pytest.mark.parametrize(
    ("pieces", "stop", "found"),
    [
        (["a", "b", "c"], "bc", True),
        (["ab", "cd"], "bc", True),  # in the middle of both tokens
        (["E", "N", "D"], "END", True),
        (["END"], "N", True),
        (["<0xC3>", "<0xA9>"], "é", True),  # one letter in two tokens
        (["<0xC3>"], "é", False),
        (["<0xC3>", "<0xA9>"] * 60, "é" * 60, True),  # twice as many tokens as letters
        (["a", *["<0xC3>", "<0xA9>"] * 59], "é" * 60, False),
        (["a", " ", "b"], "ab", False),
        (["a", "\n"], "\n", True),
        (["x", "y"], "yx", False),
    ],
)
def test_stop_strings_by_hand(tokenizer: Any, pieces: list[str], stop: str, found: bool) -> None:
    ids = np.array(tokenizer.convert_tokens_to_ids(pieces))
    finder = StopStrings([stop, "nothing of the kind"], tokenizer, VOCABULARY)
    assert finder.ends(ids) is found
    assert finder.ends(np.concatenate((np.full(200, 65), ids))) is found


def odd_tokenizer(pieces: list[str], special: str = "<|end|>") -> Any:
    """Drops the space a text begins with, as SentencePiece's tokenizers do, and has a special token."""
    backend = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate([*pieces, special])}, unk_token=pieces[0]))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("_", " "), decoders.Fuse(), decoders.Strip(content=" ", left=1, right=0)]
    )
    found = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=True)
    found.add_special_tokens({"eos_token": special})
    return found


@pytest.mark.parametrize(
    ("pieces", "stop", "found"),
    [
        (["a", "_b"], "a ", True),  # alone, the token has no space
        (["_b"], " b", False),  # and at the beginning of an answer none is printed
        (["_b"], "b", True),
        (["a", "<|end|>"], "<|end|>", True),
        (["a", "<|end|>"], "a<", True),
        (["<|end|>", "a"], "<|end|>b", False),
        (["a", "_.", "b"], "a.", False),  # spaces before punctuation are not tidied away
        (["a", "_."], "a .", True),
        (["a", "b", "."], "b.", True),
    ],
)
def test_stop_strings_are_compared_with_the_plain_text(pieces: list[str], stop: str, found: bool) -> None:
    tokenizer = odd_tokenizer(["a", "b", "_b", ".", "_."])
    finder = StopStrings([stop], tokenizer, len(tokenizer))
    for _ in range(2):  # the second time from the table
        assert finder.ends(np.array(tokenizer.convert_tokens_to_ids(pieces))) is found


@given(
    text=st.text("ab ", max_size=60), strings=st.lists(st.text("ab ", min_size=1, max_size=9), min_size=1, max_size=3)
)
def test_a_stop_string_is_found_at_the_first_character_that_completes_it(text: str, strings: list[str]) -> None:
    tokenizer = odd_tokenizer(["x", "a", "b", "_"])
    ids = np.array([tokenizer.convert_tokens_to_ids(character.replace(" ", "_")) for character in "x" + text])
    finder = StopStrings(strings, tokenizer, len(tokenizer))
    first = next((n for n in range(1, len(ids) + 1) if any(s in ("x" + text)[:n] for s in strings)), None)
    assert next((n for n in range(1, len(ids) + 1) if finder.ends(ids[:n])), None) == first


def test_every_token_is_streamed_in_order(model: Any) -> None:
    engine = Engine(model, eos=())
    seen: list[tuple[int, float]] = []
    future = engine.submit(PROMPT, SamplingParams(max_new_tokens=12), 0, on_token=lambda t, p: seen.append((t, p)))
    engine.run_until_idle()
    assert [t for t, _ in seen] == future.result().ids.tolist()
    np.testing.assert_array_equal(np.array([p for _, p in seen], np.float32), future.result().logp)


def test_a_request_is_watched_wherever_its_row_moves(model: Any, tokenizer: Any) -> None:
    """The short request in the first row ends, and the last moves into its place: stream and stop string go with it."""
    engine = Engine(model, tokenizer, eos=())
    params = SamplingParams(max_new_tokens=12)
    alone = engine.generate([(PROMPT, 3)], params)[0]
    stop = tokenizer.decode(alone.ids[7:8])
    seen: list[int] = []
    engine.submit(PROMPT, SamplingParams(max_new_tokens=2), 1)
    beside = engine.submit(PROMPT, params, 2)
    streamed = engine.submit(PROMPT, params, 3, on_token=lambda token, _: seen.append(token))
    engine.run_until_idle()
    assert seen == streamed.result().ids.tolist() == alone.ids.tolist()
    same(beside.result(), engine.generate([(PROMPT, 2)], params)[0])
    engine.submit(PROMPT, SamplingParams(max_new_tokens=2), 1)
    stopped = engine.submit(PROMPT, SamplingParams(max_new_tokens=12, stop=(stop,)), 3)
    engine.run_until_idle()
    assert (stopped.result().end, len(stopped.result()) <= 8) == ("stop", True)


def test_an_exception_in_a_callback_ends_only_its_request(model: Any) -> None:
    engine = Engine(model, eos=())

    def fail(token: int, logp: float) -> None:
        raise KeyError("no such listener")

    params = SamplingParams(max_new_tokens=8)
    bad = engine.submit(PROMPT, params, 0, on_token=fail)
    good = engine.submit(PROMPT, params, 1)
    engine.run_until_idle()
    with pytest.raises(KeyError, match="no such listener"):
        bad.result()
    same(good.result(), Engine(model, eos=()).generate([(PROMPT, 1)], params)[0])


def test_a_callback_that_fails_at_the_last_token_still_fails_its_request(model: Any) -> None:
    """Whatever else ends the request with that token."""
    free = Engine(model, eos=()).generate([(PROMPT, 0)], SamplingParams(max_new_tokens=3))[0]

    def fail_late(token: int, logp: float) -> None:
        seen.append(token)
        if len(seen) == 3:
            raise KeyError("late")

    for params in (
        SamplingParams(max_new_tokens=3),
        SamplingParams(max_new_tokens=9, stop_token_ids=(int(free.ids[2]),)),
    ):
        seen: list[int] = []
        engine = Engine(model, eos=())
        future = engine.submit(PROMPT, params, 0, on_token=fail_late)
        engine.run_until_idle()
        assert isinstance(future.exception(), KeyError)
        assert seen == free.ids.tolist()


def test_requests_of_one_session_at_once_are_each_as_alone(model: Any) -> None:
    """Only one of them can go on from the session's cache; which one does not matter."""
    engine, params = Engine(model, eos=(), slots=3), SamplingParams(max_new_tokens=5)
    ids = [PROMPT, PROMPT, LONG[:20], LONG[:15]]
    for seed in range(3):
        futures = [engine.submit(prompt, params, seed, session="s") for prompt in ids]
        engine.run_until_idle()
        for i, future in enumerate(futures):
            same(future.result(), Engine(model, eos=()).generate([(ids[i], seed)], params)[0])
            ids[i] = ids[i] + future.result().ids.tolist() + [i]


def test_a_step_says_whether_there_was_anything_to_do(model: Any) -> None:
    engine = Engine(model, eos=(), slots=1)
    assert not engine.step()
    first, second = (engine.submit(PROMPT, SamplingParams(max_new_tokens=3), seed) for seed in range(2))
    done = [(engine.step(), first.done(), second.done()) for _ in range(2)]
    assert done == [(True, False, False), (True, True, False)]
    engine.cancel(second)
    assert engine.step()
    assert (second.result().end, len(second.result())) == ("cancelled", 0)
    assert not engine.step()
    engine.cancel(second)  # long done: nothing happens
    assert not engine.step()


def test_a_cancelled_request_returns_what_it_has_and_frees_its_row(model: Any) -> None:
    engine = Engine(model, eos=(), slots=2)
    params = SamplingParams(max_new_tokens=20)
    running, beside, waiting, last = [engine.submit(LONG[: 9 + i], params, i) for i in range(4)]
    for _ in range(3):
        engine.step()
    engine.cancel(running)
    engine.cancel(waiting)
    engine.run_until_idle()
    assert (running.result().end, len(waiting.result())) == ("cancelled", 0)
    whole = Engine(model, eos=()).generate([(LONG[:9], 0), (LONG[:10], 1), (LONG[:12], 3)], params)
    made = len(running.result())
    assert 0 < made < 20
    assert running.result().ids.tolist() == whole[0].ids[:made].tolist()
    same(beside.result(), whole[1])
    same(last.result(), whole[2])


@pytest.mark.parametrize("gone", [(0,), (2,), (0, 1), (0, 3), (1, 2, 3), (3, 0, 2), (0, 1, 2, 3)])
@pytest.mark.parametrize("session", [False, True])
def test_any_rows_can_be_cancelled_at_once(model: Any, gone: tuple[int, ...], session: bool) -> None:
    """The others move together and go on; a session goes on from what its cancelled turn had read."""
    engine, params = Engine(model, eos=(), slots=5), SamplingParams(max_new_tokens=7)
    asked = [LONG[: 9 + i] for i in range(4)]
    futures = [engine.submit(ids, params, i, session=i if session else None) for i, ids in enumerate(asked)]
    engine.step()
    engine.step()
    for i in gone:
        engine.cancel(futures[i])
    engine.run_until_idle()
    alone = Engine(model, eos=()).generate(list(zip(asked, range(4), strict=True)), params)
    for i, future in enumerate(futures):
        result = future.result()
        assert result.end == ("cancelled" if i in gone else "length")
        assert result.ids.tolist() == alone[i].ids[: 3 if i in gone else 7].tolist()
    before, ids = engine.tokens_read, [*asked[gone[0]], *futures[gone[0]].result().ids.tolist(), 5]
    again = engine.submit(ids, params, 9, session=gone[0])
    engine.run_until_idle()
    same(again.result(), Engine(model, eos=()).generate([(ids, 9)], params)[0])
    assert engine.tokens_read - before == (2 if session else len(ids))


def test_cancelling_the_future_itself_frees_the_row(model: Any) -> None:
    engine = Engine(model, eos=(), slots=1)
    future = engine.submit(PROMPT, FOREVER, 0)
    engine.step()
    assert future.cancel()
    engine.step()
    assert engine._inside.idle
    assert len(engine.generate([(PROMPT, 1)], SamplingParams(max_new_tokens=3))[0]) == 3


def test_closing_ends_everything_and_takes_nothing_more(model: Any) -> None:
    for background in (False, True):
        engine = Engine(model, eos=(), slots=1)
        if background:
            engine.start()
        futures = [engine.submit(PROMPT, FOREVER, i) for i in range(3)]
        engine.step()
        engine.close()
        assert [future.result(timeout=PATIENCE).end for future in futures] == ["cancelled"] * 3
        with pytest.raises(ContractError, match="closed"):
            engine.submit(PROMPT, FOREVER, 0)
        engine.close()


def test_the_engine_can_be_closed_where_an_answer_arrives(model: Any) -> None:
    """On the engine's own thread, which cannot wait for itself."""
    engine = Engine(model, eos=(), slots=1).start()
    with engine.hold():
        first = engine.submit(PROMPT, SamplingParams(max_new_tokens=2), 0)
        others = [engine.submit(PROMPT, FOREVER, seed) for seed in range(3)]
        first.add_done_callback(lambda future: engine.close())
    assert [future.result(timeout=PATIENCE).end for future in others] == ["cancelled"] * 3
    assert first.result(timeout=PATIENCE).end == "length"
    with pytest.raises(ContractError, match="closed"):
        engine.submit(PROMPT, FOREVER, 0)


def test_a_broken_step_fails_its_requests_and_the_engine_lives(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine(model, eos=(), slots=2).start() as engine:
        with monkeypatch.context() as patch:
            patch.setattr(type(engine._inside.network), "prefill", _no_memory)
            futures = [engine.submit(PROMPT, FOREVER, i) for i in range(4)]
            for future in futures:
                with pytest.raises(RuntimeError, match="out of memory"):
                    future.result(timeout=PATIENCE)
        assert len(engine.generate([(PROMPT, 0)], SamplingParams(max_new_tokens=3))[0]) == 3


def _no_memory(*_: object) -> None:
    raise RuntimeError("out of memory")


def test_requests_from_many_threads_are_as_alone(running: Engine, model: Any) -> None:
    params = SamplingParams(max_new_tokens=15)

    def ask(seed: int) -> Sampled:
        return running.submit(LONG[: 1 + seed % 30], params, seed).result(timeout=PATIENCE)

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(ask, range(40)))
    alone = Engine(model, eos=()).generate([(LONG[: 1 + s % 30], s) for s in range(40)], params)
    for one, other in zip(results, alone, strict=True):
        same(one, other)


def test_conversations_in_asyncio_share_the_running_batch(running: Engine, model: Any) -> None:
    params = SamplingParams(max_new_tokens=5)

    async def talk(number: int) -> list[int]:
        ids = LONG[: 3 + number]
        for turn in range(3):
            result = await asyncio.wrap_future(running.submit(ids, params, turn, session=number))
            ids = ids + result.ids.tolist() + [turn]
        return ids

    async def everybody() -> list[list[int]]:
        return list(await asyncio.gather(*(talk(n) for n in range(6))))

    for number, ids in enumerate(asyncio.run(everybody())):
        expected = LONG[: 3 + number]
        for turn in range(3):
            expected = expected + Engine(model, eos=()).generate([(expected, turn)], params)[0].ids.tolist() + [turn]
        assert ids == expected


def test_cancelling_a_task_frees_its_row(model: Any) -> None:
    async def impatient(engine: Engine) -> Sampled:
        begun, loop = asyncio.Event(), asyncio.get_running_loop()
        endless = asyncio.wrap_future(
            engine.submit(PROMPT, FOREVER, 0, on_token=lambda token, logp: loop.call_soon_threadsafe(begun.set))
        )
        task = asyncio.ensure_future(asyncio.wait_for(endless, PATIENCE))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        future = engine.submit(PROMPT, SamplingParams(max_new_tokens=2), 1)
        return await asyncio.wait_for(asyncio.wrap_future(future), PATIENCE)

    slow = make_model("llama", max_position_embeddings=20_000)
    with Engine(slow, eos=(), slots=1).start() as engine:
        assert len(asyncio.run(impatient(engine))) == 2


def test_a_callback_may_submit_and_cancel(running: Engine) -> None:
    second: list[Future[Sampled]] = []
    first: list[Future[Sampled]] = []
    ready = threading.Event()

    def on_token(token: int, logp: float) -> None:
        ready.wait(PATIENCE)
        if not second:
            second.append(running.submit([token], SamplingParams(max_new_tokens=2), 0))
            running.cancel(first[0])

    first.append(running.submit(PROMPT, FOREVER, 0, on_token=on_token))
    ready.set()
    assert first[0].result(timeout=PATIENCE).end == "cancelled"
    assert len(second[0].result(timeout=PATIENCE)) == 2


def test_weights_change_only_between_steps() -> None:
    """A thread generates while another trains inside `hold`: every token is of one version or the other."""
    model = make_model("llama", max_position_embeddings=4096)
    with Engine(model, eos=(), slots=4).start() as engine:
        made: queue.Queue[int] = queue.Queue()
        params = SamplingParams(max_new_tokens=300)
        futures = [engine.submit(PROMPT, params, s, on_token=lambda token, logp: made.put(token)) for s in range(4)]
        for version in range(1, 6):
            for _ in range(20):  # a few tokens later
                made.get(timeout=PATIENCE)
            with engine.hold():
                for parameter in model.parameters():
                    parameter.data.mul_(1.01)
                engine.load(model, version)
        for future in futures:
            versions = future.result(timeout=PATIENCE).versions
            assert (np.diff(versions) >= 0).all()
    assert engine.version == 5
