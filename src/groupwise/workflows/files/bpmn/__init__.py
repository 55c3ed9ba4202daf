"""BPMN 2.0 with diagram interchange, as Camunda, Signavio and bpmn.io write it."""

from __future__ import annotations

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
