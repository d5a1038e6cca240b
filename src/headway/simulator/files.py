"""Files that somebody names on a command line."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import IO


def open_file(path: Path) -> IO[bytes]:
    """To be read. Raises OSError, too, for a pipe or a device: who opens one may wait for ever."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.ESPIPE, "it is a pipe or a device: save what comes from it first")
    return path.open("rb")
