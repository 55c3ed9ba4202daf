"""Pictures of workflows and of their simulations.

For a drawing, in the order data flows; open `scene` first:

    labels              how much room text needs, and what stands on nodes and flows
    column_assignment   each node in a column, left to right, with few crossings
    placement           heights of nodes, and the tracks on which flows change height between columns
    drawing_layout      boxes, routes and labels of a graph; long drawings are broken into rows
    shapes              styles, shapes, and outlines around regions: the vocabulary of all pictures
    scene               a document as shapes, with a legend
    svg, png            shapes as a file
    summary             a large order of tasks as a small one, for drawing

From the trace of a simulation:

    figures             Gantt chart, queues and utilisation, as scenes
    animation           cases as tokens that move over the drawing; all figures written to a folder
"""

from groupwise.workflows.pictures.drawing_layout import DrawingLayout, NodeBox, layout

__all__ = ["DrawingLayout", "NodeBox", "layout"]
