"""`headway verify`: the same prompts alone and under load, and whether the answers are the same."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from headway.cli.help import print_about
from headway.cli.own_flags import api_key, count_of, number_of, split_repeated
from headway.flags import FlagError
from headway.insight.verify.report import ALONE

if TYPE_CHECKING:
    from headway.bench.target import Target
    from headway.bench.verify.answers import Endpoint
    from headway.bench.verify.client import Sampling
    from headway.bench.verify.prompts import Prompt
    from headway.cli.verify_report import Facts
    from headway.insight.verify.report import Report, Run

_OWN = (
    "--prompts",
    "--concurrency",
    "--rounds",
    "--max-tokens",
    "--temperature",
    "--seed",
    "--shuffle-seed",
    "--endpoint",
    "--model",
    "--api-key",
    "--logprobs",
    "--timeout",
    "--show",
    "--json",
)
_ABOUT = """\
usage: headway verify URL [flags]

Asks an OpenAI-compatible server every prompt alone, then with others in flight, and says how many
answers are not the same, where each first differs, and how near a tie it was there.

  --prompts FILE        a prompt on each line, or .jsonl with strings, {"prompt": ...} or
                        {"messages": [...]}; 24 of our own in several languages unless given
  --concurrency A,B,C   requests in flight; 1,8,64 unless given. Strangers are asked beside the
                        prompts, so that there are as many from the first to the last
  --rounds N            how often each; 2 unless given
  --max-tokens N        longest answer; 64 unless given
  --temperature T       0 (greedy) unless given; above, prompt i gets the seed --seed + i
  --seed N              0 unless given
  --shuffle-seed N      of the order of the prompts and of the strangers; 0 unless given
  --endpoint NAME       chat or completions; chat where the server has it unless given
  --model NAME          the first that the server lists unless given
  --api-key KEY         or the variable HEADWAY_API_KEY or OPENAI_API_KEY
  --logprobs N          likeliest tokens asked for at each position; 5 unless given, 0 for none
  --strict              other logprobs are a difference too
  --timeout S           for one answer; 300 unless given
  --show N              differences told in full; 5 unless given
  --json FILE|-         everything found

Exit code: 0 all the same, 1 some differ, 2 it could not be run, or not all of it."""
_PROBE_TOKENS = 4
_MAX_CONCURRENCY = 4096


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is asked, and how often."""

    target: Target
    headers: Mapping[str, str]
    prompts: Sequence[Prompt]
    concurrencies: Sequence[int]
    num_rounds: int
    sampling: Sampling
    shuffle_seed: int
    endpoint: Endpoint | None
    model: str | None
    num_likeliest: int
    timeout_s: float

    @property
    def num_requests(self) -> int:
        return len(self.prompts) * self.num_rounds * len(self.concurrencies)


def main(argv: Sequence[str]) -> int:
    if "--help" in argv or "-h" in argv:
        print_about(_ABOUT)
        return 0
    from headway.bench.verify.client import ServerError
    from headway.bench.verify.prompts import PromptsError
    from headway.cli.readouts import refuse_unwritable

    try:
        values, rest = split_repeated(argv, _OWN, ("--strict",))
        own = {name: given[-1] for name, given in values.items()}
        refuse_unwritable("--json", own.get("--json"))
        num_shown = count_of(own, "--show", 5, 0, 1_000_000)
        return _verify(_plan(own, rest), own, num_shown, is_strict="--strict" in own)
    except (ValueError, PromptsError, ServerError, OSError) as error:
        print(f"headway verify: {error}", file=sys.stderr)
        return 2


def _verify(plan: _Plan, own: Mapping[str, str], num_shown: int, *, is_strict: bool) -> int:
    from headway.cli.readouts import write_json
    from headway.cli.verify_report import print_report
    from headway.insight.verify.report import compare

    runs: list[Run] = []
    facts: list[Facts] = []  # one, once the server has answered
    is_stopped = False
    try:
        asyncio.run(_play(plan, runs, facts))
    except KeyboardInterrupt:
        is_stopped = True
        print("\nheadway verify: stopped; this is what was found so far", file=sys.stderr)
    if not facts:
        return 130
    report = compare(runs, len(plan.prompts))
    if "--json" in own:
        write_json({**facts[0].to_dict(), **report.to_dict()}, own["--json"])
    if own.get("--json") != "-":
        print_report(facts[0], report, plan.prompts, num_shown)
    return 130 if is_stopped else _exit_code(report, is_strict=is_strict)


async def _play(plan: _Plan, runs: list[Run], facts: list[Facts]) -> None:
    """Fills `facts` once the server has answered, and `runs` as answers come."""
    from headway.bench.server import served_model
    from headway.bench.verify.client import connected
    from headway.bench.verify.load import Load
    from headway.bench.verify.prompts import Prompt
    from headway.cli.verify_report import Facts, Progress

    model = plan.model or served_model(plan.target, plan.headers)
    probe = Prompt("Hello"), dataclasses.replace(plan.sampling, max_tokens=_PROBE_TOKENS)
    async with connected(
        plan.target,
        model=model,
        endpoint=plan.endpoint,
        probe=probe,
        num_likeliest=plan.num_likeliest,
        headers=plan.headers,
        timeout_s=plan.timeout_s,
    ) as server:
        facts.append(Facts(plan.target.url, model, server.form, plan.sampling, plan.num_rounds))
        progress = Progress(plan.num_requests)
        for round_index in range(plan.num_rounds):
            for concurrency in plan.concurrencies:
                load = Load(
                    server.ask,
                    plan.prompts,
                    plan.sampling,
                    concurrency=concurrency,
                    round_index=round_index,
                    shuffle_seed=plan.shuffle_seed,
                    on_outcome=progress.advance,
                )
                runs.append(load.run)
                progress.begin(concurrency, round_index)
                await load.play()
        progress.end()


def _exit_code(report: Report, *, is_strict: bool) -> int:
    if report.different or (is_strict and report.num_drifted):
        return 1
    is_whole = not report.failures and not report.stranger_failures
    return 0 if is_whole and not report.without_reference else 2


# ---- The command line ----


def _plan(own: Mapping[str, str], rest: Sequence[str]) -> _Plan:
    """Raises ValueError, PromptsError, OSError."""
    from headway.bench.verify.client import Sampling
    from headway.bench.verify.prompts import BUILT_IN, read_prompts

    key = api_key(own.get("--api-key"))
    prompts = read_prompts(Path(own["--prompts"])) if "--prompts" in own else BUILT_IN
    endpoint = _endpoint(own.get("--endpoint"), prompts)
    concurrencies = _concurrencies(own.get("--concurrency", "1,8,64"))
    num_rounds = count_of(own, "--rounds", 2, 1, 10_000)
    if num_rounds == 1 and concurrencies == [ALONE]:
        raise FlagError("once alone has nothing to compare with: more --rounds or --concurrency")
    return _Plan(
        target=_target(rest),
        headers={"authorization": f"Bearer {key}"} if key else {},
        prompts=prompts,
        concurrencies=concurrencies,
        num_rounds=num_rounds,
        sampling=Sampling(
            max_tokens=count_of(own, "--max-tokens", 64, 1, 1_000_000),
            temperature=number_of(own, "--temperature", 0.0, 0.0, 100.0),
            seed=count_of(own, "--seed", 0, 0, 2**31),
        ),
        shuffle_seed=count_of(own, "--shuffle-seed", 0, 0, 2**53),
        endpoint=endpoint,
        model=own.get("--model"),
        num_likeliest=count_of(own, "--logprobs", 5, 0, 100),
        timeout_s=number_of(own, "--timeout", 300.0, 0.1, 86_400.0),
    )


def _target(rest: Sequence[str]) -> Target:
    """Raises ValueError."""
    from headway.bench.target import target_of

    flags = [word for word in rest if word.startswith("-")]
    if flags:
        raise FlagError(f"there is no flag {flags[0]}: see headway verify --help")
    if len(rest) != 1:
        raise FlagError("give one URL, such as http://127.0.0.1:8000; see headway verify --help")
    return target_of(rest[0])


def _concurrencies(given: str) -> list[int]:
    """In the order given, without repeats; alone comes first whether or not it is named."""
    parts = [part.strip() for part in given.split(",")]
    if not all(part.isascii() and part.isdecimal() and 0 < len(part) < 6 for part in parts):
        raise FlagError(f"--concurrency takes whole numbers, as 1,8,64, got {given[:50]!r}")
    numbers = [int(part) for part in parts]
    if not all(1 <= number <= _MAX_CONCURRENCY for number in numbers):
        raise FlagError(f"--concurrency must be in [1, {_MAX_CONCURRENCY}], got {given[:50]!r}")
    return list(dict.fromkeys([ALONE, *numbers]))


def _endpoint(given: str | None, prompts: Sequence[Prompt]) -> Endpoint | None:
    if given is not None and given not in ("chat", "completions"):
        raise FlagError(f"--endpoint must be chat or completions, got {given!r}")
    if all(prompt.is_text for prompt in prompts):
        return cast("Endpoint | None", given)
    if given == "completions":
        raise FlagError("--endpoint completions takes texts, and --prompts has conversations")
    return "chat"
