"""Runs many commands, each in a fork of this process and in a folder of its own.

python -P every_command.py < cases.json: a list of [folder, [word, …]]. Prints for each the exit
code and what it wrote to standard error.
"""

import json
import os
import signal
import sys
import tempfile

from holdfast.cli.root import root


def run(folder: str, words: list[str]) -> tuple[int, str]:
    with tempfile.TemporaryFile() as errors:
        child = os.fork()
        if not child:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for number, to in enumerate((nowhere, nowhere, errors.fileno())):
                os.dup2(to, number)
            os.chdir(folder)
            signal.alarm(60)  # a command that waits for something ends all the same
            os._exit(_code(words))
        _, status = os.waitpid(child, 0)
        errors.seek(0)
        return os.waitstatus_to_exitcode(status), errors.read().decode()


def _code(words: list[str]) -> int:
    try:
        root.main(words, prog_name="holdfast")
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        return int(end.code or 0)


if __name__ == "__main__":
    print(json.dumps([run(folder, words) for folder, words in json.load(sys.stdin)]))
