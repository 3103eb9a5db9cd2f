"""Looking back: what a task knew, going another way from there, and two tasks side by side.

Internal. It uses `engines` (a replay runs code), `stores`, `log`, `codec` and `core`. Read
`snapshots` first; `forks` and `rewinds` begin at a place that `log.places` finds, `replay` runs the
code over a log, `comparison` finds the first divergence.
"""
