"""Pictures of workflows: where everything stands (`layout`), and drawings of it (`svg.svg`, `png.png`)."""

from groupwise.workflows.pictures.drawing_layout import DrawingLayout, NodeBox, layout

__all__ = ["DrawingLayout", "NodeBox", "layout"]
