"""Environments at message level that are ready to use, and what is needed to make one's own."""
