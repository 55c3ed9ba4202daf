"""Pictures say what the workflow does, escape what people wrote, and look the same by day and by night."""

from __future__ import annotations

import io
import random
from collections import Counter

import pytest
from PIL import Image

from groupwise.workflows.blocks import Activity, Cancellable, Design, Instances, Sequence
from groupwise.workflows.document import Document, document_of, to_graph
from groupwise.workflows.files import write_workflow
from groupwise.workflows.graph import Flow, Graph, Node
from groupwise.workflows.pictures.labels import percent, seconds
from groupwise.workflows.pictures.png import png
from groupwise.workflows.pictures.scene import without_detours
from groupwise.workflows.pictures.shapes import outlines, region
from groupwise.workflows.pictures.svg import svg
from groupwise.workflows.requirements import parse_requirements
from tests.workflows.designs import random_design
from tests.workflows.pictures.traces import CLAIM, task, tree_of

SVG = "{http://www.w3.org/2000/svg}"


def words(picture: str) -> list[str]:
    return [element.text or "" for element in tree_of(picture).iter(f"{SVG}text")]


def test_a_picture_says_what_it_shows() -> None:
    drawn = words(svg(CLAIM))
    for said in (
        "register",
        "yes (20%)",
        "pay (80%)",
        "clerk (2)",
        "1 h",
        "retries",
        "exactly one branch",
        "all branches",
    ):
        assert said in drawn, said
    assert "one or more branches" not in drawn


def test_what_people_wrote_stays_text() -> None:
    nasty = "</text><script>alert(1)</script> & \"'\x07"
    picture = svg(Design("</title><script>", task(nasty, pool="<b>")))
    tree = tree_of(picture)
    assert not list(tree.iter(f"{SVG}script"))
    assert "script>alert(1)</script>" in "".join(words(picture)).replace(" ", "")
    assert tree.find(f"{SVG}title").text == "</title><script>"  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(20))
def test_every_random_design_is_drawn(seed: int) -> None:
    rng = random.Random(seed)
    design = random_design(rng, rng.randint(1, 25))
    picture = tree_of(svg(design))
    assert float(picture.get("width", "0")) > 0
    assert svg(design) == svg(design)


def test_dark_screens_get_dark_paper() -> None:
    picture = svg(CLAIM)
    assert "@media(prefers-color-scheme:dark){.paper{fill:#0f172a;}" in picture
    light, dark = (Image.open(io.BytesIO(png(CLAIM, scale=0.5, dark=dark))).convert("RGB") for dark in (False, True))
    assert light.getpixel((2, 2)) == (255, 255, 255)
    assert dark.getpixel((2, 2)) == (15, 23, 42)


def test_a_png_is_as_large_as_it_says(tmp_path) -> None:  # type: ignore[no-untyped-def]
    write_workflow(CLAIM, tmp_path / "claim.png")
    write_workflow(CLAIM, tmp_path / "claim.svg")
    drawn = tree_of((tmp_path / "claim.svg").read_text())
    with Image.open(tmp_path / "claim.png") as image:
        assert image.width == pytest.approx(2 * float(drawn.get("width", "0")), abs=2)
        assert len(image.convert("RGB").getcolors(1 << 20) or ()) > 50


def test_what_is_cancelled_is_surrounded_and_nothing_else() -> None:
    body = Sequence((Activity("pick"), Instances(Activity("pack"), 2, 5, 2)))
    picture = svg(Design("d", Cancellable(body, 0.2, Activity("refund"))))
    assert "cancelled together" in words(picture)
    assert "2–5" in words(picture)
    assert 'class="region"' in picture


def test_silent_nodes_that_do_nothing_are_not_drawn() -> None:
    nodes = [Node("i", kind="start"), Node("skip", silent=True), Node("a"), Node("named", "wait", silent=True)]
    flows = [Flow("i", "skip", 0.4), Flow("skip", "a"), Flow("a", "named"), Flow("named", "o")]
    drawn = without_detours(Graph("g", (*nodes, Node("o", kind="end")), tuple(flows)))
    assert [flow.id for flow in drawn.flows] == ["i→a", "a→named", "named→o"]
    assert drawn.flows[0].probability == 0.4


def test_graphs_that_call_each_other_stand_below_each_other_with_their_names() -> None:
    inner = to_graph(Design("inner", Activity("a")))
    outer = Graph("outer", (Node("i", kind="start"), Node("b", calls="inner"), Node("o", kind="end")), ())
    drawn = words(svg(Document("two", (outer, inner))))
    assert drawn.index("outer") < drawn.index("b") < drawn.index("inner") < drawn.index("a")


def test_a_region_makes_a_notch_for_what_is_not_in_it() -> None:
    inside = [(0.0, 0.0, 10.0, 10.0), (20.0, 0.0, 30.0, 30.0)]
    assert region(inside, []) == [((0, 0), (30, 0), (30, 30), (0, 30))]
    (ring,) = region(inside, [(2.0, 20.0, 8.0, 40.0)])
    assert (2, 20) in ring
    assert (8, 20) in ring
    close = region(inside, [(12.0, 2.0, 18.0, 8.0), (0.0, 12.0, 15.0, 30.0)])
    assert len(close) >= 1
    assert outlines([(0, 0, 2, 2)], [(0, 0, 1, 1)]) == [((0, 1), (1, 1), (1, 0), (2, 0), (2, 2), (0, 2))]


def test_numbers_are_written_as_people_say_them() -> None:
    assert [percent(p) for p in (0.62, 0.025, 0.001, 1.0, 0.095)] == ["62%", "2.5%", "0.1%", "100%", "9.5%"]
    assert [seconds(t) for t in (0.5, 90, 5400, 86400)] == ["0.5 s", "1.5 min", "1.5 h", "1 d"]


def test_a_document_of_a_design_and_the_design_are_the_same_picture() -> None:
    assert svg(document_of(CLAIM)) == svg(CLAIM)


def test_events_are_circles_and_early_ends_are_ends() -> None:
    told = {name: {"duration": {"mean": 1}, "knock_out": 0.5, "failure": 0.5} for name in "ab"}
    known = parse_requirements({"name": "r", "activities": told})
    document = document_of(Design("d", Sequence((Activity("a"), Activity("b")))), known)
    drawn = tree_of(svg(document))
    styles = Counter(circle.get("class") for circle in drawn.iter(f"{SVG}circle"))
    # Two knock-outs, two failures and the end; the events of failures are double circles.
    assert (styles["start"], styles["end"], styles["condition"]) == (1, 5, 4)
    diamonds = [line for line in drawn.iter(f"{SVG}path") if line.get("class") == "gate"]
    assert len(diamonds) == 2 + 1  # one of them in the legend
    assert {"a passed?", "ended after b", "b failed", "b fails"} <= set(words(svg(document)))
