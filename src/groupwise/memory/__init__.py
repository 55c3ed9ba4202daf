"""What a run remembers between generations, and runs from each other: four memories over one SQLite file.

    with MemorySystem("memory.sqlite", features=features, width=8) as memory, memory.generation(1):
        recall = memory.recall_patterns(requirements, context)
        memory.store_experience(Experience(requirements, workflow, performance, context), priority=0.9)

Start with `system`, the face that runs use. In the order in which data flows:

    system         MemorySystem: the four memories together, among them the latest activities, in order
    experiences    what was tried and how it went, replayed by priority
    patterns       what worked before, recalled by the similarity of situations
    contexts       what is known about a family of situations, such as a domain
    fingerprint    notices features that are computed differently than before
    vectors        feature vectors as directions, columns of numbers, and how unused things fade
    store          records with a history in SQLite: everything written carries its generation and can be rewound
    run_start      a memory that a training run uses, as the run's first attempt found it
    file           the file itself: locked by one process, set aside if it cannot be used

Vectors say how similar two situations are; the functions that compute them come from the user. See docs/memory.md.
"""

from groupwise.memory.contexts import Context, ContextualMemory
from groupwise.memory.experiences import Experience, ExperienceMemory, ReplayedExperiences
from groupwise.memory.patterns import Pattern, PatternMemory, Recall
from groupwise.memory.store import Store
from groupwise.memory.system import MemorySystem, WorkingMemory

__all__ = [
    "Context", "ContextualMemory", "Experience", "ExperienceMemory", "MemorySystem", "Pattern", "PatternMemory",
    "Recall", "ReplayedExperiences", "Store", "WorkingMemory",
]  # fmt: skip
