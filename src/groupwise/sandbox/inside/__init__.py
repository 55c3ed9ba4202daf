"""What runs inside a bubblewrap sandbox, as three kinds of process. It is sent there; nothing outside imports it.

    dispatcher   waits for jobs; for each it forks a judge, and outlives it. Open this first
    suites       runs tests in the styles of unittest and pytest
    judge        forks the code before it reads the tests, then runs the tests, and reports
    remote       the code's process as the judge sees it: calls go in, plain data and output come out
    program      the code: runs what a model wrote, under a second filter and its own limits, and answers calls

The code never shares a process with the tests: it sees the arguments of one call at a time, and only plain data comes
back. So it cannot read the tests, end them early, or return an object that claims to equal everything.

Every run pays for every import in here: `typing`, `signal`, `ctypes` and `contextlib` would cost 4 ms each. That is why
these files use `_signal` and `_ctypes`, and `try`/`pass` instead of `contextlib.suppress`.
"""
