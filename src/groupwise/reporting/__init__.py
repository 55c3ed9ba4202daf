"""What a run or a comparison looks like: on the terminal, as a page, as figures. Nothing here trains.

Of one run, in the order data flows; open `history` first:

history             events → series by step
summary             the numbers that matter, how the run ended, and terminal tables
verdict             the same in words: what was trained, what came of it, what to try next
console             a run on the terminal while it runs
notebook            the same in a notebook's cell
live_run            starts a run, shows it and writes its report
trackers            TensorBoard, Weights & Biases, MLflow and Trackio
tracked_values      what they get: numbers, and tables of answers
charts              which metrics are charted together, and how to read them
figures             its figures
recorded_step       the attempts of a saved step: features, rewards over time, other groupings of them
example_group       the group of attempts that a report shows
report              report.html

Of several runs:

comparison          scores over steps → standings, and the differences that may be claimed
statistics          intervals, tests and survival curves, in plain NumPy
comparison_table    the comparison on the terminal
comparison_figures  its figures
comparison_page     its page and data files
advantage_figures   figures that explain what groups and advantages do

Shared: `text` (strings, durations, curves in characters), `canvas` (the style of figures), `page` (the HTML frame),
`command_options` (command-line options and answers), `starter` (what `groupwise init` asks and writes).
"""
