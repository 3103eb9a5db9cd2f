"""One module a contender, each with `run(n, folder) -> float`: the seconds n steps took.

Set-up and imports are not timed. `notes` may say what a reader of the number has to know.
A contender whose packages are missing fails to import, and the report says so.
"""
