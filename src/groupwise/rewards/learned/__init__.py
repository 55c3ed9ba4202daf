"""A reward that learns from preferences while it is used (needs torch). Start with `neural`, the reward.

preferences    conversations, pairs of them, the held-out split, and the prioritised replay
linear         the baseline: a linear model on hashed features, used until the network is better
encoder        the network: text in, one opinion per head out
realism        what real replies look like, fakes to learn it from, and the doubt about what does not
calibration    from a model's output to a score: capped, lowered by doubt, calibrated
trainer        the loss, the updates, and the test that decides whether the network is trusted
neural         the reward: a teacher, the network, and the heuristic until the network is trusted
"""
