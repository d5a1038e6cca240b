"""A recording of this engine: its header, its recorder and its file, put together."""

from __future__ import annotations

import os
from dataclasses import dataclass

from headway.core.scheduler import Scheduler
from headway.drive.recorder import Recorder
from headway.drive.recording import RecordingHeader, recorded_settings, write_line
from headway.engine.clock import RealClock
from headway.engine.record_file import RecordFile
from headway.wire import EngineFacts

_MODEL_FACTS = (
    "model",
    "dtype",
    "quantization",
    "backend",
    "num_threads",
    "vocab_size",
    "kv_cache_dtype",
    "kv_bytes_per_token",
)


@dataclass(frozen=True, slots=True)
class RunningRecording:
    recorder: Recorder
    file: RecordFile

    def flush(self) -> None:
        self.recorder.write_steps()
        self.file.flush()

    def close(self) -> None:
        self.recorder.write_steps()
        self.file.close()


def start_recording(path: str, scheduler: Scheduler, facts: EngineFacts) -> RunningRecording:
    """Open the file and write the header. Raises ValueError if the file cannot be written."""
    file = RecordFile(path)
    header = RecordingHeader(
        start_ns=RealClock().now_ns(),
        num_blocks=scheduler.pool.num_blocks,
        scheduler=recorded_settings(scheduler.config),
        model={name: getattr(facts, name) for name in _MODEL_FACTS},
    )
    file.write(write_line(header))
    block_size = scheduler.config.block_size
    return RunningRecording(Recorder(file.write, salt=os.urandom(16), block_size=block_size), file)
