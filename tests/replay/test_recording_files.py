"""Recordings on disk: whole, compressed, broken off anywhere, taken up again behind the break."""

from __future__ import annotations

import gzip
import subprocess
import sys
import time
from pathlib import Path

import pytest
import zstandard

from headway.drive.recording import CacheReset, RecordingHeader, write_line
from headway.replay import files
from headway.replay.files import load_recordings, read_lines, stored_entries

HEADER = write_line(RecordingHeader(start_ns=0, num_blocks=9, scheduler={}, model={}))
LINES = [HEADER, *(write_line(CacheReset(at_ns=at)) for at in range(400))]
TEXT = "".join(line + "\n" for line in LINES).encode()


def zstd(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(content)


COMPRESS = {"": bytes, ".gz": gzip.compress, ".zst": zstd}


@pytest.fixture(params=COMPRESS)
def suffix(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def resets(path: Path) -> list[list[int]]:
    return [[entry.at_ns for entry in r.entries] for r in load_recordings(path)]


def test_frames_follow_one_another_and_lines_run_across_them(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"day.jsonl{suffix}"
    pieces = [TEXT[:3], TEXT[3:2000], b"", TEXT[2000:]]
    path.write_bytes(b"".join(COMPRESS[suffix](piece) for piece in pieces))
    assert list(read_lines(path)) == LINES
    assert resets(path) == [list(range(400))]


def test_a_file_is_read_up_to_where_it_breaks_off(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"day.jsonl{suffix}"
    first, second = COMPRESS[suffix](TEXT[:9000]), COMPRESS[suffix](TEXT[9000:])
    for cut in (len(second) - 1, len(second) // 2, 1):
        path.write_bytes(first + second[:cut])
        [read] = resets(path)
        assert read == list(range(len(read)))
        assert len(read) >= 200


def test_a_restart_behind_a_break_loses_nothing_of_what_follows(
    tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"day.jsonl{suffix}"
    first, second = COMPRESS[suffix](TEXT[:9000]), COMPRESS[suffix](TEXT[9000:])
    end_of_line = b"\n" if not suffix else b""
    path.write_bytes(first + second[: len(second) // 2] + end_of_line + COMPRESS[suffix](TEXT))
    broken, whole = resets(path)
    assert len(broken) >= 200
    assert whole == list(range(400))


def test_a_long_frame_is_not_held_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MOST_HELD_BYTES", 1000)
    path = tmp_path / "day.jsonl.zst"
    path.write_bytes(zstd(TEXT)[:-1])
    assert resets(path) == [list(range(400))]
    path.write_bytes(zstd(TEXT))
    assert resets(path) == [list(range(400))]


def test_entries_come_as_they_are_asked_for(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"day.jsonl{suffix}"
    path.write_bytes(COMPRESS[suffix](TEXT + b"garbage\n" * 2))
    entries = stored_entries(path)
    assert isinstance(next(entries), RecordingHeader)
    assert next(entries) == CacheReset(at_ns=0)
    with pytest.raises(ValueError, match=r"day\.jsonl.*: line 402: not a line of a recording"):
        list(entries)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"garbage\n", b'{"kind":"hea'])
def test_what_has_no_recording_in_it_is_told_so(
    tmp_path: Path, suffix: str, content: bytes
) -> None:
    path = tmp_path / f"day.jsonl{suffix}"
    path.write_bytes(COMPRESS[suffix](content))
    with pytest.raises(ValueError, match=r"day\.jsonl.*: there is no recording in it"):
        load_recordings(path)


def test_what_is_not_there_or_not_compressed_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.jsonl: cannot be read: No such file"):
        load_recordings(tmp_path / "none.jsonl")
    path = tmp_path / "plain.jsonl.zst"
    path.write_bytes(TEXT)
    with pytest.raises(ValueError, match="there is no recording in it"):
        load_recordings(path)


def test_a_newer_recording_is_refused_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "day.jsonl"
    path.write_bytes(TEXT + HEADER.replace('"version":2', '"version":3').encode())
    with pytest.raises(ValueError, match=r"day\.jsonl: line 402: a recording of version 3; this"):
        load_recordings(path)


WRITER = """
import sys
from headway.engine import record_file
record_file._FLUSH_NS = 20_000_000
file = record_file.RecordFile(sys.argv[1])
number = 0
while True:
    file.write(str(number))
    number += 1
"""


@pytest.mark.parametrize("name", ["day.jsonl", "day.jsonl.zst"])
def test_a_killed_engine_leaves_all_but_its_last_flush(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for _ in range(2):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)]) as writer:
            size = path.stat().st_size if path.exists() else 0
            deadline = time.monotonic() + 30
            while (not path.exists() or path.stat().st_size <= size) and writer.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.005)
            time.sleep(0.1)
            writer.kill()
    lines = list(read_lines(path))
    again = lines.index("0", 1)
    first, second = lines[:again], lines[again:]
    for numbers in (first, second):
        whole = [line for line in numbers if line][:-1]  # the last may be cut off
        assert len(whole) > 1000
        assert whole == [str(number) for number in range(len(whole))]


def test_a_line_may_run_across_many_pieces(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"long{suffix}"
    long = "x" * 3_000_000
    path.write_bytes(COMPRESS[suffix](f"{long}\n\nb\n{long}".encode()))
    assert list(read_lines(path)) == [long, "", "b", long]


def test_a_line_without_end_is_no_line(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"endless{suffix}"
    path.write_bytes(COMPRESS[suffix](b"a\n" + b"x" * (17 << 20)))
    lines = read_lines(path)
    assert next(lines) == "a"
    with pytest.raises(ValueError, match="longer than 16 MiB"):
        next(lines)
