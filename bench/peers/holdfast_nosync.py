"""Holdfast in a folder of files, without syncs: its own cost, apart from the disk's."""

from pathlib import Path

from bench.peers import holdfast_files

notes = ["files, no syncs: survives a killed process, not a power cut"]


def run(n: int, folder: Path) -> float:
    return holdfast_files.run(n, folder, sync=False)
