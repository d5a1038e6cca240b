"""The file behind `--record`: lines in, flushed every second, and never the engine's problem."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import BinaryIO

from headway.engine.clock import RealClock

_FLUSH_NS = 1_000_000_000
_BUFFER_CHARS = 1 << 22


class RecordFile:
    """Appends, so that a restarted engine keeps what the one before it recorded.

    A name that ends in .zst asks for zstd: each flush writes a frame of its own, so that an engine
    that is killed leaves a file that can be read to the last flush. Raises ValueError with a
    sentence when the file cannot be written from the start. A later failure ends the recording with
    one line on stderr, and nothing else.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._encode = _encoder_for(path)
        self._clock = RealClock()
        self._flushed_ns = self._clock.now_ns()
        self._lines: list[str] = []
        self._num_chars = 0
        try:
            self._file: BinaryIO | None = open(path, "ab")  # noqa: SIM115 - lives as long as the engine
            if not path.endswith(".zst"):
                self._end_cut_off_line(self._file)
        except OSError as error:
            raise ValueError(f"record: cannot write {path!r}: {error}") from error

    def write(self, line: str) -> None:
        if self._file is None:
            return
        self._lines.append(line)
        self._num_chars += len(line)
        if self._num_chars >= _BUFFER_CHARS or self._clock.now_ns() - self._flushed_ns >= _FLUSH_NS:
            self.flush()

    def flush(self) -> None:
        """Hand everything to the system."""
        self._flushed_ns = self._clock.now_ns()
        if self._file is None or not self._lines:
            return
        content = "\n".join([*self._lines, ""]).encode()
        self._lines, self._num_chars = [], 0
        try:
            self._file.write(self._encode(content))
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

    def _end_cut_off_line(self, file: BinaryIO) -> None:
        """An engine that was killed leaves half a line, to which nothing must be glued."""
        if not file.seekable() or not (end := file.seek(0, 2)):
            return
        with open(self._path, "rb") as bytes_of_it:
            bytes_of_it.seek(end - 1)
            if bytes_of_it.read(1) != b"\n":
                file.write(b"\n")


def _encoder_for(path: str) -> Callable[[bytes], bytes]:
    if path.endswith(".gz"):
        raise ValueError(f"record: {path!r} asks for gzip: name it .jsonl.zst or .jsonl")
    if not path.endswith(".zst"):
        return bytes
    import zstandard

    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress
