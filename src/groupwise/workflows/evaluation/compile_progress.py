"""How far compilation is, for whoever wants to explain a wait. Importing this does not import Numba."""

import time
from dataclasses import dataclass


@dataclass
class CompileProgress:
    """Functions compiled in this process, how many are being compiled now (inside each other), and since when."""

    done: int = 0
    running: int = 0
    since: float = 0.0

    def begin(self) -> None:
        if not self.done and not self.running:
            self.since = time.monotonic()
        self.running += 1

    def end(self) -> None:
        self.running -= 1
        self.done += 1


PROGRESS = CompileProgress()
