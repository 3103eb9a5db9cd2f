"""The looks of a task, from its log alone: one task, its events in words,
its audit, figures, and SQL over many.

Internal. Nothing here drives or changes a task. It uses `history`, `stores`, `log` and `core`.
Read `task` first: a `TaskView` is what `hf.task(id)` returns. `words` says every event in words.
"""
