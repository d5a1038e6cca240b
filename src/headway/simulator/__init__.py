"""Driver 2: the engine's scheduler under a clock that jumps, and models of how long steps take."""

from headway.core.config import SchedulerConfig
from headway.simulator.binding import Binding
from headway.simulator.config import Setup
from headway.simulator.inert import InertReport, inert_knobs
from headway.simulator.result import Result, Spread, Summary
from headway.simulator.simulate import simulate
from headway.simulator.sweep import Point, sweep

__all__ = [
    "Binding",
    "InertReport",
    "Point",
    "Result",
    "SchedulerConfig",
    "Setup",
    "Spread",
    "Summary",
    "inert_knobs",
    "simulate",
    "sweep",
]
