"""Workflow files: `read_workflow` and `write_workflow` know every format there is by its suffix or its content."""

from groupwise.workflows.files.formats import CannotExpress, Format, read_workflow, write_workflow

__all__ = ["CannotExpress", "Format", "read_workflow", "write_workflow"]
