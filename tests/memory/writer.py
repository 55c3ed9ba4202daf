"""A process that remembers, to be killed: python writer.py FILE [half]

It writes generation after generation, four experiences and a note each, and says the number of each that is kept. With
`half` it says so in the middle of one, and waits.
"""

import sys
import time

from groupwise.memory import Experience, MemorySystem

memory = MemorySystem(sys.argv[1], features=lambda requirements, context: requirements["at"], width=2)
for seq in range(memory.now + 1, 1_000_000):
    with memory.generation(seq):
        memory.working.note({"seq": seq})
        for number in range(4):
            memory.store_experience(Experience({"seq": seq}, {"number": number}, {"text": "x" * 300}, {}), 1.0)
            if number == 1 and "half" in sys.argv:
                print("half", flush=True)
                time.sleep(60)
    print(seq, flush=True)
