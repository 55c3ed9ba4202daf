"""The generation engine for Hugging Face causal language models."""

from groupwise.language.engine.engine import Engine
from groupwise.language.engine.request import EndOfText, Sampled, SamplingParams

__all__ = ["EndOfText", "Engine", "Sampled", "SamplingParams"]
