"""Workflow files: `read_workflow` and `write_workflow` recognise every format by suffix or content.

formats.py       the table of formats, reading and writing: open this file first
json_file.py     our own JSON, which can express everything
bpmn/  yawl/     BPMN 2.0 and YAWL, with their diagrams; pnml.py: Petri nets
xml_tree.py      XML elements to bytes, and names that are valid in XML
annotations.py   what those formats have no place for, kept in annotations
step_dag.py      workflows without choices and loops, for the formats that have only steps:
                 github_actions.py, argo.py, airflow.py (written only), wfcommons.py
mermaid.py       flowcharts for Markdown (written only); SVG and PNG are in formats.py
"""

from groupwise.workflows.files.formats import CannotExpress, Format, read_workflow, write_workflow

__all__ = ["CannotExpress", "Format", "read_workflow", "write_workflow"]
