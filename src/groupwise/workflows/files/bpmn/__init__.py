"""BPMN 2.0 with diagrams, as Camunda, Signavio and bpmn.io write it.

vocabulary.py      names of BPMN, and the annotations that we add
reader.py          files to documents; open this file first
sketch.py          a process while it is read: brings gateways, links and loops into the form of a graph
writer.py          documents to files: nodes as elements, lanes, processes
wiring.py          which gateways and sub-processes a graph needs in BPMN
diagram.py         shapes and edges
"""

from groupwise.workflows.files.bpmn.reader import read
from groupwise.workflows.files.bpmn.vocabulary import BPMN
from groupwise.workflows.files.bpmn.writer import write
from groupwise.workflows.files.formats import Format

FORMAT = Format(
    "bpmn",
    "BPMN 2.0",
    (".bpmn", ".bpmn2", ".bpmn20.xml", ".xml"),
    lambda head: b"BPMN/20100524" in head,
    read,
    write,
    namespaces=(BPMN,),
)
