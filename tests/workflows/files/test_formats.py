"""Workflow files that are no files, and output that replaces what was there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.workflows.block_form import lift
from groupwise.workflows.blocks import Activity, Design, Sequence
from groupwise.workflows.document import document_of
from groupwise.workflows.files import read_workflow, write_workflow
from groupwise.workflows.files.formats import BadFile
from groupwise.workflows.requirements import parse_requirements

LOAN = Path(__file__).parents[3] / "examples" / "workflows" / "loan.bpmn"


@pytest.mark.parametrize("name", ["a.bpmn", "a.yawl", "a.pnml", "a.json", "a.yml"])
def test_a_pipe_and_a_link_to_an_endless_device_are_refused_at_once(tmp_path, name):
    os.mkfifo(tmp_path / name)
    (tmp_path / f"zero-{name}").symlink_to("/dev/zero")
    for path in (tmp_path / name, tmp_path / f"zero-{name}"):
        with pytest.raises(BadFile, match="is not a regular file"):
            read_workflow(path)


def test_a_full_disk_leaves_the_old_workflow(tmp_path):
    file = tmp_path / "loan.yawl"
    write_workflow(read_workflow(LOAN), file)
    old = file.read_bytes()
    code = (
        "import resource, signal, sys; from groupwise.workflows.files import read_workflow, write_workflow;"
        "document = read_workflow(sys.argv[1]); signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); write_workflow(document, sys.argv[2])"
    )
    done = subprocess.run([sys.executable, "-c", code, LOAN, file], capture_output=True, text=True, check=False)
    assert "StorageError" in done.stderr
    assert file.read_bytes() == old
    assert [path.name for path in tmp_path.iterdir()] == ["loan.yawl"]


def test_a_picture_leaves_out_only_what_could_be_seen(tmp_path):
    document = read_workflow(LOAN)
    assert write_workflow(document, tmp_path / "loan.svg") == ()
    write_workflow(document, tmp_path / "loan.bpmn")
    assert write_workflow(read_workflow(tmp_path / "loan.bpmn"), tmp_path / "loan.mmd") == ()
    note = '<bpmn:textAnnotation id="n"><bpmn:text>urgent</bpmn:text></bpmn:textAnnotation></bpmn:process>'
    annotated = tmp_path / "noted.bpmn"
    annotated.write_text((tmp_path / "loan.bpmn").read_text().replace("</bpmn:process>", note, 1))
    (told,) = write_workflow(read_workflow(annotated), tmp_path / "noted.svg")
    assert told == "left out, because SVG has no place for it: textAnnotation (1)"


def test_formats_without_choices_take_a_design_whose_cases_may_end_early(tmp_path):
    told = {name: {"duration": {"kind": "fixed", "mean": 1}, "knock_out": 0.5} for name in "ab"}
    design = Design("d", Sequence((Activity("a"), Activity("b"))))
    document = document_of(design, parse_requirements({"name": "r", "activities": told}))
    for name in ("d.yml", "d.pnml"):
        write_workflow(document, tmp_path / name)
        assert lift(read_workflow(tmp_path / name)).root == design.root
