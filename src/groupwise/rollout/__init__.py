"""Vector environments × policy → trajectories: groups of episodes for GRPO, segments of fixed length for PPO.

Start with `episodes`. In the order in which data flows:

    contract    what an environment and a policy must return, checked as their arrays arrive
    episodes    collect_groups: every task attempted by a group that starts in the same state; greedy evaluation
    recording   what is behind it: [T, N] arrays, one row per step, cut into episodes at the end
    segments    EnvironmentCopies: copies that play on from one segment to the next, and can be resumed
    backends/   attempts in other processes, here or on a cluster, for every product
    checker     check_environment: tells the author of an environment which rules it breaks

A copy whose numbers are not finite fails alone; an environment that raises fails the copies that were still running; a
wrong shape or type is a `ContractError`, because it is a mistake in the code and not in an episode.
"""
