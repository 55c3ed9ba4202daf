"""A language model learns to write programs: search finds them, GRPO teaches them, and the search starts better."""
