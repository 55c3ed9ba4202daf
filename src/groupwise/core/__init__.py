"""The mathematics of learning from groups: pure functions on tensors. No I/O, no model, no settings, no logger.

In the order data flows:

    objectives        several objectives of an attempt → one number
    advantages        rewards of a group → advantages of attempts, or of the turns of a conversation
    returns_and_gae   rewards over time → returns, GAE, return-to-go within a group
    jax_gae           the same GAE in JAX
    tokens            logits → log-probabilities and entropies of tokens; masks that select tokens
    sampler_mismatch  how far a sampler's log-probabilities are from the policy's, and weights that correct it
    losses            log-probabilities and advantages → the policy loss (open this first); the critic's loss
      surrogates      what one token contributes, one function per family of objectives
      divergence      KL to a reference and its coefficient, the entropy bonus
    gradient_surgery  gradients of tasks that conflict → gradients that do not
    shapes            checks that open every function
    grouping/         what keeps state: which attempts belong together, and what a group weighs
"""

from groupwise.core.advantages import (
    Baseline,
    Scale,
    group_advantages,
    turn_advantages,
    turn_numbers,
    zero_spread_groups,
)
from groupwise.core.divergence import ReferenceKl, adapt_kl_coefficient, entropy_bonus, kl_estimate
from groupwise.core.gradient_surgery import conflict_share, project_conflicts, random_orders
from groupwise.core.grouping.strategies import (
    Grouping,
    Summaries,
    attempt_features,
    check_baseline,
    make_grouping,
    summarise,
)
from groupwise.core.grouping.weighting import group_sizes, make_weighting
from groupwise.core.losses import (
    LOSSES,
    LossRule,
    PolicyLoss,
    clip_range,
    loss_denominator,
    loss_rule,
    policy_loss,
    value_loss,
)
from groupwise.core.objectives import mean_square_by_level, zscore
from groupwise.core.returns_and_gae import Gae, discounted_returns, explained_variance, gae, group_return_to_go
from groupwise.core.sampler_mismatch import SamplerMismatch, sampler_mismatch
from groupwise.core.tokens import (
    masked_mean,
    off_policy_mask,
    overlong_mask,
    token_entropy,
    token_logp,
    top_entropy_mask,
)

__all__ = [
    "LOSSES", "Baseline", "Gae", "Grouping", "LossRule", "PolicyLoss",
    "ReferenceKl", "SamplerMismatch", "Scale", "Summaries", "adapt_kl_coefficient", "attempt_features",
    "check_baseline", "clip_range",
    "conflict_share", "discounted_returns", "entropy_bonus", "explained_variance", "gae", "group_advantages",
    "group_return_to_go", "group_sizes", "kl_estimate", "loss_denominator", "loss_rule", "make_grouping",
    "make_weighting", "masked_mean", "mean_square_by_level", "off_policy_mask", "overlong_mask", "policy_loss",
    "project_conflicts", "random_orders", "sampler_mismatch", "summarise", "token_entropy", "token_logp",
    "top_entropy_mask", "turn_advantages", "turn_numbers", "value_loss", "zero_spread_groups", "zscore",
]  # fmt: skip
