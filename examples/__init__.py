"""Agents to read and run. Nothing in here is part of the library."""
