"""The room that decides and does nothing else: no clock, disk, event loop or chance.

Internal. It uses nothing but `errors`. Read `events` first (what a log is made of), then `state`
and `fold` (events in, state out), then `journal` (what has to happen for a call to be made once).
"""
