"""What a task is for, and the files that belong to it."""

from __future__ import annotations

from holdfast import events as e
from holdfast.fold.waits import took
from holdfast.state import KeptFile, State


def mission_set(state: State, event: e.MissionSet) -> None:
    state.mission = event.text
    took(state, event.post)


def file_kept(state: State, event: e.FileKept) -> None:
    kept = KeptFile(event.name, event.file, event.at, event.seq, event.path, event.by)
    state.files[event.name] = kept
    state.kept.append(kept)
    _changed(state, event)


def file_removed(state: State, event: e.FileRemoved) -> None:
    state.files.pop(event.name, None)
    _changed(state, event)


def _changed(state: State, event: e.FileKept | e.FileRemoved) -> None:
    if event.mark:
        state.marks[event.mark] = event.seq
    took(state, event.post)
