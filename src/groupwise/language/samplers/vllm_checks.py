"""Is it the same model? What is compared with a server before its first token is used.

The tokenizers read the same text; the server's log-probabilities of a prompt are the model's; and those of sampled
tokens mean the same as our engine's: log softmax(logits / temperature), before anything is truncated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from groupwise.errors import ConfigError, ContractError
from groupwise.language.engine.request import SamplingParams
from groupwise.language.loading import LanguageModel
from groupwise.language.samplers.vllm_server import Answer, Refused, VllmServer

TEXT = "The quick brown fox jumps over the lazy dog. 12 + 30 = 42; naïve, 3 €\n\tdef f(x): return x"
SPREAD = 192  # tokens of the whole vocabulary that the text for the tokenizers contains besides
PROMPT, DRAWN = 48, 16  # tokens compared
# Mean difference of log-probabilities in nats. Half precision gives about 0.03; other weights give 0.5 and more.
OTHER_WEIGHTS = 0.2
TRUNCATED = 0.03
# How far new weights must have moved the test text before a server without them can be told from noise.
MOVED = 0.1


def insist_on_tokenizer(server: VllmServer, model: str, tokenizer: Any) -> None:
    """Refuse a server whose tokenizer reads a text otherwise than ours."""
    text = probe_text(tokenizer)
    ours = [int(token) for token in tokenizer.encode(text, add_special_tokens=False)]
    try:
        theirs = server.tokens_of(model, text)
    except Refused:
        # A server without a tokenizer: token ids are all that travels, and the model is compared by them.
        return
    if theirs == ours:
        return
    place = next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    raise ConfigError(
        f"the server at {server.url} has another tokenizer: token {place} of a test text is "
        f"{theirs[place : place + 1] or 'missing'} there and {ours[place : place + 1] or 'missing'} here",
        hint=f"It serves {model!r}. Start it with the run's own model: `groupwise sampler start MODEL`.",
        field="vllm.servers",
    )


def probe_text(tokenizer: Any) -> str:
    """Text that uses tokens from all over the vocabulary."""
    size = len(tokenizer)
    special = set(tokenizer.all_special_ids)
    ids = [token for token in range(0, size, max(1, size // SPREAD)) if token not in special]
    pieces = [tokenizer.decode([token]) for token in ids]
    return TEXT + "".join(piece for piece in pieces if piece.isprintable() and "�" not in piece)


def insist_on_model(
    server: VllmServer, body: Mapping[str, Any], language: LanguageModel, params: SamplingParams
) -> None:
    """Refuse a server with other weights, or whose log-probabilities mean something else. `body` is a request's."""
    prompt = probe_prompt(language)
    theirs, answer = _asked(server, body, prompt, DRAWN)
    ids = np.concatenate([np.array(prompt, np.int64), answer.ids])
    raw, scaled = (_logp_of(language.model, ids, t) for t in (1.0, params.temperature or 1.0))
    before = len(prompt) - 1
    gap = float(np.abs(theirs - raw[:before]).mean())
    if gap > OTHER_WEIGHTS:
        raise ConfigError(
            f"the server at {server.url} serves another model: its log-probabilities of a test text differ by "
            f"{gap:.2f} nats on average, and {OTHER_WEIGHTS} is allowed",
            hint="Start it with the run's own model: `groupwise sampler start MODEL`.",
            field="vllm.servers",
        )
    _insist_on_meaning(server, answer.logp, raw[before:], scaled[before:], params)


def insist_on_news(
    server: VllmServer, body: Mapping[str, Any], prompt: list[int], old: NDArray[np.float32], new: NDArray[np.float32]
) -> None:
    """Refuse a server that was given new weights but still samples with the old ones.

    `old` and `new` are the model's log-probabilities of the prompt before and after. Where they hardly differ, neither
    does what is sampled.
    """
    moved = float(np.abs(new - old).mean())
    theirs, _ = _asked(server, body, prompt, 1)
    gap = float(np.abs(theirs - new).mean())
    if gap > OTHER_WEIGHTS or (moved > MOVED and gap > moved / 2):
        raise ContractError(
            f"the server at {server.url} did not take the new weights: its log-probabilities of a test text differ "
            f"from theirs by {gap:.3f} nats on average, those of the weights before by {moved:.3f}",
            hint="Start it with `groupwise sampler start`, or train an adapter (language.lora_rank).",
        )


def probe_prompt(language: LanguageModel) -> list[int]:
    """The tokens whose log-probabilities are compared."""
    return [int(token) for token in language.tokenizer.encode(TEXT, add_special_tokens=False)][:PROMPT]


def prompt_logp(language: LanguageModel, prompt: list[int]) -> NDArray[np.float32]:
    """The model's own log-probabilities of all tokens of the prompt but the first."""
    return _logp_of(language.model, np.array(prompt, np.int64), 1.0)


def _asked(
    server: VllmServer, body: Mapping[str, Any], prompt: list[int], drawn: int
) -> tuple[NDArray[np.float32], Answer]:
    """The server's log-probabilities of a prompt, and its continuation."""
    sampling = {**body["sampling_params"], "max_tokens": drawn, "prompt_logprobs": 0, "stop_token_ids": []}
    answer, said = server.generate({**body, "token_ids": prompt, "sampling_params": sampling})
    return _of_prompt(server, said, prompt), answer


def _insist_on_meaning(
    server: VllmServer, given: NDArray[np.float32], raw: NDArray[np.float32], scaled: NDArray[np.float32],
    params: SamplingParams,
) -> None:  # fmt: skip
    if params.temperature not in (0.0, 1.0) and np.abs(given - raw).mean() < np.abs(given - scaled).mean():
        raise ConfigError(
            f"the server at {server.url} gives log-probabilities from before the temperature, and "
            f"sampling.temperature = {params.temperature}",
            hint="Start it with --logprobs-mode processed_logprobs (`groupwise sampler start` does), or set "
            "sampling.temperature = 1.",
            field="sampling.temperature",
        )
    truncates = params.top_k or params.top_p < 1 or params.min_p or params.repetition_penalty != 1
    if truncates and float((given - scaled).mean()) > TRUNCATED:
        raise ConfigError(
            f"the server at {server.url} gives log-probabilities from after top_k, top_p, min_p and the repetition "
            "penalty",
            hint="Switch these off, or start it with --logprobs-mode raw_logprobs and set sampling.temperature = 1.",
            field="sampling",
        )


def _of_prompt(server: VllmServer, said: Mapping[str, Any], prompt: list[int]) -> NDArray[np.float32]:
    """The server's log-probabilities of all tokens of the prompt but the first."""
    try:
        rows = said["prompt_logprobs"][1:]
        found = [row[str(token)]["logprob"] for row, token in zip(rows, prompt[1:], strict=True)]
    except (LookupError, TypeError, ValueError) as error:
        message = f"the server at {server.url} gives no log-probabilities of a prompt"
        raise ContractError(message, hint="They are needed to see whether it serves the run's model.") from error
    return np.array(found, np.float32)


@torch.no_grad()
def _logp_of(model: Any, ids: NDArray[np.int64], temperature: float) -> NDArray[np.float32]:
    """The model's own log-probabilities of all tokens but the first."""
    device = next(model.parameters()).device
    tokens = torch.from_numpy(ids)[None].to(device)
    logits = model(input_ids=tokens, use_cache=False).logits[0, :-1].float() / temperature
    found: NDArray[np.float32] = logits.log_softmax(-1).gather(1, tokens[0, 1:, None])[:, 0].cpu().numpy()
    return found
