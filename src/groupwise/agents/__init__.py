"""Language-model agents. So far: single answers to verifiable tasks, and a supervised warm start for them."""
