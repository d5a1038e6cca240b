"""A simulated run written down as a server's is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headway.drive.ports import StepListener
from headway.drive.recorder import Recorder
from headway.drive.recording import RecordingHeader, recorded_settings, write_line
from headway.engine.record_file import RecordFile
from headway.simulator.config import Setup
from headway.simulator.result import Result

_SALT = b"simulated"  # nobody wrote these texts
_FACTS = ("model", "hardware", "step_time")


def recorded_run(setup: Setup, path: str, step_listeners: Iterable[StepListener] = ()) -> Result:
    """Run it and add its recording to the file. Raises ValueError as both do."""
    file = RecordFile(path)
    facts = setup.facts
    model = facts.get("model")
    header = RecordingHeader(
        start_ns=0,
        num_blocks=setup.num_blocks,
        scheduler=recorded_settings(setup.config),
        model=(
            dict(model)  # as it was recorded
            if isinstance(model, Mapping)
            else {name: str(facts[name]) for name in _FACTS if name in facts}
        ),
    )
    file.write(write_line(header))
    recorder = Recorder(file.write, salt=_SALT, block_size=setup.config.block_size)
    try:
        return setup.run(step_listeners, recorder)
    finally:
        recorder.write_steps()
        file.close()
