"""Group → scores. A reward is `async (task, group) -> one Score or Failed per attempt`; it sees the group as a whole.

Start with `scoring`, then `function`. In the order in which data flows:

    registry       from `reward.name` in the settings to a reward: known ones, and your own as FILE.py:NAME
    signatures     what your own function may look like: of turns, of a task and its group, or as in TRL
    function       RewardFunction, the base class; a function of turns as a reward; two simple rewards
    rules/         rewards that follow rules anyone can check: right answers, format, words and phrases
    judge/         RULER: a language model scores the attempts of a group relative to each other
    learned/       a small network that learns which conversations are better, and knows when it can be trusted
    combination    several rewards as one, by weights or by comparison
    presets        combinations for five domains
    scoring        the one boundary where a reward may fail: time limits, exceptions, checked scores
    attacks        replies that a reward should not prefer to a good answer, and a search for a constant one
    trial          a reward on trial: what wins that should not, and how much a policy would gain by it
    answer_drift   whether answers become alike, repeat themselves, parrot the question or grow
    statistics     how the parts of a reward develop over a run, and an alarm when one is gamed

A failure is a value (`types.Failed`), never a 0. Rewards do not know the training loop, and none of this needs torch
except learned/.
"""
