"""What a language model wrote, as attempts, rows of tokens and their texts: shared by all products whose policy writes.

Column t of an attempt is the token at t, prompt included; the mask is true at the tokens the model sampled. Token ids
are kept as sampled and never made again from text.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from groupwise.language.engine import Sampled
from groupwise.language.policy import LanguagePolicy
from groupwise.language.thought_formats import split_answer
from groupwise.metrics import MEANINGLESS, SUPERVISED
from groupwise.training.batch_source import BatchRows
from groupwise.training.estimators import Attempts, padded
from groupwise.types import SHOWN, Array, Batch, End, Task, Trajectory

# How SentencePiece writes the space before a word, which decoding a single token drops.
WORD = "▁"


def token_texts(tokenizer: Any, ids: Iterable[int]) -> tuple[str, ...]:
    """The text of each token on its own. Part of a character is shown as �, a special token by its name."""
    known = _known(tokenizer)[0]
    return tuple(known[token] if token in known else _learn(tokenizer, known, token) for token in map(int, ids))


@lru_cache(maxsize=4)
def _known(tokenizer: Any) -> tuple[dict[int, str], dict[int, bool]]:
    """The texts of tokens seen so far, and whether they are special."""
    return {}, {}


def _learn(tokenizer: Any, known: dict[int, str], token: int) -> str:
    text = str(tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False))
    written = tokenizer.convert_ids_to_tokens(token)
    if isinstance(written, str) and written.startswith(WORD) and not text.startswith(" "):
        text = f" {text}"
    known[token] = text
    return text


def is_special(tokenizer: Any, token: int) -> bool:
    """Whether a token has no text."""
    known = _known(tokenizer)[1]
    if token not in known:
        known[token] = not tokenizer.decode([token], skip_special_tokens=True)
    return known[token]


ENDS = {"stop": End.FINISHED, "length": End.TRUNCATED, "context": End.TRUNCATED, "cancelled": End.CANCELLED}
Row = tuple[Array, Array]
"""Tokens, and which of them are the model's own."""


def token_attempt(
    tokenizer: Any, task: Task, prompt: Sequence[int], number: int, sampled: Sampled, asked: Any
) -> Trajectory:
    """The attempt as arrays. A length limit is part of the task, so an answer that reaches it counts as terminated."""
    ids = np.concatenate([np.array(prompt, np.int64), sampled.ids])
    before, text = len(prompt), answer_text(tokenizer, sampled)
    said = split_answer(tokenizer, prompt, text)

    def behind(values: Array) -> Array:
        return np.concatenate([np.zeros(before, values.dtype), values])

    return Trajectory(
        id=f"g{task.seed}/m{number}",
        task_id=task.id,
        group_id=f"g{task.seed}",
        obs=ids,
        actions=ids,
        mask=np.arange(len(ids)) >= before,
        behavior_logp=behind(sampled.logp),
        versions=behind(sampled.versions),
        rewards=np.zeros(len(ids)),
        end=ENDS[sampled.end],
        terminated=True,
        meta={
            "text": text,
            "reasoning": said.reasoning,
            "content": said.content,
            "prompt": asked,
            "tokens": token_texts(tokenizer, ids),
        },
    )


def answer_text(tokenizer: Any, sampled: Sampled) -> str:
    """The text to grade and show: without the special token that ended it, but with any other, which is a mistake."""
    ids = sampled.ids
    if sampled.end == "stop" and is_special(tokenizer, int(ids[-1])):
        ids = ids[:-1]
    return str(tokenizer.decode(ids, skip_special_tokens=False))


def sampling_seed(seed: int, task: int, member: int) -> int:
    """A different random stream for every attempt."""
    return int(np.random.SeedSequence([seed, task, member]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def rows_of_tokens(attempts: Attempts) -> BatchRows:
    """One row [B, T] per answer, padded at the end."""
    members = attempts.members
    lengths = torch.tensor([len(member) for member in members], dtype=torch.long)
    inputs = {
        "input_ids": padded([member.actions for member in members], np.int64),
        "attention_mask": (torch.arange(attempts.mask.shape[1]) < lengths[:, None]).long(),
        "action_mask": attempts.mask,
    }
    logp = padded([member.behavior_logp for member in members], np.float32)
    return BatchRows(inputs, attempts.mask, logp, pick=lambda table: table, engine=True)


def imitation(rows: Sequence[Row], policy: LanguagePolicy, device: str) -> Batch:
    """A batch that raises the likelihood of the given rows: every own token has advantage 1.

    Its metric is the loss of the demonstrations. It has no reward, because nothing was attempted, and no surrogate
    loss, which is -1 at every step. Nobody sampled them, so the ratio is taken against the learner's own
    log-probabilities: it is 1, and the gradient of the policy loss is that of the negative log-likelihood per token.
    """
    # `row >= 0` is true at every token; padded with false it marks the rows.
    mask = padded([row >= 0 for row, _ in rows], np.bool_) & padded([own for _, own in rows], np.bool_)
    inputs = {
        "input_ids": padded([row for row, _ in rows], np.int64),
        "attention_mask": padded([row >= 0 for row, _ in rows], np.int64),
        "action_mask": mask,
    }
    with torch.no_grad():
        logp = policy.evaluate({name: t.to(device) for name, t in inputs.items()}).logp.cpu()
    shown, tokens = logp[mask], int(mask.sum())
    return Batch(
        inputs, mask, logp.float(), mask.float(), denominator=tokens, total_rows=len(rows), total_tokens=tokens,
        versions=torch.full(mask.shape, SHOWN),
        metrics={SUPERVISED: -float(shown.mean()), **dict.fromkeys(MEANINGLESS)},
        samples=tokens, attempts=len(rows),
    )  # fmt: skip
