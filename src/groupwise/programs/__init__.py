"""Workflow code: programs over operators that a model writes, a search explores and a sandbox runs.

problem = generate("tables", seed=0, split="train", difficulty=2)
program = parse("def solve(x):\\n    a = where(x, 'red')\\n    b = count_rows(a)\\n    return b", problem.signature)
Evaluator(problem)(program.text)
"""
