"""Recordings on disk, as they are or compressed, read up to where they break off."""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol

from headway.drive.recording import Entry, Recording, RecordingHeader, read_entries
from headway.simulator.files import open_file

_BYTES_AT_ONCE = 1 << 16
_COMPRESSED_AT_ONCE = 1 << 12  # of zstd 3 bytes may be 128 KiB
_MOST_LINE_BYTES = 1 << 24
_MOST_HELD_BYTES = 1 << 26  # of a frame whose end has not come yet


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


class _Compression(NamedTuple):
    magic: bytes  # what each frame begins with
    decompressor: Callable[[], _Decompressor]
    error: type[Exception]


def load_recordings(path: str | Path) -> list[Recording]:
    """All recordings of a file, in memory: one for each start of the engine.

    Raises ValueError with a sentence, file and line, for what is not a recording.
    """
    return [Recording(header, list(entries)) for header, entries in stored_recordings(path)]


def stored_recordings(path: str | Path) -> Iterator[tuple[RecordingHeader, Iterator[Entry]]]:
    """Each recording of a file, its entries read as they are asked for, before the next is."""
    entries = stored_entries(path)
    headers = [entry for entry in islice(entries, 1) if isinstance(entry, RecordingHeader)]

    def of_one() -> Iterator[Entry]:
        for entry in entries:
            if isinstance(entry, RecordingHeader):
                headers.append(entry)
                return
            yield entry

    while headers:
        own = of_one()
        yield headers.pop(), own
        for _ in own:  # whatever was not asked for
            pass


def stored_entries(path: str | Path) -> Iterator[RecordingHeader | Entry]:
    """The entries of a file, read as they are asked for; raises as `load_recordings` does."""
    is_empty = True
    try:
        for entry in read_entries(read_lines(path)):
            is_empty = False
            yield entry
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if is_empty:
        raise ValueError(f"{path}: there is no recording in it, which begins with its header")


def read_lines(path: str | Path) -> Iterator[str]:
    """Lines of a text file, through gzip or zstd where it ends in .gz or .zst.

    A compressed file may break off anywhere, and go on with a new frame behind the break: what can
    be decompressed is read. Raises ValueError when the file cannot be opened, or for a line of more
    than 16 MiB.
    """
    held: list[bytes] = []  # of the line whose end has not come
    num_held = 0
    for content in _contents(Path(path)):
        first, *others = content.split(b"\n")
        held.append(first)
        num_held += len(first)
        if others:
            yield b"".join(held).decode(errors="replace")
            *lines, last = others
            for line in lines:
                yield line.decode(errors="replace")
            held, num_held = [last], len(last)
        if num_held > _MOST_LINE_BYTES:
            raise ValueError(f"a line is longer than {_MOST_LINE_BYTES >> 20} MiB: no text file")
    if num_held:
        yield b"".join(held).decode(errors="replace")


def _contents(path: Path) -> Iterator[bytes]:
    try:
        with open_file(path) as file:
            compression = _compression_of(path)
            if compression is None:
                while content := file.read(_BYTES_AT_ONCE):
                    yield content
            elif path.stat().st_size:
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                    yield from _frames(mapped, compression)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error


def _compression_of(path: Path) -> _Compression | None:
    if path.suffix == ".gz":
        return _Compression(b"\x1f\x8b\x08", lambda: zlib.decompressobj(31), zlib.error)
    if path.suffix != ".zst":
        return None
    import zstandard

    def decompressor() -> _Decompressor:
        return zstandard.ZstdDecompressor().decompressobj()

    return _Compression(zstandard.FRAME_HEADER, decompressor, zstandard.ZstdError)


def _frames(mapped: mmap.mmap, compression: _Compression) -> Iterator[bytes]:
    """Frame by frame; behind one that breaks off, from wherever the next begins."""
    start = 0
    while start < len(mapped):
        whole = _Frame(mapped, start, len(mapped), compression)
        yield from whole.contents()
        if whole.is_whole:
            start = whole.end
            continue
        next_start = mapped.find(compression.magic, start + 1)
        stop = len(mapped) if next_start < 0 else next_start
        if not whole.was_given_out:
            yield from _Frame(mapped, start, stop, compression).beginning()
        yield b"\n"  # so that nothing is glued to half a line
        start = stop


class _Frame:
    """A frame that begins at `start`. What is in it is trusted once its end has been seen."""

    def __init__(self, mapped: mmap.mmap, start: int, stop: int, compression: _Compression) -> None:
        self._mapped = mapped
        self._start = start
        self._stop = stop
        self._compression = compression
        self.end = start
        self.is_whole = False
        self.was_given_out = False

    def contents(self) -> Iterator[bytes]:
        """Nothing of a frame that breaks off, unless it is too long to be held back."""
        held: list[bytes] = []
        num_held = 0
        for content in self.beginning():
            held.append(content)
            num_held += len(content)
            if num_held > _MOST_HELD_BYTES:
                self.was_given_out = True
                yield from held
                held, num_held = [], 0
        if self.is_whole:
            yield from held

    def beginning(self) -> Iterator[bytes]:
        """As much as can be decompressed."""
        decompressor = self._compression.decompressor()
        for at in range(self._start, self._stop, _COMPRESSED_AT_ONCE):
            until = min(at + _COMPRESSED_AT_ONCE, self._stop)
            try:
                yield decompressor.decompress(self._mapped[at:until])
            except self._compression.error:
                return
            if decompressor.eof:
                self.is_whole = True
                self.end = until - len(decompressor.unused_data)
                return
