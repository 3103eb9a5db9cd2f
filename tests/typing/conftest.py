"""`typed_agents.py` is wrong on purpose, for type checkers: it is never imported."""

collect_ignore = ["typed_agents.py"]
