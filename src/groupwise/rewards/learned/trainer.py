"""`NeuralRewardTrainer`: learns which conversations are better, and measures how far it can be trusted.

Two models learn from the same preferences: a linear one (`linear`) and the network, whose loss is

    loss = Σᵢ wᵢ · mean over heads [ −log σ(r(better) − r(worse)) + (σ(r) − score)² ] + 0.001 · r²

The first term is the Bradley–Terry loss, the second applies to pairs with scores, the third keeps r near 0. wᵢ is the
replay's weight. Each head learns from three quarters of the preferences, chosen by their text. A quarter of a batch are
real replies against fakes (`realism`). The linear model scores until the network is better on held-out pairs; what
becomes of r is in `calibration`.
"""

import copy
import logging
import math
import random
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
from groupwise.rewards.learned.calibration import Floats, ScoreScale, calibration_error
from groupwise.rewards.learned.encoder import Opinions
from groupwise.rewards.learned.linear import PENALTIES, LinearReward
from groupwise.rewards.learned.preferences import Preference, PrioritisedReplay, RewardTranscript, Row, Scored, Split
from groupwise.rewards.learned.realism import SPOILERS, Realism, parrots
from groupwise.stems import VERSION

logger = logging.getLogger(__name__)
SIGNIFICANCE = 0.001  # of beating chance
BETTER = 0.05  # significance at which the network replaces the linear model
BATCH, PASSES, STEPS_PER_UPDATE = 64, 8, 40
HELD_OUT = 400  # pairs, the newest
DROPPED, DECAY, CENTRE, LONGEST_GRADIENT = 0.2, 0.1, 1e-3, 1.0
FAKES = BATCH // 4  # in a batch, beside the preferences
CLIMBS = 4  # against the reward, each time the linear model is fitted
NEWS = 0.25  # the linear model is fitted again after so many new pairs, as a share of the replay
TABLE_RATE = 10.0  # times the learning rate: a batch touches few rows of the table


class NeuralRewardTrainer:
    """A network, a linear model, the preferences they learn from, and those that are held out to test them.

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
        self.linear, self.realism, self.scale = LinearReward(), Realism(), ScoreScale()
        self.uses_network = False
        self.crossed: list[float] = []  # margins of learned-from pairs by models that did not see them
        self.new_pairs = 0  # since the linear model was fitted
        self.credit = 0.0  # steps that may still be taken; every new pair adds PASSES / BATCH
        self.updates = self.failures = self.right = self.judged = self.linear_right = self.network_right = 0
        self.loss = self.calibration_error = math.nan

    def add_preferences(self, pairs: Iterable[Row]) -> None:
        """Learn from preferences, in any form that `preference_of` reads."""
        for pair in map(preferences.preference_of, pairs):
            sides = {self.split.holds_out(pair.better), self.split.holds_out(pair.worse)}
            if len(sides) == 1:  # if only one side is held out, the pair is of no use to either
                self._add(sides.pop(), [pair])

    def add_scores(self, group: Sequence[Scored]) -> None:
        """Learn from the scores of a group. A single attempt is compared with the last single one.

        A teacher that prefers the question said back to another reply is not believed.
        """
        finite = [(transcript, float(score)) for transcript, score in group if math.isfinite(score)]
        for held_out in (False, True):
            side = [scored for scored in finite if self.split.holds_out(scored[0]) is held_out]
            if len(group) == 1 and side:
                side = self._with_the_last(held_out, side[0])
            pairs = preferences.disjoint_pairs if held_out else preferences.all_pairs
            found = pairs(side, self.rng)
            self._add(held_out, [pair for pair in found if parrots(pair.worse) or not parrots(pair.better)])

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
            self.new_pairs += 1
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
        others = copy.deepcopy((self.linear, self.realism, self.scale))
        steps = min(steps, int(self.credit)) if len(self.replay) else 0
        self.credit -= steps
        try:
            losses = [self._step() for _ in range(steps)]
            self.loss = sum(losses) / len(losses) if losses else self.loss
            if self.new_pairs > NEWS * len(self.replay):
                self._fit_linear()
            self._judge()
        except Exception as error:  # the boundary: no failure of the network may end a run
            logger.warning("the learned reward was not updated: %s: %s", type(error).__name__, error)
            self.network.load_state_dict(before[0])
            self.optimizer.load_state_dict(before[1])
            self.linear, self.realism, self.scale = others
            self.failures += 1
        self.updates += 1

    def _step(self) -> float:
        numbers, weights = self.replay.draw(BATCH, self.rng)
        pairs = [self.replay.kept[number] for number in numbers]
        fakes = self._fakes(pairs)
        pairs, weights = pairs + fakes, np.append(weights, np.ones(len(fakes)))
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
        self.replay.settle(numbers, softplus(worse - better).mean(0)[: len(numbers)].tolist())
        return float(loss.detach())

    def _fakes(self, pairs: Sequence[Preference]) -> list[Preference]:
        """Real replies, each preferred to a spoiled copy of itself or to what climbing has found."""
        rng = self._random()
        real = [pair.better for pair in pairs]
        found = [Preference(one, rng.choice(SPOILERS)(one, real, rng)) for one in real[: FAKES // 2]]
        # A climbed reply is worse than the real one that it was climbed from, and than any other.
        climbed = rng.sample(self.realism.climbed, min(FAKES // 2, len(self.realism.climbed)))
        return found + [Preference(rng.choice(real), fake) for fake in climbed]

    def _random(self) -> random.Random:
        """A source of randomness whose seed is drawn from the one that is saved."""
        return random.Random(int(self.rng.integers(1 << 62)))

    def _fit_linear(self) -> None:
        """Fit the linear model to the replay, then learn what fakes look like, also those that it likes itself."""
        crossed = self._choose_penalty()
        self.linear.fit(self.replay.kept)
        self.new_pairs = 0
        known = list(dict.fromkeys(said for pair in self.replay.kept for said in (pair.better, pair.worse)))
        rng = self._random()
        self.scale.fit_range(self._rewards(known)[0])
        self.realism.fit(known, rng)
        for start in rng.sample(known, min(CLIMBS, len(known))):
            self.realism.climb(start, lambda batch: self._lower(batch)[0].tolist(), rng)
        self.realism.fit(known, rng)
        self.crossed = self._margins(crossed)

    def _choose_penalty(self) -> Floats:
        """Set the penalty that predicts best across thirds of the replay; r of both sides so predicted, [pairs, 2]."""
        tried = [(penalty, np.array(LinearReward(penalty).crossed(self.replay.kept))) for penalty in PENALTIES]
        losses = [ScoreScale().fit_chances(r[:, 0] - r[:, 1]) for _, r in tried]
        self.linear.penalty, crossed = tried[int(np.argmin(losses))]
        return crossed

    def _margins(self, rewards: Floats) -> list[float]:
        """The differences of lower bounds within the replay's pairs, given r of both sides, [pairs, 2]."""
        pairs = self.replay.kept
        doubts = [self.realism.doubts([getattr(pair, side) for pair in pairs]) for side in ("better", "worse")]
        better, worse = (self.scale.lower(r, doubt, 0 * r) for r, doubt in zip(rewards.T, doubts, strict=True))
        return [float(margin) for margin in better - worse]

    def _rewards(self, batch: Sequence[RewardTranscript]) -> tuple[Floats, Floats]:
        """r by the model in use, and the standard deviation of its heads (0 for the linear model)."""
        if not self.uses_network:
            return self.linear.rewards(batch), np.zeros(len(batch))
        with torch.no_grad():
            opinions = self.network(list(batch)).double().numpy()
        return opinions.mean(0), opinions.std(0)

    def _lower(self, batch: Sequence[RewardTranscript]) -> tuple[Floats, Floats]:
        """The lower bound on r, and how much each is doubted, in [0, 1]."""
        rewards, deviations = self._rewards(batch)
        doubts = self.realism.doubts(batch) if self.realism.fitted else np.zeros(len(batch))
        # Both doubts as a share of the spread of known replies, so that the part `certainty` has one meaning.
        share = np.minimum(doubts + deviations / self.scale.spread, 1.0)
        return self.scale.lower(rewards, doubts, deviations), share

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
        """Count how often both models are right on held-out pairs, choose between them, and calibrate."""
        if not self.held_out:
            return
        pairs = list(self.held_out)
        better, worse = [pair.better for pair in pairs], [pair.worse for pair in pairs]
        with torch.no_grad():
            opinions = self._opinions(pairs)
        # The heads vote by their mean, as they do in `score`.
        network = (opinions[0] - opinions[1]).mean(0).double().numpy()
        linear = self.linear.rewards(better) - self.linear.rewards(worse)
        if not (np.isfinite(network).all() and np.isfinite(linear).all()):
            raise FloatingPointError("an output for held-out preferences is not finite")
        self.network_right, self.linear_right = int((network > 0).sum()), int((linear > 0).sum())
        self.judged = len(pairs)
        self._choose(network > 0, linear > 0)
        margins = self._lower(better)[0] - self._lower(worse)[0]
        # Few pairs are held out: the linear model can be tested on those it learned from as well, by thirds.
        self.scale.fit_chances(margins if self.uses_network else np.append(margins, self.crossed))
        self.calibration_error = calibration_error(self.scale.chances(margins))

    def _choose(self, network: Any, linear: Any) -> None:
        """The network, if it is right where the linear model is wrong more often than chance would have it."""
        won, lost = int((network & ~linear).sum()), int((linear & ~network).sum())
        chosen = binomial_tail(won, won + lost) < BETTER
        self.right = self.network_right if chosen else self.linear_right
        if chosen or chosen != self.uses_network:
            # The network changes with every update, and the two have scales of their own.
            self.uses_network = chosen
            known = [said for pair in self.replay.kept[-HELD_OUT:] for said in (pair.better, pair.worse)]
            self.scale.fit_range(self._rewards(known or [pair.better for pair in self.held_out])[0])

    @property
    def held_out_accuracy(self) -> float:
        return self.right / self.judged if self.judged else math.nan

    @property
    def trusted(self) -> bool:
        """Whether it beats chance: the one-sided binomial test on held-out pairs gives p < 0.001."""
        return self.judged > 0 and binomial_tail(self.right, self.judged) < SIGNIFICANCE

    def score(self, batch: Sequence[RewardTranscript]) -> tuple[list[float], list[float]]:
        """The scores in (0, 1), and how much each is doubted, in [0, 1]."""
        if not batch:
            return [], []
        lower, doubts = self._lower(batch)
        if not np.isfinite(lower).all():
            raise FloatingPointError("an output is not finite")
        return self.scale.scores(lower).tolist(), doubts.tolist()

    def chances(self, pairs: Sequence[Preference]) -> list[float]:
        """The calibrated probability that the first of each pair is the better one."""
        better, worse = (self._lower([getattr(pair, side) for pair in pairs])[0] for side in ("better", "worse"))
        return [float(chance) for chance in self.scale.chances(better - worse)]

    def metrics(self) -> dict[str, float]:
        judged = max(self.judged, 1)
        known = {
            "held_out_accuracy": self.held_out_accuracy,
            "linear_accuracy": self.linear_right / judged if self.judged else math.nan,
            "network_accuracy": self.network_right / judged if self.judged else math.nan,
            "calibration_error": self.calibration_error,
            "loss": self.loss,
        }
        return {
            **{name: value for name, value in known.items() if math.isfinite(value)},
            "held_out_pairs": float(len(self.held_out)),
            "replay_size": float(len(self.replay)),
            "updates": float(self.updates),
            "failures": float(self.failures),
            "trusted": float(self.trusted),
            "uses_network": float(self.uses_network),
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "network": copy.deepcopy(self.network.state_dict()),
            "optimizer": copy.deepcopy(self.optimizer.state_dict()),
            "linear": self.linear.state_dict(),
            "realism": self.realism.state_dict(),
            "scale": self.scale.state_dict(),
            "replay": self.replay.state_dict(),
            "held_out": [pair.packed() for pair in self.held_out],
            "split": list(self.split.first),
            "alone": [[held_out, said.packed(), score] for held_out, (said, score) in self.alone.items()],
            "range": list(self.range),
            "crossed": list(self.crossed),
            "rng": self.rng.bit_generator.state,
            "noise": self.noise.get_state(),
            "counters": {name: getattr(self, name) for name in COUNTERS},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(copy.deepcopy(dict(state["optimizer"])))
        self.linear.load_state_dict(state["linear"])
        self.realism.load_state_dict(state["realism"])
        self.scale.load_state_dict(state["scale"])
        self.replay.load_state_dict(state["replay"])
        self.held_out = deque(map(Preference.unpacked, state["held_out"]), HELD_OUT)
        self.split.first = list(state["split"])
        self.alone = {held_out: (RewardTranscript.unpacked(said), score) for held_out, said, score in state["alone"]}
        self.range = (state["range"][0], state["range"][1])
        self.crossed = list(state["crossed"])
        self.rng.bit_generator.state = state["rng"]
        self.noise.set_state(state["noise"])
        for name in COUNTERS:
            setattr(self, name, state["counters"][name])
        other_stems = state["linear"].get("stems") != VERSION
        other_properties = state["realism"]["fitted"] and not self.realism.fitted
        if (other_stems or other_properties) and len(self.replay):
            self._fit_linear()  # the weights are of words that were cut otherwise, or of fewer properties


COUNTERS = (
    "credit", "updates", "failures", "right", "judged", "loss", "linear_right", "network_right", "uses_network",
    "new_pairs", "calibration_error",
)  # fmt: skip


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
