"""Ranks that die say why, on the way and in the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.errors import RankError
from groupwise.training.ranks.launcher import launch

# Rank 1 dies by a signal in its first attempt, and by an error of its own in the second.
DIES = """
import os
if os.environ["RANK"] == "1":
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), 9)
    raise ValueError("no such\\n  column")
"""


def test_the_launcher_says_why_a_rank_has_died(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RankError, match="rank 1 failed with ValueError: no such column after 1 restart\n") as told:
        launch(exec, DIES, ranks=2, run=tmp_path, restarts=1)
    assert "groupwise resume" in told.value.hint
    assert "Traceback" in str(told.value.__cause__)  # where it was raised, for --debug
    (said,) = (record.getMessage() for record in caplog.records if record.name.startswith("groupwise"))
    assert said == (
        "rank 1 was killed by signal SIGKILL (out of memory?); all ranks start again from the last checkpoint "
        "(restart 1 of 1)"
    )
