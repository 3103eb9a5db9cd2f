"""Looking after a store: tasks are copied, moved, archived, restored and deleted.

Internal. It uses `engines` (to hold what it touches), `stores`, `log` and `core`. Read `copying`
first for tasks on their way to another store, `sweeping` for those that go for good.
"""
