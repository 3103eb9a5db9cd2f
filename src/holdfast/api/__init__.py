"""The parts that users touch: `Holdfast`, the decorators, and what a task's function may call.

Internal by its path: users import these names from `holdfast`. It uses `views`, `upkeep`,
`history`, `engines`, `stores`, `log`, `codec` and `core`. Rooms that are built on it (`agent`,
`workspace`) are reached by name, through a door in `app`. Read `app` first, then `tasks` and
`steps`.
"""
