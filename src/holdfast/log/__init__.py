"""One log: appended to by its one writer, sealed line by line, read, verified, and folded.

Internal. It needs a store only as a type, so it stands below them; it uses `codec` and `core`. Read
`states` first (`load` is the way to a state), then `reading` (lines as events) and `log` (the
writer).
"""
