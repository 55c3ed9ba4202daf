"""Programs: workflow code that was read, checked and put into its one normal form.

    parse(text, signature) -> Program | Fault

Three forms are valid:

- *straight*: `def solve(x):` with operator calls only. It is kept as steps; equal computations become one, lines whose
  result nobody uses vanish, and the rest is laid out in one order, so that equal programs have equal texts.
- *plain*: `def solve(…):` in a small Python: arithmetic, lists, texts, `if`, a few loops, operators too.
- *workflow*: `async def workflow(problem):`, which awaits operators that ask a model.

`parse(program.text)` gives the same text again, for every program of every form.
"""

from __future__ import annotations

from collections.abc import Mapping

from groupwise.programs.language import plain, straight
from groupwise.programs.language.operators import Operator
from groupwise.programs.language.program import DEEPEST, FaultCode, Faulty, Form, Program, ProgramFault, Signature, read
from groupwise.programs.language.pure_operators import PURE

__all__ = ["Form", "Program", "ProgramFault", "Signature", "parse"]


def parse(
    text: str, signature: Signature | None = None, operators: Mapping[str, Operator] = PURE
) -> Program | ProgramFault:
    """The program that a text is, or the first fault that keeps it from being one. It never raises."""
    try:
        tree = read(text)
        made = straight.program(tree, signature, operators) or plain.program(tree, signature, operators)
    except Faulty as faulty:
        return faulty.fault
    except RecursionError:
        return ProgramFault(
            FaultCode.TOO_DEEP, f"expressions are nested deeper than {DEEPEST}; give steps names of their own"
        )
    return made
