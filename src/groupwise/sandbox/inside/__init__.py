"""What runs inside a bubblewrap sandbox, as three kinds of process. It is sent there; nobody imports it outside.

    keeper   waits for jobs; for each it forks a judge, and outlives it
    judge    forks the code before it is told the tests, then runs the tests, and reports
    code     runs what a model wrote, under a second filter and limits of its own, and answers calls

The code never shares a process with the tests: it sees the arguments of one call at a time, and only plain data comes
back. So it cannot read the tests, end them early, or return something that claims to equal everything.

Every import in here is paid for by every run: `typing`, `signal`, `ctypes` and `contextlib` would cost 4 ms each.
"""
