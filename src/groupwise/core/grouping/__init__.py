"""Groupings that remember: which attempts belong together, and how much each group weighs in the loss.

    strategies   summaries of attempts → group numbers, by task, quantile or cluster (open this first)
    kmeans       the clustering behind most strategies
    mixture      a Dirichlet-process mixture, for an unknown number of latent tasks
    weighting    group sizes and returns → a weight for each group

Strategies and weightings have `state_dict` and `load_state_dict`, so that a resumed run groups as before.
"""
