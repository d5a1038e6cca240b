"""The file behind --record: refused at the start or never the engine's problem."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from headway.drive.record import StepRecord
from headway.drive.recorder import Recorder
from headway.engine import record_file
from headway.engine.record_file import RecordFile
from headway.engine.recording import RunningRecording


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/nowhere/at/all.jsonl", "record: cannot write '/nowhere/at/all.jsonl': .*No such file"),
        ("/", "record: cannot write '/'"),
        ("trace.jsonl.gz", "asks for gzip: name it .jsonl.zst or .jsonl"),
    ],
)
def test_a_file_that_cannot_be_written_is_a_sentence_at_the_start(path: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        RecordFile(path)


def test_lines_are_appended_and_half_a_line_is_ended_first(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    for text in ("one", "two"):
        file = RecordFile(str(path))
        file.write(text)
        file.close()
    assert path.read_text() == "one\ntwo\n"
    path.write_text("one\nhal")
    file = RecordFile(str(path))
    file.write("two")
    file.close()
    assert path.read_text() == "one\nhal\ntwo\n"


def test_lines_reach_the_file_once_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.jsonl"
    file = RecordFile(str(path))
    file.write("one")
    assert path.read_text() == ""
    monkeypatch.setattr(record_file, "_FLUSH_NS", 0)
    file.write("two")
    assert path.read_text() == "one\ntwo\n"
    file.write("three")
    file.flush()
    file.close()
    file.write("after the end")
    assert path.read_text() == "one\ntwo\nthree\n"


def test_each_flush_is_a_zstd_frame_that_can_be_read_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.zst"
    for lines in (["one", "two"], ["three"]):
        file = RecordFile(str(path))
        for line in lines:
            file.write(line)
            file.flush()
        file.close()
    left, texts = path.read_bytes(), []
    while left:
        frame = zstandard.ZstdDecompressor().decompressobj()
        texts.append(frame.decompress(left))
        assert frame.eof
        left = frame.unused_data
    assert texts == [b"one\n", b"two\n", b"three\n"]


def test_many_lines_are_not_kept_until_the_second_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_file, "_BUFFER_CHARS", 10)
    path = tmp_path / "trace.jsonl"
    file = RecordFile(str(path))
    for _ in range(3):
        file.write("12345")
    assert path.read_text() == "12345\n12345\n"


@pytest.mark.parametrize("how", ["write", "flush", "close"])
def test_a_full_disk_ends_the_recording_with_one_line(
    how: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RecordFile("/dev/full")
    if how == "write":
        monkeypatch.setattr(record_file, "_FLUSH_NS", 0)
    for _ in range(3):
        file.write("x" * 100)
        if how != "write":
            getattr(file, how)()
    file.close()
    assert capsys.readouterr().err.count("headway engine: recording to '/dev/full' ends: ") == 1


def test_a_step_without_events_is_in_the_file_when_the_recording_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    file = RecordFile(str(path))
    recording = RunningRecording(Recorder(file.write, salt=b"", block_size=4), file)
    for index in range(2):
        recording.recorder.on_step(StepRecord(index=index, start_ns=0, end_ns=1, chunks=()))
        if index == 0:
            recording.flush()
            assert path.read_text().count("step") == 1
    recording.close()
    assert path.read_text().count("step") == 2
