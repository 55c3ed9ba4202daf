"""What is remembered between generations: four memories over one SQLite file. See docs/memory.md.

with MemorySystem("memory.sqlite", features=features, width=8) as memory, memory.generation(1):
    recall = memory.recall_patterns(requirements, context)
    memory.store_experience(Experience(requirements, workflow, performance, context), priority=0.9)
"""

from groupwise.memory.contexts import Context, ContextualMemory
from groupwise.memory.experiences import Experience, ExperienceMemory, ReplayedExperiences
from groupwise.memory.patterns import Pattern, PatternMemory, Recall
from groupwise.memory.store import Store
from groupwise.memory.system import MemorySystem
from groupwise.memory.working import WorkingMemory

__all__ = [
    "Context",
    "ContextualMemory",
    "Experience",
    "ExperienceMemory",
    "MemorySystem",
    "Pattern",
    "PatternMemory",
    "Recall",
    "ReplayedExperiences",
    "Store",
    "WorkingMemory",
]
