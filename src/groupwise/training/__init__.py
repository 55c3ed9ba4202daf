"""Training: the one loop in which everything in Groupwise learns, and the folder each run leaves behind.

loop               the algorithm: sample, update, publish, evaluate, save (open this first)
session            one run from outside: start or resume it, watch its events

batch_source       tasks → groups of attempts → scores → batch; in order of use:
  step_groups        the groups of a step, their metrics and records
  replay             past groups, learned from again
  group_assignment   whose mean is subtracted, whose scale divides, whose weight counts
  estimators         scores → advantages
  exhibits           what else can be shown of an attempt: an episode, a design, a program
  token_attempts     what a language model wrote, as attempts and rows of tokens
  worker_rewards     rewards that workers compute
learner            batch → better policy
  micro_batches      what goes through the policy at once

ranks/             the same run trained by several processes (see its own map)

run                a run folder, opened by the one process that writes to it
  events, group_files, checkpoint, control_file    the files in it
  machine                                          what else a run depends on
folder             run folders from outside: create, find, inspect (no torch needed)
stop_conditions    targets, patience, Ctrl-C
hints              plain-words advice when a run does not learn, from hint_evidence
dry_run            make and score groups without learning
formatting         numbers as people read them
"""
