"""Sweeps: many values of a few settings, each combination trained with several seeds.

commands       `groupwise sweep`
axes           the swept settings and their ranges
candidates     the combinations of a grid or a random draw, checked before anything runs
optuna_search  combinations that Optuna suggests, batch by batch
running        hands the runs to the campaign of comparisons, and keeps `plan.json` and `sweep.json`; open it first
trials         the score of every combination, from the courses of its runs
importance     how much each setting matters: a random forest, and the functional analysis of its variance
findings       what a sweep says about an algorithm: importance, surface, share that solves, recommendation
figures        the figures
page           the report, the figures as files, and the table as CSV
"""
