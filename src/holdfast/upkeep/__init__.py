"""Looking after a store: tasks are copied, moved, archived, restored and deleted.

Internal. It uses `engines` (to hold what it touches), `stores`, `log` and `core`. Read `copies`
first for how tasks reach another store, and `sweep` for how they are deleted.
"""
