"""The commands that belong to no product. `cli.py` names them, and imports one only when it is called.

    init                   init: from what people have to a settings file
    training               train, resume, stop, eval
    many_ranks             the same for a run on many ranks, of which the first shows it
    rollout, doctor, plan  look before you train
    runs                   list, show, plot and report runs
    workflow_files         check, convert, diff
    workflow_analysis      score, simulate
    workflow_edits         edit
    reward                 reward check
    config                 config show, check, schema
    sampler                sampler start, status, stop
    service                serve, keys

Open training.py first. Commands of a product are in its own `commands.py`; options that commands share are in
reporting/command_options.py. What is heavy is imported inside the functions, so that `--help` stays quick.
"""
