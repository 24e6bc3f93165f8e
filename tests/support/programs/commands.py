"""Run commands of mx-metrics in one process, one after the other: commands.py COMMANDS.json

``COMMANDS.json`` is a list of argument lists; printed is a list of exit code, standard output and
standard error of each. Files are spread over processes however small they are.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

from mx_exporter.cli.main import main
from mx_exporter.offline.engines import process_pool


def run(arguments: list[str]) -> tuple[int, str, str]:
    """Run one, with its output in files."""
    kept = [os.dup(fd) for fd in (1, 2)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        for fd, file in ((1, out), (2, err)):
            os.dup2(file.fileno(), fd)
        try:
            code = main(arguments)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for fd, was in zip((1, 2), kept, strict=True):
                os.dup2(was, fd)
                os.close(was)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace"))
    return code, texts[0], texts[1]


process_pool.WORTH_SPREADING = 0
with open(sys.argv[1]) as file:
    commands = json.load(file)
json.dump([run(arguments) for arguments in commands], sys.stdout)
