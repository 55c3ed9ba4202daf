"""How often random legal programs solve a problem, by family and difficulty: what chance alone achieves.

python benchmarks/random_programs.py --problems 50 --json
"""

from __future__ import annotations

import argparse
import random

from record import print_result

from groupwise.programs.language.evaluation import ProgramEvaluator
from groupwise.programs.language.grammar import random_program
from groupwise.programs.problems import FAMILIES, LEVELS, CodeProblem, generate

BUDGETS = (1, 16, 64, 256)


def first_solved(problem: CodeProblem, rng: random.Random) -> int:
    """How many random programs it took, or one more than the largest budget."""
    evaluate = ProgramEvaluator(problem)
    for number in range(1, BUDGETS[-1] + 1):
        if evaluate(random_program(problem, rng)).solved:
            return number
    return BUDGETS[-1] + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=60)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object, too")
    given = parser.parse_args()
    count, shares = given.problems, dict[str, float]()
    print("| family | difficulty | " + " | ".join(f"at {budget}" for budget in BUDGETS) + " |")
    print("|---|---|" + "---|" * len(BUDGETS))
    for family in FAMILIES:
        everything: list[int] = []
        for difficulty in range(1, LEVELS[family] + 1):
            rng = random.Random(difficulty)
            found = [first_solved(generate(family, seed, "valid", difficulty), rng) for seed in range(count)]
            everything += found
            print(_row(family, str(difficulty), found))
        print(_row(family, "all", everything))
        shares |= {f"{family}_at_{budget}": _share(everything, budget) for budget in BUDGETS}
    if given.json:
        print_result("random_programs", shares)


def _row(family: str, difficulty: str, found: list[int]) -> str:
    shares = (_share(found, budget) for budget in BUDGETS)
    return f"| {family} | {difficulty} | " + " | ".join(f"{100 * share:.0f}%" for share in shares) + " |"


def _share(found: list[int], budget: int) -> float:
    return sum(number <= budget for number in found) / len(found)


if __name__ == "__main__":
    main()
