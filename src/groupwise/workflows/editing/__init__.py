"""Workflows changed by hand, one edit at a time, and what that does to their score and rules.

    edited = applied(design, requirements, (MoveActivity("verify income", "beside", "credit check"), Staff("clerk", 3)))
    assess(edited).score

edits.py has the kinds of edits, edited.py applies and assesses them (open it first), chances.py changes probabilities
in the requirements and wherever they are drawn.
"""

from groupwise.workflows.editing.chances import as_written, chances
from groupwise.workflows.editing.edited import Assessment, Edited, applied, assess
from groupwise.workflows.editing.edits import (
    RULES,
    Assign,
    Chance,
    Edit,
    MoveActivity,
    Rule,
    Staff,
    edit_of,
    in_words,
)

__all__ = [
    "RULES", "Assessment", "Assign", "Chance", "Edit", "Edited", "MoveActivity", "Rule", "Staff", "applied",
    "as_written", "assess", "chances", "edit_of", "in_words",
]  # fmt: skip
