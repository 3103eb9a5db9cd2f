"""The floor: append a line, sync the file, n times. Everybody's ratio is to this."""

import os
import time
from pathlib import Path

LINE = b"x" * 299 + b"\n"

notes = ["300-byte line and fdatasync"]


def run(n: int, folder: Path) -> float:
    file = os.open(folder / "raw.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        start = time.perf_counter()
        for _ in range(n):
            os.write(file, LINE)
            os.fdatasync(file)
        return time.perf_counter() - start
    finally:
        os.close(file)
