"""Workflows: requirements, designs, whether they are sound, how they perform, and files that engines accept."""
