"""Every number that bounds a run, besides what its caller allows (`SandboxLimits` in `limits_and_outcomes`).

This file also runs inside the sandbox, so it imports nothing.
"""

# Enforced by the kernel (`SandboxLimits.of_kernel`): what Python needs itself comes on top of the run's own memory.
PYTHON_ADDRESSES, PYTHON_DATA = 96 << 20, 16 << 20  # bytes
PROCESSOR_GRACE = 2  # seconds of processor time beyond the run's: a backstop for the judge's deadline
OPEN_FILES = 32
OTHER_PROCESSES = 2  # bubblewrap's own process and the dispatcher count as well
# The code may return a huge number, of which a test then makes a list.
TESTS_MEMORY = 1 << 30
PACKAGES_MEMORY = 1 << 30  # bytes that packages imported by tests may take, besides the run's own memory

# Seconds beyond a run's own: tests are killed after one, the sandbox is ended from outside after the other.
TESTS_GRACE, RUN_GRACE = 1.0, 3.0
START_PATIENCE = 30.0  # seconds for a sandbox to start on a busy machine

# Of a value that leaves a sandbox. Python refuses to convert much larger integers to decimals, which logs and JSON try.
VALUE_DEPTH, VALUE_PIECES, VALUE_CHARACTERS, INTEGER_BITS = 50, 100_000, 1_000_000, 10_000
LONGEST_CODE = 1_000_000  # characters
LONGEST_LITERAL = 2_000_000  # characters of a value written by Monty
# Of all arguments in a run together: reading them takes our time, not the code's.
ARGUMENT_CHARACTERS = 20_000_000

# Of a message between processes. A value of three bytes is written much faster than it is read, hence the pieces.
WIRE_DEPTH, WIRE_PIECES = 60, 1_000_000
FRAME = 8 << 20  # bytes of a message from the code
REPORT = 24 << 20  # bytes of a report
# Risky keys of dicts and sets in one message: with equal hashes, every new key is compared with all others. Inside the
# sandbox reading takes the code's or the tests' own time.
HASHED, HASHED_INSIDE = 1000, 100_000
WORDS, LONGEST_MESSAGE = 400, 500  # characters for the reader, inside the sandbox and outside
