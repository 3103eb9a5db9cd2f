"""What drives tasks: a task's function runs, and the journal's requests are carried out.

Internal. It uses `stores`, `log`, `codec` and `core`. Read `driver` first (what a run asks for),
then `sync_driver` and `async_driver` (how sync and async code wait), and `run` (what a run is).
`local` drives in this process, `remote` has what every cluster needs, `temporal` and `restate` are
two of them.
"""
