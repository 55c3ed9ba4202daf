"""Workflow code: programs over operators that a language model writes, a search explores and an evaluator scores.

    problem = generate("tables", seed=0, split="train", difficulty=2)
    program = parse("def solve(x):\\n    a = where(x, 'red')\\n    b = count_rows(a)\\n    return b", problem.signature)
    ProgramEvaluator(problem)(program.text)

Each package uses only the ones before it:

    language     programs, operators, the parser, the evaluator and the grammar; open language/program.py first
    problems     families of problems, and the user's own problems from a file
    search       Monte Carlo tree search, over any domain and over programs
    learning     a language model learns to write programs: the product `code`
    commands     `groupwise solve` and `groupwise search`
    starter      `groupwise init` for a problem

`declaration` is what the rest of the package knows of the product before a run asks for it, `checks` what it refuses.
"""
