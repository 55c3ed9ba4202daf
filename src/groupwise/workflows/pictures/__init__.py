"""Pictures of workflows: where everything stands (`layout`), and drawings of it (`svg.svg`, `png.png`)."""

from groupwise.workflows.pictures.layout import Box, Layout, layout

__all__ = ["Box", "Layout", "layout"]
