"""`headway plan`: what fits, how fast, for how much, and the flags to use, before any launch."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from headway.cli.own_flags import split_repeated
from headway.flags import FlagError

_PLAN_FLAGS = {
    "--price-per-hour": ("PRICE", "Of all devices together; tells what a million tokens cost."),
    "--calibration-seconds": ("S", "With --hardware this-machine: how long to measure; 20."),
    "--json": ("FILE|-", "All figures."),
}
_USAGE_HELP = ("FILE", "Lengths and rate of answers, one on a line, as headway doctor reads them.")


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 2 for what cannot be planned."""
    if "--help" in argv or "-h" in argv:
        _print_help()
        return 0
    try:
        _plan(argv)
    except (FlagError, ValueError) as error:
        print(f"headway plan: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _plan(argv: Sequence[str]) -> None:
    from headway.cli.plan_launch import launch_lines
    from headway.cli.plan_question import PLANNED_FLAGS, asked_of
    from headway.cli.plan_readouts import print_plan
    from headway.cli.readouts import refuse_unwritable, write_json
    from headway.insight.plan.planning import make_plan

    values, rest = split_repeated(argv, (*PLANNED_FLAGS, *_PLAN_FLAGS))
    own = {name: given[-1] for name, given in values.items()}
    target = own.pop("--json", None)
    refuse_unwritable("--json", target)
    asked = asked_of(rest, own)
    plan = make_plan(asked.question)
    lines = launch_lines(asked, plan)
    if target != "-":
        print_plan(asked, plan, lines)
    if target:
        launch = [line.to_dict() for line in lines]
        write_json({**asked.facts, **plan.to_dict(), "launch": launch}, target)


def _print_help() -> None:
    from headway.cli.help import print_about, print_fields, print_sections
    from headway.cli.plan_lengths import WORKLOAD_FLAGS_READ
    from headway.cli.plan_question import SETTINGS
    from headway.cli.simulated_machine import STEP_TIME_FLAGS
    from headway.cli.simulated_workload import workload_help

    print_about(_ABOUT)
    described = {**workload_help(), "--usage": _USAGE_HELP}
    workload = {flag: described[flag] for flag in WORKLOAD_FLAGS_READ}
    print_sections({"plan": _PLAN_FLAGS, "machine": STEP_TIME_FLAGS, "lengths": workload})
    print_fields("engine flags, as headway serve has them", SETTINGS)


_ABOUT = """\
usage: headway plan [MODEL] --hardware NAME [flags]

Say before a launch what fits, how fast it is, what it costs, and which flags to use. MODEL is a
well-known name, a directory with a config.json, or a .gguf file; SmolLM2-135M-Instruct unless
given. NAME is h100, h200, a100, l4, l40s, b200, mi300x, ..., cpu (a two-core Xeon), or
this-machine, whose steps are measured; --step-time FILE takes what headway calibrate measured.

  headway plan Qwen3-8B --hardware h100 --rate 4 --price-per-hour 3
  headway plan Qwen2.5-7B --hardware l40s --prompt-tokens lognormal:2000:0.7 \\
    --output-tokens 300"""
