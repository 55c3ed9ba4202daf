"""BPMN 2.0 with diagrams, as Camunda, Signavio and bpmn.io write it.

vocabulary.py      names of BPMN, and the annotations that we add
reader.py          files to documents; open this file first
sketch.py          a process while it is read: brings gateways, links and loops into the form of a graph
writer.py          documents to files: processes, flows, diagrams
elements.py        nodes as elements
wiring.py          which gateways and sub-processes a graph needs in BPMN
lanes.py           a lane for every pool that performs tasks
arrangement.py     where the elements of a process are drawn
diagram.py         shapes, edges and labels
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
