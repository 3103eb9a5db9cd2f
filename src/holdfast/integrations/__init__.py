"""Doors into other people's tools: one module for each framework and each protocol.

A module is imported by its own name, such as `holdfast.integrations.otel`, and loads its framework
only then. This package imports none of them, so one that is not installed costs nothing. The extra
in `pyproject.toml` has the name of the module: `pip install 'holdfast[otel]'`.

Public, by the names in each module's `__all__`. It uses `workspace`, `agent`, `api` and everything
below. No two of its doors use each other, except that `langchain` stands on `langgraph`, as
LangChain does. All use `frameworks`, which refuses versions of a framework that were not tested.
Integrations that journal a framework's calls use `calls`. Read the module of your framework first.
"""
