"""One log: appended to by its one writer, sealed line by line, read, verified, and folded.

Internal. It needs a store only as a type, so it stands below them; it uses `codec` and `core`. Read
`reading` first, then `log` (the writer) and `past` (any state of a log, by the nearest waypoint).
"""
