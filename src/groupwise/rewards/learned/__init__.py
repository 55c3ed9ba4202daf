"""A reward that learns from preferences while it is used (needs torch). Start with `neural`, the reward.

preferences    conversations, pairs of them, the held-out split, and the prioritised replay
encoder        the network: text in, one opinion per head out
trainer        the loss, the updates, and the test that decides whether the network is trusted
neural         the reward: a teacher, the network, and the heuristic until the network is trusted
"""
