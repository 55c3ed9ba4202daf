"""Figures of a trace add up, and tokens go where the cases went."""

from __future__ import annotations

import io
import re

import pytest
from PIL import Image

from groupwise.errors import ConfigError
from groupwise.workflows.document import document_of
from groupwise.workflows.pictures.animation import animation_gif, animation_svg, journeys
from groupwise.workflows.pictures.drawing_layout import in_rows, layout
from groupwise.workflows.pictures.figures import _ticks, gantt, queues, utilisation
from groupwise.workflows.pictures.scene import without_detours
from groupwise.workflows.pictures.shapes import Oblong, Words
from groupwise.workflows.pictures.svg import svg_of
from groupwise.workflows.titles import titled
from tests.workflows.pictures.traces import CLAIM, TRACE, Try, tree_of

DOCUMENT = document_of(CLAIM)


def test_a_gantt_chart_has_a_bar_for_every_try() -> None:
    chart = gantt(TRACE)
    bars = [shape for shape in chart.shapes if isinstance(shape, Oblong) and shape.hint]
    assert len(bars) == len(TRACE)
    assert sum(bar.style == "lost" for bar in bars) == 1
    rows = [shape.text for shape in chart.shapes if isinstance(shape, Words) and shape.anchor == "end"]
    assert rows == ["boss 1", "clerk 1", "clerk 2", "expert 1", "nobody needed", ""]
    register = next(bar for bar in bars if bar.hint.startswith("register, case 0"))
    assess = next(bar for bar in bars if bar.hint.startswith("assess, case 0"))
    assert assess.width == pytest.approx(3 * register.width)
    assert "waited 25 s" in next(bar.hint for bar in bars if bar.hint.startswith("assess, case 1"))


def test_queues_and_busy_servers_are_averaged_over_time() -> None:
    waiting = [shape.text for shape in queues(TRACE).shapes if isinstance(shape, Words)]
    assert "0.31 on average" in waiting  # the expert: one case from 15 to 40 of 80 s
    busy = [shape.text for shape in utilisation(TRACE, dict(CLAIM.servers)).shapes if isinstance(shape, Words)]
    assert {"62% busy", "16% busy", "38% busy"} <= set(busy)  # 50 of 80, 25 of 160, 30 of 80 s


def test_a_figure_can_end_early() -> None:
    assert sum(isinstance(shape, Oblong) and bool(shape.hint) for shape in gantt(TRACE, until=12).shapes) == 4


def test_an_empty_trace_is_refused() -> None:
    for figure in (gantt, queues, lambda tries: utilisation(tries, {}), lambda tries: journeys(DOCUMENT, tries)):
        with pytest.raises(ConfigError, match="the trace is empty"):
            figure(())
    with pytest.raises(ConfigError, match="needs a pool"):
        queues([Try(0, "pay", 0, 0, 1)])
    with pytest.raises(ConfigError, match="of another workflow: 'swim'"):
        journeys(DOCUMENT, [Try(0, "swim", 0, 0, 1)])


@pytest.mark.parametrize("span", [0.003, 1, 7, 59, 60, 600, 5000, 90000, 1e6, 1e9])
def test_an_axis_has_a_handful_of_ticks(span: float) -> None:
    ticks = _ticks(span)
    assert 3 <= len(ticks) <= 17
    assert ticks[0] == 0
    assert ticks[-1] <= span * (1 + 1e-9)


def test_tokens_go_where_the_cases_went() -> None:
    found, span = journeys(DOCUMENT, TRACE)
    assert span == 80
    drawn = titled(without_detours(DOCUMENT.root))
    boxes = in_rows(drawn, layout(drawn)).boxes
    assert all(0 <= stop[0] <= 1 for journey in found for stop in journey.stops)
    for journey in found:
        moments = [moment for moment, _, _ in journey.stops]
        assert moments == sorted(moments)
    ends = [journey for journey in found if journey.stops[-1][1:] == boxes["end"].middle]
    assert sorted(journey.case for journey in ends) == [0, 1]
    worked = [journey.stops[-1][1:] for journey in found if journey.case == 0]
    for name, times in (("decide", 2), ("ask again", 1), ("ask police", 2), ("reject & say <why>", 0)):
        box = boxes[name]
        assert sum(y == box.y and box.x < x < box.right for x, y in worked) == times, name
    waiting = [stop for journey in found if journey.case == 1 for stop in journey.stops]
    assert any(y == boxes["assess"].bottom for _, _, y in waiting)


def test_a_token_is_between_its_stops_and_nowhere_else() -> None:
    found, _ = journeys(DOCUMENT, TRACE)
    journey = found[0]
    first, last = journey.stops[0], journey.stops[-1]
    assert journey.at(first[0] - 0.01) is None
    assert journey.at(last[0] + 0.01) is None
    assert journey.at(first[0]) == pytest.approx(first[1:])
    assert journey.at(last[0]) == pytest.approx(last[1:])


def test_the_moving_svg_is_well_formed_and_complete() -> None:
    picture = animation_svg(DOCUMENT, TRACE, seconds=10)
    tree = tree_of(picture)
    space = "{http://www.w3.org/2000/svg}"
    tokens = [circle for circle in tree.iter(f"{space}circle") if circle.get("class") == "token"]
    assert len(tokens) == len(journeys(DOCUMENT, TRACE)[0])
    for token in tokens:
        for animate in token.iter(f"{space}animate"):
            values, times = animate.get("values", "").split(";"), animate.get("keyTimes", "").split(";")
            assert len(values) == len(times)
            assert times[0] in ("0", "0.00000")
            assert times == sorted(times, key=float)
    assert not re.search(r"https?://(?!www\.w3\.org)", picture)


def test_the_gif_moves() -> None:
    gif = Image.open(io.BytesIO(animation_gif(DOCUMENT, TRACE, seconds=2, rate=5)))
    assert gif.n_frames == 10  # type: ignore[attr-defined]
    frames = []
    for number in (2, 6):
        gif.seek(number)
        frames.append(gif.convert("RGB").tobytes())
    assert frames[0] != frames[1]
    with pytest.raises(ConfigError, match="a GIF may have at most 600"):
        animation_gif(DOCUMENT, TRACE, seconds=100, rate=30)
    with pytest.raises(ConfigError, match="more than 0"):
        animation_svg(DOCUMENT, TRACE, seconds=0)


def test_figures_are_written_as_pictures() -> None:
    for figure in (gantt(TRACE), queues(TRACE), utilisation(TRACE, dict(CLAIM.servers))):
        assert tree_of(svg_of(figure)).tag.endswith("svg")
