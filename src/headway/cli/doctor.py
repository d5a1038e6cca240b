"""`headway doctor`: which wall binds a server, what is wrong with it, and what would help."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headway.cli.help import print_about
from headway.cli.own_flags import api_key, split_repeated
from headway.flags import FlagError

if TYPE_CHECKING:
    from headway.insight.doctor.findings import Diagnosis
    from headway.insight.doctor.readings import Observation

_ABOUT = """\
usage: headway doctor SOURCE [flags]

SOURCE is the address of a running server (http://host:port: Headway, vLLM, SGLang, TGI, llama.cpp),
one or more saved pages of its /metrics, oldest first, a log (Headway, vLLM, SGLang), a recording
(headway serve --record), or a file of usage: the responses of a day, or their usage objects, as
JSON lines or CSV. Says which wall binds, by which figures, what changes nothing, what to change and
what that would bring, and what else is wrong; of usage, how answers end, and what continuous
batching is worth for their lengths.

  --interval S              how long to watch a server, in seconds; 10 unless given. Of saved pages:
                            the time between two, where the files' own times are not to be trusted
  --watch                   go on until Ctrl-C, a report for each interval
  --count N                 so many reports of --watch
  --api-key KEY             for a server that asks for one; or the variable HEADWAY_API_KEY
                            or OPENAI_API_KEY
  --max-num-seqs N          what the server was started with, where it does not tell (vLLM)
  --max-num-batched-tokens N  the same
  --recording N             which one, where a file holds several
  --last S                  of a log, its last seconds; 900 unless given
  --baseline FILE           usage of better days, to compare answers with
  --plot FILE               of usage: a PNG or SVG of throughput by batch size
  --step-time, --hardware, --model-shape, ...   of usage: what its batches are simulated on, as
                            headway simulate --help has it; Llama-3-8B on h100 unless given
  --json FILE|-             the report as JSON

The exit code is that of the worst that was found: 0 healthy, 1 a warning, 3 critical. 2 says that
SOURCE cannot be read."""
_OWN = (
    *("--interval", "--count", "--api-key", "--max-num-seqs", "--max-num-batched-tokens"),
    *("--recording", "--last", "--baseline", "--plot", "--json"),
)
# Flags that some kinds of source do not read, with those that do.
_READ_BY = {
    "--interval": ("server", "page"),
    "--api-key": ("server",),
    "--max-num-seqs": ("server", "page", "log", "recording"),
    "--recording": ("recording",),
    "--last": ("log",),
    "--baseline": ("usage",),
    "--plot": ("usage",),
}
_KINDS = {
    "server": "a running server",
    "page": "saved pages of metrics",
    "log": "a log",
    "recording": "a recording",
    "usage": "a file of usage",
}
_SWITCHES = ("--watch",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The command line, checked."""

    sources: tuple[str, ...]
    interval_s: float | None
    count: int  # of reports
    api_key: str | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    recording: int | None
    last_s: float | None
    baseline: str | None
    plot: str | None
    machine: Mapping[str, str]  # flags
    json_target: str | None
    given: frozenset[str]  # names of flags


def main(argv: Sequence[str]) -> int:
    """Returns the exit code."""
    if "--help" in argv or "-h" in argv:
        print_about(_ABOUT)
        return 0
    try:
        return _report(_asked(argv))
    except (FlagError, ValueError) as error:
        print(f"headway doctor: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _report(asked: Asked) -> int:
    from headway.cli.doctor_report import print_report
    from headway.cli.readouts import refuse_unwritable, write_json
    from headway.insight.doctor.findings import Severity

    refuse_unwritable("--json", asked.json_target)
    if _kind(asked) == "usage":
        return _report_usage(asked)
    worst, is_first = Severity.HEALTHY, True
    try:
        for observation, diagnosis in _reports(asked):
            worst = max(worst, diagnosis.worst)
            if asked.json_target != "-":
                if not is_first:
                    print()
                print_report(observation, diagnosis)
            if asked.json_target:
                write_json({"source": observation.source, **diagnosis.to_dict()}, asked.json_target)
            sys.stdout.flush()
            is_first = False
    except KeyboardInterrupt:
        if is_first:
            raise
    return int(worst)


def _reports(asked: Asked) -> Iterator[tuple[Observation, Diagnosis]]:
    from headway.cli.doctor_sources import observations
    from headway.insight.doctor.diagnose import diagnose

    for observation in observations(asked):
        yield observation, diagnose(observation)


def _report_usage(asked: Asked) -> int:
    from headway.cli.doctor_usage import UsageFlags, print_usage_report, usage_report
    from headway.cli.readouts import write_json

    if len(asked.sources) > 1:
        raise FlagError("one file of usage at a time; --baseline takes another to compare with")
    flags = UsageFlags(
        baseline=asked.baseline,
        plot=asked.plot,
        machine=asked.machine,
        token_budget=asked.max_num_batched_tokens,
    )
    report = usage_report(asked.sources[0], flags)
    if asked.json_target != "-":
        print_usage_report(report)
    if asked.json_target:
        write_json(report.to_dict(), asked.json_target)
    return int(report.diagnosis.worst)


def _kind(asked: Asked) -> str:
    """Raises FlagError for a flag that changes nothing about this kind of source."""
    from headway.cli.doctor_sources import kind_of_sources

    kind = kind_of_sources(asked.sources)
    read_by = _READ_BY | dict.fromkeys(asked.machine, ("usage",))
    for flag in sorted(asked.given):
        if kind not in read_by.get(flag, (kind,)):
            listed = " and ".join(_KINDS[one] for one in read_by[flag])
            raise FlagError(f"{flag} is for {listed}, and this is {_KINDS[kind]}: leave it out")
    return kind


# ---- The command line ----


def _asked(argv: Sequence[str]) -> Asked:
    """Raises FlagError."""
    from headway.cli.doctor_usage import MACHINE_FLAGS

    values, sources = split_repeated(argv, (*_OWN, *MACHINE_FLAGS), _SWITCHES)
    for word in sources:
        if word.startswith("-") and word != "-":
            raise FlagError(f"there is no flag {word}: see headway doctor --help")
    if not sources:
        raise FlagError(
            "which server? Give its address (http://host:port), a saved page of its /metrics, a "
            "log, a recording, or a file of usage"
        )
    own = {name: given[-1] for name, given in values.items()}
    if "--count" in own and "--watch" not in own:
        raise FlagError("--count says how many reports of --watch: give both")
    is_watch = "--watch" in own
    if is_watch and not sources[0].startswith(("http://", "https://")):
        raise FlagError("--watch is for a running server: give its address")
    return Asked(
        sources=tuple(sources),
        interval_s=_number(own, "--interval", 0.1, 86_400.0),
        count=_count(own, "--count") or (sys.maxsize if is_watch else 1),
        api_key=api_key(own.get("--api-key")),
        max_num_seqs=_count(own, "--max-num-seqs"),
        max_num_batched_tokens=_count(own, "--max-num-batched-tokens"),
        recording=_count(own, "--recording"),
        last_s=_number(own, "--last", 1, 1e9),
        baseline=own.get("--baseline"),
        plot=own.get("--plot"),
        machine={name: own[name] for name in MACHINE_FLAGS if name in own},
        json_target=own.get("--json"),
        given=frozenset(own),
    )


def _number(own: Mapping[str, str], name: str, low: float, high: float) -> float | None:
    if name not in own:
        return None
    try:
        value = float(own[name])
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise FlagError(f"{name} must be a number from {low:g} to {high:g}, got {own[name]!r}")
    return value


def _count(own: Mapping[str, str], name: str) -> int | None:
    value = _number(own, name, 1, 1e9)
    if value is not None and value != int(value):
        raise FlagError(f"{name} must be a whole number, got {own[name]!r}")
    return None if value is None else int(value)
