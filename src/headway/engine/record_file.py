"""The file behind `--record`: lines in, flushed every second, and never the engine's problem."""

from __future__ import annotations

import contextlib
import sys
from typing import TextIO

from headway.engine.clock import RealClock

_FLUSH_NS = 1_000_000_000
_BUFFER_BYTES = 1 << 18


class RecordFile:
    """Appends, so that a restarted engine keeps what the one before it recorded.

    Raises ValueError with a sentence when the file cannot be written from the start. A later
    failure ends the recording with one line on stderr, and nothing else.
    """

    def __init__(self, path: str) -> None:
        if path.endswith((".zst", ".gz")):
            raise ValueError(
                f"record: {path!r} asks for compression, which Headway does not do: name it "
                f".jsonl and compress it afterwards"
            )
        self._path = path
        self._clock = RealClock()
        self._flushed_ns = self._clock.now_ns()
        try:
            self._file: TextIO | None = open(  # noqa: SIM115 - it lives as long as the engine
                path, "a+", buffering=_BUFFER_BYTES, encoding="utf-8"
            )
            self._end_cut_off_line(self._file)
        except (OSError, ValueError) as error:
            raise ValueError(f"record: cannot write {path!r}: {error}") from error

    def write(self, line: str) -> None:
        if self._file is None:
            return
        try:
            self._file.write(line + "\n")
            now_ns = self._clock.now_ns()
            if now_ns - self._flushed_ns >= _FLUSH_NS:
                self._file.flush()
                self._flushed_ns = now_ns
        except OSError as error:
            self._give_up(error)

    def flush(self) -> None:
        if self._file is None:
            return
        try:
            self._file.flush()
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _give_up(self, error: OSError) -> None:
        print(f"headway engine: recording to {self._path!r} ends: {error}", file=sys.stderr)
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()

    def _end_cut_off_line(self, file: TextIO) -> None:
        """An engine that was killed leaves half a line, to which nothing must be glued."""
        if not file.seekable() or not (end := file.seek(0, 2)):
            return
        with open(self._path, "rb") as bytes_of_it:
            bytes_of_it.seek(end - 1)
            if bytes_of_it.read(1) != b"\n":
                file.write("\n")
