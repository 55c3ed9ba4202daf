"""The designer: a policy and a search that turn requirements into sound, optimised workflows.

Open `design_call` first: `groupwise design` is one call of it. In the order in which data flows:

    text_requirements        requirements from plain text, with a language model
    structure                how outcomes and loops divide a case, what is placed as one piece, who can do what
    problem                  requirements as arrays, and the twelve kinds of decision
    plans, construction      many plans at once, decision by decision, masked to what is legal
    tasks                    plans become designs, designs get scores; requirements by task id
    features, policy         what the policy sees, and the graph network with its weights
    sampling, heuristics     who decides: the policy, learned preferences, earlier plans, random keys and rules of thumb
    familiarity              how far requirements are from the policy's training data
    candidate_workers        where candidates are made and evaluated: here, or in worker processes
    diversity                how diverse a generation is, how the next reacts, and which decisions edits take again
    generations              the candidates of each generation: samples, edits, selection
    memory, prediction_correction   what earlier calls and measurements teach
    pipeline                 the search loop in six stages
    baseline, finalists      what the result is compared with, and the last round, simulated for longer
    results                  what a search returns, in numbers, words and figures
    design_call              one call from a file, with its settings
    commands, workflow_worker       the command line, and the service's worker process

For training, `declaration` and `product` are the border to the rest of the package, `learning` turns plans into
trajectories and rewards; synthetic requirements are in `tasks`. `pretrained.safetensors` are the weights that
ship, `range.safetensors` the statistics of their training data, `designer.toml` the settings they were trained with.
"""

MEMORY_FILE = "memory.sqlite"
