"""What the package knows of the designer before a run asks for it."""

from groupwise.config.sections import GenerationSettings, MemorySettings, ScoringSettings
from groupwise.products import Product

DESIGNER = Product(
    name="designer",
    summary="a graph policy learns to design workflows for requirements",
    implementation="groupwise.designer.product",
    sections=(GenerationSettings, MemorySettings, ScoringSettings),
)
