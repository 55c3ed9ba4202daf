"""The mathematics: pure functions on tensors. No I/O, no model, no config object, no logger.

advantages   rewards of groups → advantages
returns      rewards over time → returns, GAE, return-to-go beside the group
losses       log-probabilities and advantages → the policy loss; made of `rules` and `surrogates`
masks        which tokens a loss acts on
divergence   KL to a reference and its coefficient, the entropy bonus
values       the critic's loss
scaling      measurements → comparable scores
tokens       logits → log-probabilities and entropies of tokens
"""

from groupwise.core.advantages import (
    Baseline,
    Scale,
    Std,
    compute_grpo_advantages,
    group_advantages,
    zero_spread_groups,
)
from groupwise.core.divergence import KlEstimator, adapt_kl_coefficient, entropy_bonus, kl_estimate
from groupwise.core.losses import PolicyLoss, compute_grpo_loss, policy_loss
from groupwise.core.masks import masked_mean, off_policy_mask, overlong_mask, top_entropy_mask
from groupwise.core.returns import Gae, discounted_returns, gae, group_return_to_go
from groupwise.core.rules import LOSSES, LossRule, loss_denominator, loss_rule
from groupwise.core.scaling import reference_score, zscore
from groupwise.core.surrogates import ImportanceLevel, importance_ratio
from groupwise.core.tokens import token_entropy, token_logp
from groupwise.core.values import explained_variance, value_loss

__all__ = [
    "LOSSES",
    "Baseline",
    "Gae",
    "ImportanceLevel",
    "KlEstimator",
    "LossRule",
    "PolicyLoss",
    "Scale",
    "Std",
    "adapt_kl_coefficient",
    "compute_grpo_advantages",
    "compute_grpo_loss",
    "discounted_returns",
    "entropy_bonus",
    "explained_variance",
    "gae",
    "group_advantages",
    "group_return_to_go",
    "importance_ratio",
    "kl_estimate",
    "loss_denominator",
    "loss_rule",
    "masked_mean",
    "off_policy_mask",
    "overlong_mask",
    "policy_loss",
    "reference_score",
    "token_entropy",
    "token_logp",
    "top_entropy_mask",
    "value_loss",
    "zero_spread_groups",
    "zscore",
]
