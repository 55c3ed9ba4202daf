"""A notebook: a reward from a cell trains a model, and one output shows how that goes."""

import os
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from groupwise.reporting.history import History
from groupwise.reporting.notebook import as_html
from groupwise.types import Event

RunEvents = Callable[..., list[Event]]

REWARD = """
def short(completions, **columns):
    return [-float(len(text)) for text in completions]
"""
TRAIN = """
from groupwise import GRPOConfig, GRPOTrainer

args = GRPOConfig(max_steps=3, num_generations=4, per_device_train_batch_size=8, max_completion_length=8)
rows = [{"prompt": f"Say {n}"} for n in range(8)]
trainer = GRPOTrainer(model="tiny", reward_funcs=short, args=args, train_dataset=rows)
trainer.train();
"""


@pytest.mark.long
def test_a_reward_in_a_cell_trains_under_one_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[2] / "src")]))
    cells = [nbformat.v4.new_code_cell(text) for text in (REWARD, TRAIN)]
    book = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(book, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for output in book.cells[1].outputs if "text/html" in output.get("data", {})]
    assert len(shown) == 1, [output.get("name", output.output_type) for output in book.cells[1].outputs]
    html = shown[0]["data"]["text/html"]
    assert "step 3/3" in html
    assert "<polyline" in html
    assert not [output for output in book.cells[1].outputs if output.get("name") == "stderr"], "bars of other libraries"


def test_the_output_of_a_cell_shows_progress_numbers_curve_and_hints(run_events: RunEvents) -> None:
    events = run_events(last_evaluation=480.0)
    html = as_html(History.of(events), 61.0, ["Too <fast>."])
    assert all(
        words in html for words in ("<b>pole</b>", "step 20/20", "1:01", "finished", "<polyline", "Too &lt;fast&gt;.")
    )
    assert "step 0" in as_html(History.of(()), 0.0, []), "before anything has happened"
