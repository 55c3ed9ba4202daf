"""Comparisons: every algorithm in every environment from every seed. The statistics and the page are in `reporting`.

arms           what is compared: PPO and two GRPO variants, or the arms of an ablation
campaign       hands one job per (algorithm, environment, seed) to worker processes and gathers results; open it first
worker         carries out one job: trains, evaluates, and keeps a snapshot of a few groups
foreign_logs   what other tools logged, as courses beside ours: SB3's monitors, CleanRL's runs, any CSV
event_files    TensorBoard's event files, read without TensorBoard
"""
