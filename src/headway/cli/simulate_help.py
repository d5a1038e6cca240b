"""What `headway simulate --help` prints."""

from __future__ import annotations

from collections.abc import Mapping

from headway.cli.help import print_about, print_fields, print_sections
from headway.cli.simulated_machine import STEP_TIME_FLAGS
from headway.cli.simulated_workload import workload_help
from headway.cli.simulation import SETTINGS

_ABOUT = """\
usage: headway {command} [MODEL] [flags]

Serve a workload with the engine's own scheduler, a clock that jumps and a model of how long steps
take. MODEL is a well-known name or a directory with a config.json, as --model-shape.

  headway simulate --rate 4 --requests 500 --prompt-tokens lognormal:1000:0.8 \\
    --output-tokens 250
  headway sweep --sweep max-num-seqs=1,8,32,64,128,256 --arrivals at-once \\
    --requests 256 --prompt-tokens 500 --output-tokens 250 \\
    --kv-cache-memory-bytes 16GiB"""


def print_simulate_help(command: str, output_flags: Mapping[str, tuple[str, str]]) -> None:
    print_about(_ABOUT.format(command=command))
    print_sections(
        {"output": output_flags, "step time": STEP_TIME_FLAGS, "workload": workload_help()}
    )
    print_fields("scheduler flags, as headway serve has them", SETTINGS)
