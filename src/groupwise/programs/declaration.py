"""What the package knows of the programs product before a run asks for it."""

from groupwise.config.sections import LanguageSettings, SamplingSettings
from groupwise.products import Product

CODE = Product(
    name="code",
    summary="a language model and a tree search learn to write programs",
    implementation="groupwise.programs.learning.product",
    sections=(SamplingSettings, LanguageSettings),
)
