"""Pictures of workflows: where everything stands, and drawings of it."""

from groupwise.workflows.pictures.layout import Box, Layout, layout

__all__ = ["Box", "Layout", "layout"]
