"""`headway COMMAND`: each command is imported when it is asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_USAGE = """\
usage: headway COMMAND [MODEL] [flags]

  serve      answer over HTTP, as OpenAI's API does
  chat       talk to a model in the terminal
  calibrate  measure how long this machine's steps take, for the simulator

headway COMMAND --help lists the flags; headway --version prints the version.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 2 for a command line that cannot be served."""
    # numpy multiplies no matrices here, and its threads take a while to start.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    words = list(sys.argv[1:] if argv is None else argv)
    command, rest = (words[0], words[1:]) if words else ("", [])
    if command in ("--version", "-V"):
        from headway import __version__

        print(f"headway {__version__}")
        return 0
    if command in ("--help", "-h"):
        print(_USAGE, end="")
        return 0
    if command == "serve":
        from headway.cli.serve import main as serve

        return serve(rest)
    if command == "chat":
        from headway.cli.chat import main as chat

        return chat(rest)
    if command == "calibrate":
        from headway.cli.calibrate import main as calibrate

        return calibrate(rest)
    what = f"there is no command {command!r}" if command else "a command is missing"
    print(f"headway: {what}: serve, chat or calibrate; see headway --help", file=sys.stderr)
    return 2
