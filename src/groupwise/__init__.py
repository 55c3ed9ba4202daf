"""Groupwise: Group Relative Policy Optimization for agents, workflows and control."""

__version__ = "0.1.0"
