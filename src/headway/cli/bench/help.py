"""What `headway bench serve --help` prints."""

from __future__ import annotations

from headway.cli.bench.flags import (
    LOAD_FLAGS,
    OUTPUT_FLAGS,
    SAMPLING_FLAGS,
    SERVER_FLAGS,
    SIMULATION_FLAGS,
)
from headway.cli.bench.load import OTHER_FLAGS
from headway.cli.help import print_about, print_sections
from headway.cli.simulated_workload import workload_help

_ABOUT = """\
usage: headway bench serve [URL] [flags]

Put a load on any OpenAI-compatible server and measure it. Requests go out when they are due,
whatever became of those before, and their latencies count from then. vLLM's flags mean what they
mean there.

  headway bench serve http://127.0.0.1:8000 --request-rate 4 --num-prompts 200 \\
    --random-input-len 256 --random-output-len 64 --ignore-eos
  headway bench serve --sweep --goodput ttft:500 tpot:50 \\
    --random-input-len 256 --html report.html"""


def print_bench_help() -> None:
    print_about(_ABOUT)
    shown = {name: usage for name, usage in workload_help().items() if name in OTHER_FLAGS}
    print_sections(
        {
            "server": SERVER_FLAGS,
            "load": LOAD_FLAGS,
            "sampling": SAMPLING_FLAGS,
            "output": OUTPUT_FLAGS,
            "simulation": SIMULATION_FLAGS,
            "workload": shown,
        }
    )
