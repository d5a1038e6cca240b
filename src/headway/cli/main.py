"""`headway COMMAND`: each command is imported when it is asked for."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence

_USAGE = """\
usage: headway COMMAND [MODEL] [flags]

  serve        answer over HTTP, as OpenAI's API does
  chat         talk to a model in the terminal
  complete     let a model go on with a text
  run-batch    answer the requests of a file, without a server
  plan         before a launch: what fits, how fast, and the flags to use
  simulate     serve a workload without an engine, and say what would happen
  sweep        simulate for each value of a flag
  replay       decide a recording again, as it was or under other flags
  bench        put a load on any OpenAI-compatible server and measure it
  explain      say where a request's time went, and because of whom
  doctor       say which wall binds a server or a recording, and what to change
  calibrate    measure how long this machine's steps take, for the simulator
  verify       say whether answers depend on who asks at the same time
  collect-env  versions, processor, memory: what a report of a fault should say

headway COMMAND --help lists the flags; headway --version prints the version.
"""


def _serve(argv: Sequence[str]) -> int:
    from headway.cli.serve import main

    return main(argv)


def _chat(argv: Sequence[str]) -> int:
    from headway.cli.chat import main

    return main(argv)


def _complete(argv: Sequence[str]) -> int:
    from headway.cli.complete import main

    return main(argv)


def _run_batch(argv: Sequence[str]) -> int:
    from headway.cli.run_batch import main

    return main(argv)


def _plan(argv: Sequence[str]) -> int:
    from headway.cli.plan import main

    return main(argv)


def _simulate(argv: Sequence[str]) -> int:
    from headway.cli.simulate import main

    return main(argv)


def _sweep(argv: Sequence[str]) -> int:
    from headway.cli.simulate import main

    return main(argv, command="sweep")


def _replay(argv: Sequence[str]) -> int:
    from headway.cli.replay import main

    return main(argv)


def _bench(argv: Sequence[str]) -> int:
    from headway.cli.bench.command import main

    return main(argv)


def _doctor(argv: Sequence[str]) -> int:
    from headway.cli.doctor import main

    return main(argv)


def _explain(argv: Sequence[str]) -> int:
    from headway.cli.explain import main

    return main(argv)


def _calibrate(argv: Sequence[str]) -> int:
    from headway.cli.calibrate import main

    return main(argv)


def _verify(argv: Sequence[str]) -> int:
    from headway.cli.verify import main

    return main(argv)


def _collect_env(argv: Sequence[str]) -> int:
    from headway.cli.collect_env import main

    return main(argv)


_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "serve": _serve,
    "chat": _chat,
    "complete": _complete,
    "run-batch": _run_batch,
    "plan": _plan,
    "simulate": _simulate,
    "sweep": _sweep,
    "replay": _replay,
    "explain": _explain,
    "bench": _bench,
    "doctor": _doctor,
    "calibrate": _calibrate,
    "verify": _verify,
    "collect-env": _collect_env,
}
_LASTING = frozenset({"serve", "chat"})  # they end when somebody ends them


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 2 for a command line that cannot be served."""
    # numpy multiplies no matrices here, and its threads take a while to start.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    words = list(sys.argv[1:] if argv is None else argv)
    command, rest = (words[0], words[1:]) if words else ("", [])
    try:
        if command in _LASTING and not {"--help", "-h"} & set(rest):
            return _COMMANDS[command](rest)
        return _printed(f"headway {command}" if command in _COMMANDS else "headway", command, rest)
    except KeyboardInterrupt:  # before the command was ready for it
        return 128 + signal.SIGINT


def _printed(name: str, command: str, argv: Sequence[str]) -> int:
    """Runs what prints and ends, up to the end of its printing."""
    if sys.stdout is None:  # closed, as by `>&-`
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end
    try:
        code = _ran(command, argv)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has enough, as in `| head`
        _print_no_more()
        return 128 + signal.SIGPIPE
    except OSError as error:
        _print_no_more()
        what = error.filename or "standard output"
        print(f"{name}: {what}: {error.strerror or error}", file=sys.stderr)
        return 1
    except (OverflowError, RecursionError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        what = "a number is too large or too small, or a file nested too deeply"
        print(f"{name}: {what} to work with: {reason}", file=sys.stderr)
        return 2
    return code


def _print_no_more() -> None:
    """What is still in the buffer goes nowhere, so that the interpreter's end is quiet."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _ran(command: str, argv: Sequence[str]) -> int:
    if command in _COMMANDS:
        return _COMMANDS[command](argv)
    if command in ("--version", "-V"):
        from headway import __version__

        print(f"headway {__version__}")
        return 0
    if command in ("--help", "-h"):
        print(_USAGE, end="")
        return 0
    what = f"there is no command {command!r}" if command else "a command is missing"
    print(f"headway: {what}: one of {', '.join(_COMMANDS)}; see headway --help", file=sys.stderr)
    return 2
