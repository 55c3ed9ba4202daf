"""`NeuralRewardTrainer`: learns which conversations are better, and measures how far it can be trusted.

    loss = Σᵢ wᵢ · mean over heads [ −log σ(r(better) − r(worse)) + (σ(r) − score)² ] + 0.001 · r²

The first term is the Bradley–Terry loss, the second applies to pairs with scores, the third keeps r near 0. wᵢ is the
replay's weight. Each head learns from three quarters of the preferences, chosen by their text.
"""

import copy
import logging
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from groupwise.errors import ConfigError
from groupwise.rewards.learned import preferences
from groupwise.rewards.learned.encoder import Opinions
from groupwise.rewards.learned.preferences import Preference, PrioritisedReplay, RewardTranscript, Row, Scored, Split

logger = logging.getLogger(__name__)
SIGNIFICANCE = 0.001
BATCH, PASSES, STEPS_PER_UPDATE = 64, 8, 40
HELD_OUT = 400  # pairs, the newest
DROPPED, DECAY, CENTRE, LONGEST_GRADIENT = 0.2, 0.1, 1e-3, 1.0
TABLE_RATE = 10.0  # times the learning rate: a batch touches few rows of the table


class NeuralRewardTrainer:
    """A network, the preferences it learns from, and those that are held out to test it.

    `learning_rate` applies to the network; the table of word pieces learns ten times as fast. Each pair is used about
    `PASSES` times in total, so that updates without new preferences do not memorise wrong ones.
    """

    def __init__(
        self,
        embedding_dim: int = 128,
        hidden_dim: int = 256,
        learning_rate: float = 1e-4,
        *,
        heads: int = 4,
        seed: int = 0,
        replay: PrioritisedReplay | None = None,
    ) -> None:
        sizes = {"embedding_dim": embedding_dim, "hidden_dim": hidden_dim, "heads": heads}
        for name, value in {**sizes, "learning_rate": learning_rate}.items():
            if not value > 0:
                raise ConfigError(f"{name} = {value!r} must be above 0", hint=f"Leave {name} out to use its default.")
        if embedding_dim % 2:
            message = f"embedding_dim = {embedding_dim} is odd"
            raise ConfigError(message, hint="Use an even number: each direction of the encoder uses one half.")
        self.network = Opinions(embedding_dim, hidden_dim, heads, seed)
        self.optimizer = _optimizer(self.network, learning_rate)
        self.replay = PrioritisedReplay() if replay is None else replay
        self.held_out: deque[Preference] = deque(maxlen=HELD_OUT)
        self.split = Split()
        self.alone: dict[bool, Scored] = {}
        self.range = (0.0, 1.0)
        self.rng = np.random.default_rng([seed, 5])
        self.noise = torch.Generator().manual_seed(seed)
        self.credit = 0.0  # steps that may still be taken; every new pair adds PASSES / BATCH
        self.updates = self.failures = self.right = self.judged = 0
        self.loss = math.nan

    def add_preferences(self, pairs: Iterable[Row]) -> None:
        """Learn from preferences, in any form that `preference_of` reads."""
        for pair in map(preferences.preference_of, pairs):
            sides = {self.split.holds_out(pair.better), self.split.holds_out(pair.worse)}
            if len(sides) == 1:  # if only one side is held out, the pair is of no use to either
                self._add(sides.pop(), [pair])

    def add_scores(self, group: Sequence[Scored]) -> None:
        """Learn from the scores of a group. A single attempt is compared with the last single one."""
        finite = [(transcript, float(score)) for transcript, score in group if math.isfinite(score)]
        for held_out in (False, True):
            side = [scored for scored in finite if self.split.holds_out(scored[0]) is held_out]
            if len(group) == 1 and side:
                side = self._with_the_last(held_out, side[0])
            pairs = preferences.disjoint_pairs if held_out else preferences.all_pairs
            self._add(held_out, pairs(side, self.rng))

    def _with_the_last(self, held_out: bool, alone: Scored) -> list[Scored]:
        """A single attempt and the last one before it; a held-out attempt is used only once."""
        last = self.alone.pop(held_out, None)
        # Learned-from attempts form a chain, each compared with the one before; held-out pairs must not overlap.
        if last is None or not held_out:
            self.alone[held_out] = alone
        return [] if last is None else [last, alone]

    def _add(self, held_out: bool, pairs: Sequence[Preference]) -> None:
        for pair in pairs:
            if held_out:
                self._keep_to_judge(pair)
                continue
            self.replay.add(pair)
            self.credit += PASSES / BATCH
            if pair.scores is not None:
                # A teacher may score beyond [0, 1]: remember how far, to rescale.
                self.range = (min(self.range[0], pair.scores[1]), max(self.range[1], pair.scores[0]))

    def _keep_to_judge(self, pair: Preference) -> None:
        """Hold out a pair, unless one of its conversations is in another: the test assumes independent pairs."""
        known = {said for kept in self.held_out for said in (kept.better, kept.worse)}
        if pair.better not in known and pair.worse not in known:
            self.held_out.append(pair)

    def fit(self) -> None:
        """Use up the credit of all preferences given so far."""
        while self.credit >= 1 and len(self.replay):
            failures = self.failures
            self.update()
            if self.failures > failures:
                return

    def update(self, steps: int = STEPS_PER_UPDATE) -> None:
        """Take a few steps on replayed preferences, then test on the held-out ones.

        If anything goes wrong, such as a number that is not finite, the failure is counted and the weights are
        restored.
        """
        # The optimiser's moments too: after a bad step they are as wrong as the weights.
        before = copy.deepcopy((self.network.state_dict(), self.optimizer.state_dict()))
        steps = min(steps, int(self.credit)) if len(self.replay) else 0
        self.credit -= steps
        try:
            losses = [self._step() for _ in range(steps)]
            self.loss = sum(losses) / len(losses) if losses else self.loss
            self._judge()
        except Exception as error:  # the boundary: no failure of the network may end a run
            logger.warning("the learned reward was not updated: %s: %s", type(error).__name__, error)
            self.network.load_state_dict(before[0])
            self.optimizer.load_state_dict(before[1])
            self.failures += 1
        self.updates += 1

    def _step(self) -> float:
        numbers, weights = self.replay.draw(BATCH, self.rng)
        pairs = [self.replay.kept[number] for number in numbers]
        better, worse = self._opinions(pairs, learning=True)
        # [heads, pairs]: 1 if a head learns from a pair, which happens three times in four.
        heads = torch.tensor([_learning_heads(pair, len(better)) for pair in pairs]).T
        # [heads, pairs]. softplus(worse − better) = −log σ(better − worse), without overflow.
        each = softplus(worse - better) + self._squared_error(pairs, better, worse)
        # Mean over the heads that learn from a pair; a pair that no head learns from counts 0.
        each = (each * heads).sum(0) / heads.sum(0).clamp(min=1)
        centre = CENTRE * (better.square() + worse.square()).mean()
        loss = (torch.from_numpy(weights).to(each.dtype) * each).mean() + centre
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), LONGEST_GRADIENT)
        if not bool(torch.isfinite(norm)):
            raise FloatingPointError(f"the gradient's norm is {float(norm)}")
        self.optimizer.step()
        # The priority is the ranking loss alone, without the squared error of the scores.
        self.replay.settle(numbers, softplus(worse - better).mean(0).tolist())
        return float(loss.detach())

    def _opinions(self, pairs: Sequence[Preference], learning: bool = False) -> tuple[Tensor, Tensor]:
        """r of the better and of the worse conversations, [heads, pairs] each."""
        batch = [pair.better for pair in pairs] + [pair.worse for pair in pairs]
        keep = None
        if learning:
            width = self.network.first.shape[1]
            # Inverted dropout: scaled up here, so that nothing need be scaled when it is off.
            keep = (torch.rand(len(batch), width, generator=self.noise) >= DROPPED) / (1 - DROPPED)
        opinions = self.network(batch, keep)
        return opinions[:, : len(pairs)], opinions[:, len(pairs) :]

    def _squared_error(self, pairs: Sequence[Preference], better: Tensor, worse: Tensor) -> Tensor:
        """[heads, pairs]; 0 for pairs without scores. Scores are rescaled to [0, 1] by the range seen so far."""
        low, high = self.range
        known = torch.tensor([float(pair.scores is not None) for pair in pairs])
        wanted = (torch.tensor([pair.scores or (low, low) for pair in pairs]) - low) / (high - low)
        return known * ((better.sigmoid() - wanted[:, 0]).square() + (worse.sigmoid() - wanted[:, 1]).square())

    def _judge(self) -> None:
        if not self.held_out:
            return
        pairs = list(self.held_out)
        with torch.no_grad():
            better, worse = self._opinions(pairs)
        # The heads vote by their mean, as they do in `score`.
        margin = (better - worse).mean(0)
        if not bool(torch.isfinite(margin).all()):
            raise FloatingPointError("an output for held-out preferences is not finite")
        self.right, self.judged = int((margin > 0).sum()), len(pairs)

    @property
    def held_out_accuracy(self) -> float:
        return self.right / self.judged if self.judged else math.nan

    @property
    def trusted(self) -> bool:
        """Whether it beats chance: the one-sided binomial test on held-out pairs gives p < 0.001."""
        return self.judged > 0 and binomial_tail(self.right, self.judged) < SIGNIFICANCE

    @torch.no_grad()
    def score(self, batch: Sequence[RewardTranscript]) -> tuple[list[float], list[float]]:
        """The scores in (0, 1), and the standard deviation of the heads for each."""
        opinions = self.network(list(batch))
        if not bool(torch.isfinite(opinions).all()):
            raise FloatingPointError("an output is not finite")
        return opinions.mean(0).sigmoid().tolist(), opinions.sigmoid().std(0, correction=0).tolist()

    def metrics(self) -> dict[str, float]:
        known = {"held_out_accuracy": self.held_out_accuracy, "loss": self.loss}
        return {
            **{name: value for name, value in known.items() if math.isfinite(value)},
            "held_out_pairs": float(len(self.held_out)),
            "replay_size": float(len(self.replay)),
            "updates": float(self.updates),
            "failures": float(self.failures),
            "trusted": float(self.trusted),
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "network": copy.deepcopy(self.network.state_dict()),
            "optimizer": copy.deepcopy(self.optimizer.state_dict()),
            "replay": self.replay.state_dict(),
            "held_out": [pair.packed() for pair in self.held_out],
            "split": list(self.split.first),
            "alone": [[held_out, said.packed(), score] for held_out, (said, score) in self.alone.items()],
            "range": list(self.range),
            "rng": self.rng.bit_generator.state,
            "noise": self.noise.get_state(),
            "counters": {name: getattr(self, name) for name in COUNTERS},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(copy.deepcopy(dict(state["optimizer"])))
        self.replay.load_state_dict(state["replay"])
        self.held_out = deque(map(Preference.unpacked, state["held_out"]), HELD_OUT)
        self.split.first = list(state["split"])
        self.alone = {held_out: (RewardTranscript.unpacked(said), score) for held_out, said, score in state["alone"]}
        self.range = (state["range"][0], state["range"][1])
        self.rng.bit_generator.state = state["rng"]
        self.noise.set_state(state["noise"])
        for name in COUNTERS:
            setattr(self, name, state["counters"][name])


COUNTERS = ("credit", "updates", "failures", "right", "judged", "loss")


def binomial_tail(right: int, count: int) -> float:
    """The chance of at least `right` heads in `count` tosses of a fair coin."""
    # Exact, in integers, until the last division.
    ways = sum(math.comb(count, k) for k in range(right, count + 1))
    return float(ways / (1 << count))


@lru_cache(maxsize=8192)
def _learning_heads(pair: Preference, heads: int) -> tuple[float, ...]:
    number = preferences.stable_hash(pair.better.turns, pair.worse.turns)
    return tuple(float(preferences.stable_hash(number, head) % 4 > 0) for head in range(heads))


def _optimizer(network: Opinions, learning_rate: float) -> torch.optim.Optimizer:
    table = network.encoder.words.table.weight
    rest = [parameter for parameter in network.parameters() if parameter is not table]
    groups: list[dict[str, Any]] = [{"params": rest}, {"params": [table], "lr": TABLE_RATE * learning_rate}]
    return torch.optim.AdamW(groups, lr=learning_rate, weight_decay=DECAY)
