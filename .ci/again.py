"""Run the few tests that failed once more, one at a time, and tell a defect from chance.

Hundreds of tests here kill processes and wait for servers, four at once on two cores. A test that
fails beside others and passes alone has a race, in itself or in Holdfast. This says so loudly and
names it: mend its cause. A test that fails twice fails the run, and so does every failure when
there are many, or when pytest could not run to its end.

    python .ci/again.py CODE PYTHON     CODE is how pytest ended the first time
"""

import json
import os
import subprocess
import sys
from pathlib import Path

SOME_FAILED = 1
MOST = 6
FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main(code: int, python: str) -> int:
    if code != SOME_FAILED or not FAILED.exists():
        return code
    names = sorted(json.loads(FAILED.read_text()))
    if not names or len(names) > MOST:
        return code
    print(f"\n{len(names)} failed beside others; once more, alone:", flush=True)
    command = [python, "-m", "pytest", "-n0", "--last-failed", "--last-failed-no-failures", "none"]
    again = subprocess.run(command, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}).returncode
    if again == 0:
        print("\nFAILED BY CHANCE: these failed beside others and passed alone. Mend their cause.")
        print("\n".join(f"  {name}" for name in names))
    return again


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2]))
