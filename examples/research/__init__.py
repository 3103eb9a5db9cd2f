"""A research agent that does several things at once, and asks another agent for help."""
