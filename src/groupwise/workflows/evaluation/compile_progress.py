"""How far compilation is, for whoever wants to explain a wait. Importing this does not import Numba."""

from dataclasses import dataclass


@dataclass
class CompileProgress:
    """Functions compiled in this process, and how many are being compiled now (inside each other)."""

    done: int = 0
    running: int = 0

    def begin(self) -> None:
        self.running += 1

    def end(self) -> None:
        self.running -= 1
        self.done += 1


PROGRESS = CompileProgress()
