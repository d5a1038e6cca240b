"""Text files, plain or compressed by suffix (.gz, .zst), read to their very end or not at all."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from headway.simulator.files import open_file

CHUNK = 1 << 20
LONGEST_LINE = 1 << 26


def chunks(path: Path) -> Iterator[bytes]:
    """The uncompressed bytes. Raises ValueError where a compressed file is cut off or damaged."""
    try:
        with open_file(path) as file:
            yield from _uncompressed(path, file)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from error


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered from 1, without their ends; empty ones are left out."""
    rest, number = b"", 0
    for chunk in chunks(path):
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > LONGEST_LINE:
            raise ValueError(f"{path}:{number + len(whole) + 1}: the line is too long")
        for line in whole:
            number += 1
            if line.strip():
                yield number, line
    if rest.strip():
        yield number + 1, rest


def write_lines(path: Path, content: Iterable[bytes]) -> None:
    """Writes a file whole: what fails on the way leaves what was there before."""
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file, _compressing(path, file) as target:
            for line in content:
                target.write(line + b"\n")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _uncompressed(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    raw = iter(lambda: file.read(CHUNK), b"")
    if path.suffix == ".zst":
        return _members(path, raw, _zstandard(path).ZstdDecompressor().decompressobj)
    if path.suffix == ".gz":
        return _members(path, raw, lambda: zlib.decompressobj(wbits=31))
    return raw


def _members(path: Path, raw: Iterator[bytes], new: Any) -> Iterator[bytes]:
    """Members or frames one after another, each of which must reach its end."""
    current, started = new(), True
    for compressed in raw:
        data = compressed
        while data:
            try:
                yield current.decompress(data)
            except Exception as error:  # zlib.error and ZstdError have no common base
                raise ValueError(f"{path}: is damaged: {error}") from error
            data = b""
            if current.eof:
                data, current = current.unused_data, new()
                started = bool(data)
            else:
                started = True
    if started:
        raise ValueError(f"{path}: is cut off or damaged")


def _compressing(path: Path, file: IO[bytes]) -> Any:
    if path.suffix == ".zst":
        compressor = _zstandard(path).ZstdCompressor(write_checksum=True)
        return compressor.stream_writer(file, closefd=False)
    # No time and no name in the header: equal contents make equal files.
    return gzip.GzipFile("", "wb", fileobj=file, mtime=0) if path.suffix == ".gz" else _Plain(file)


class _Plain:
    """A file that is left open: who opened it closes it."""

    def __init__(self, file: IO[bytes]) -> None:
        self.write = file.write

    def __enter__(self) -> _Plain:
        return self

    def __exit__(self, *error: object) -> None:
        del error


def _zstandard(path: Path) -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise ValueError(f"{path}: .zst needs the package zstandard: pip install it") from error
    return zstandard
