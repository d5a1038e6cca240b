"""Our own files of requests: they read back, and what is wrong is named with its line."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.simulator.workload import lengths
from headway.simulator.workload.arrivals import ClosedLoop, Renewal
from headway.simulator.workload.base import ClientRequest, Segment, Traffic
from headway.simulator.workload.clients import Choice, Declared, Leaving, Prefixes, Turns
from headway.simulator.workload.files import open_requests, write_requests
from headway.simulator.workload.synthetic import Streams, Synthetic
from headway.simulator.workload.traces.trace import Window
from headway.simulator.workload.waits import SECOND, ExponentialWait, FixedWait
from workload.strategies import all_requests

DAYS_NS = 48 * 86_400 * SECOND
SUFFIXES = [".jsonl", ".jsonl.gz", ".jsonl.zst"]


class Listed:
    """A workload of given requests without follow-ups."""

    def __init__(self, requests: list[ClientRequest]) -> None:
        self._requests = requests

    def traffic(self) -> Traffic:
        return self

    def arrivals(self):
        return iter(self._requests)

    def follow_up(self, ended, now_ns):
        return ()


segments = st.builds(Segment, st.integers(0, 30), st.integers(1, 5000))
durations = st.none() | st.integers(0, 10**12)
requests = st.builds(
    ClientRequest,
    request_id=st.text(min_size=1),
    arrival_ns=st.integers(0, DAYS_NS),
    prompt=st.lists(segments, min_size=1, max_size=4).map(tuple),
    output=segments,
    max_tokens=st.none() | st.integers(1, 10**6),
    tenant=st.text(),
    adapter=st.text(),
    priority=st.integers(-(2**31), 2**31),
    leaves_after_ns=durations,
    max_queue_ns=durations,
)
lists = st.lists(requests, min_size=1, max_size=8, unique_by=lambda r: r.request_id).map(
    lambda found: sorted(found, key=lambda request: request.arrival_ns)
)


def renamed(found: list[ClientRequest]) -> list[ClientRequest]:
    """Texts named in order of appearance: what is shared stays shared."""
    names: dict[int, int] = {}

    def rename(segment: Segment) -> Segment:
        return Segment(names.setdefault(segment.name, len(names)), segment.num_tokens)

    return [
        replace(r, prompt=tuple(rename(s) for s in r.prompt), output=rename(r.output))
        for r in found
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lists, st.sampled_from(SUFFIXES))
def test_what_is_written_reads_back(tmp_path: Path, found, suffix: str) -> None:
    path = tmp_path / f"requests{suffix}"
    assert write_requests(Listed(found), path) == len(found)
    assert renamed(all_requests(open_requests(path))) == renamed(found)


def test_sessions_deadlines_and_prefixes_read_back(tmp_path: Path) -> None:
    part = Synthetic(
        arrivals=Renewal(4),
        prompt_tokens=lengths.uniform(1, 99),
        output_tokens=lengths.uniform(1, 99),
        num_requests=200,
        max_tokens=Declared(constant=50),
        prefixes=Prefixes(5, lengths.fixed(64), 1.0, 0.5),
        turns=Turns(lengths.uniform(1, 4), ExponentialWait(3)),
        tenants=Choice.of({"a": 1, "b": 1}),
        leaving=Leaving(0.3, FixedWait(9)),
        deadline_s=60,
    )
    workload = Streams((part, replace(part, seed=3)))
    assert write_requests(workload, tmp_path / "a.jsonl") == 400
    again = open_requests(tmp_path / "a.jsonl")
    assert renamed(all_requests(again)) == renamed(all_requests(workload))
    write_requests(again, tmp_path / "b.jsonl")
    assert all_requests(open_requests(tmp_path / "b.jsonl")) == all_requests(again)


def test_equal_contents_make_equal_files(tmp_path: Path) -> None:
    found = Listed(
        [ClientRequest(request_id="a", arrival_ns=1, prompt=(Segment(0, 1),), output=Segment(1, 1))]
    )
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        write_requests(found, tmp_path / name)
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()


def test_a_closed_loop_has_no_file(tmp_path: Path) -> None:
    workload = Synthetic(
        arrivals=ClosedLoop(2),
        prompt_tokens=lengths.fixed(1),
        output_tokens=lengths.fixed(1),
        num_requests=9,
    )
    with pytest.raises(ValueError, match="closed loop"):
        write_requests(workload, tmp_path / "a.jsonl")


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("before")

    class Failing(Listed):
        def arrivals(self):
            yield ClientRequest(
                request_id="a", arrival_ns=1, prompt=(Segment(0, 1),), output=Segment(1, 1)
            )
            raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        write_requests(Failing([]), path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


PLAIN = {"arrival_s": 1, "prompt_tokens": 10, "output_tokens": 5}


def written(path: Path, *rows: dict | str) -> Path:
    text = "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text(text + "\n")
    return path


@pytest.fixture
def read(tmp_path: Path):
    def read(*rows: dict | str) -> list[ClientRequest]:
        return all_requests(open_requests(written(tmp_path / "a.jsonl", *rows)))

    return read


def test_three_fields_are_enough(read) -> None:
    (request,) = read(PLAIN)
    assert request == ClientRequest(
        request_id="line-1", arrival_ns=SECOND, prompt=(Segment(0, 10),), output=Segment(1, 5)
    )


def test_prefixes_are_shared_by_name(read) -> None:
    shared = {**PLAIN, "prefix": "system", "prefix_tokens": 8}
    first, second, third = read(shared, {**shared, "prompt_tokens": 8}, {**shared, "prefix": 1})
    assert first.prompt[0] == second.prompt[0] != third.prompt[0]
    assert first.prompt[1].num_tokens == 2
    assert len(second.prompt) == 1


def test_blocks_are_shared_by_id(read) -> None:
    ids = {**PLAIN, "block_tokens": 4, "hash_ids": [7, 8]}
    first, second = read(ids, {**ids, "hash_ids": [7, 9, 10]})
    assert first.prompt[0] == second.prompt[0]
    assert [s.num_tokens for s in first.prompt] == [4, 4, 2]
    assert [s.num_tokens for s in second.prompt] == [4, 4, 2]
    assert len({s.name for s in (*first.prompt, *second.prompt)}) == 5


def test_turns_go_on_from_what_was_said(read) -> None:
    session = {"session": "s", "output_tokens": 5, "max_tokens": 3}
    first, second, other, third = read(
        {**session, "arrival_s": 0, "prompt_tokens": 10, "turn": 0},
        {**session, "think_s": 2, "prompt_tokens": 20, "turn": 1},
        {**PLAIN},
        {**session, "arrival_s": 9, "prompt_tokens": 30, "turn": 2},
    )
    assert second.arrival_ns == 2 * SECOND
    assert second.prompt[:2] == (*first.prompt, Segment(first.output.name, 3))
    assert second.num_prompt_tokens == 20
    assert third.arrival_ns == 9 * SECOND
    assert third.prompt[:3] == second.prompt
    assert third.num_prompt_tokens == 30
    assert other.num_prompt_tokens == 10


def test_a_turn_waits_for_the_answer(tmp_path: Path) -> None:
    session = {"session": 1, "output_tokens": 5}
    path = written(
        tmp_path / "a.jsonl",
        {**session, "arrival_s": 0, "prompt_tokens": 10, "leaves_after_s": 50},
        {**session, "think_s": 2, "prompt_tokens": 20},
        {**PLAIN, "arrival_s": 3},
    )
    traffic = open_requests(path).traffic()
    coming = traffic.arrivals()
    first = next(coming)
    assert next(coming).arrival_ns == 3 * SECOND
    (second,) = traffic.follow_up(first, 40 * SECOND)
    assert second.arrival_ns == 42 * SECOND
    left = open_requests(path).traffic()
    assert left.follow_up(next(left.arrivals()), 50 * SECOND) == ()


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([PLAIN, "{"], ":2: "),
        ([PLAIN, '{"arrival_s": 2, "prompt_to'], ":2: "),
        (["[1]"], ":1: Expected `object`, got `array`"),
        ([{**PLAIN, "colour": 1}], ":1: Object contains unknown field `colour`"),
        ([{"arrival_s": 1, "output_tokens": 1}], ":1: .*missing required field `prompt_tokens`"),
        ([{**PLAIN, "prompt_tokens": 0}], r":1: Expected `int` >= 1 - at `\$.prompt_tokens`"),
        ([{**PLAIN, "prompt_tokens": 1.5}], r":1: .*at `\$.prompt_tokens`"),
        ([{**PLAIN, "output_tokens": "5"}], r":1: .*at `\$.output_tokens`"),
        ([{**PLAIN, "arrival_s": -1}], r":1: .*at `\$.arrival_s`"),
        ([{**PLAIN, "arrival_s": None}], ":1: arrival_s is missing"),
        ([PLAIN, "", {**PLAIN, "arrival_s": 0.5}], ":3: arrival_s 0.5 is before the 1.0 above"),
        ([{**PLAIN, "request_id": "a"}] * 2, ":2: request_id 'a' is there twice"),
        ([{**PLAIN, "prefix": "a"}], ":1: prefix is given without prefix_tokens"),
        ([{**PLAIN, "prefix": 1, "prefix_tokens": 11}], ":1: prompt_tokens 10 must hold the 11"),
        ([{**PLAIN, "hash_ids": [1]}], ":1: hash_ids is given without block_tokens"),
        ([{**PLAIN, "hash_ids": [1, 2, 3], "block_tokens": 5}], ":1: more hash_ids than 10"),
        ([{**PLAIN, "texts": [[1, 9]]}], ":1: texts have 9 tokens, prompt_tokens 10"),
        (
            [{**PLAIN, "texts": [[1, 10]], "prefix": 1, "prefix_tokens": 1}],
            ":1: the prompt is described by prefix and by texts",
        ),
        ([{**PLAIN, "turn": 0}], ":1: turn is given without session"),
        ([{**PLAIN, "session": 1, "turn": 1}], ":1: turn 0 of session 1 is next, not 1"),
        ([{**PLAIN, "session": 1, "think_s": 1}], ":1: a first turn has an arrival_s"),
        (
            [{**PLAIN, "session": 1}, {**PLAIN, "session": 1, "think_s": 1}],
            ":2: a turn has an arri",
        ),
        (
            [{**PLAIN, "session": 1}, PLAIN, {**PLAIN, "session": 1, "think_s": 1}],
            ":3: a turn with think_s stands right below",
        ),
        ([{**PLAIN, "session": 1}] * 2, ":2: prompt_tokens 10 must hold the 15 of all that was"),
        ([""], ": has no requests"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(read, rows, says) -> None:
    with pytest.raises(ValueError, match=r"a\.jsonl" + says):
        read(*rows)


@pytest.mark.parametrize("suffix", SUFFIXES[1:])
def test_compressed_files_are_read_to_their_end(tmp_path: Path, suffix: str) -> None:
    found = [
        ClientRequest(
            request_id=f"{i}", arrival_ns=i, prompt=(Segment(i, 7 * i + 1),), output=Segment(i, 3)
        )
        for i in range(500)
    ]
    path = tmp_path / f"a{suffix}"
    write_requests(Listed(found), path)
    whole = path.read_bytes()
    assert len(all_requests(open_requests(path))) == 500
    path.write_bytes(whole[:-5])
    with pytest.raises(ValueError, match="is cut off"):
        all_requests(open_requests(path))
    path.write_bytes(whole[:200] + b"\xff" * 50 + whole[250:])
    with pytest.raises(ValueError, match=r"a\.jsonl"):
        all_requests(open_requests(path))
    path.write_bytes(b"not compressed at all")
    with pytest.raises(ValueError, match="is damaged"):
        all_requests(open_requests(path))


def test_several_members_are_one_file(tmp_path: Path) -> None:
    lines = [json.dumps({**PLAIN, "arrival_s": i}).encode() + b"\n" for i in range(3)]
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(b"".join(gzip.compress(line) for line in lines))
    assert len(all_requests(open_requests(path))) == 3


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.jsonl: cannot be read: No such file"):
        all_requests(open_requests(tmp_path / "none.jsonl"))


class TestWindows:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return written(tmp_path / "a.jsonl", *({**PLAIN, "arrival_s": 2 * i} for i in range(10)))

    def seconds(self, path: Path, **window) -> list[float]:
        requests = all_requests(open_requests(path, Window(**window)))
        return [request.arrival_ns / SECOND for request in requests]

    def test_all_of_it(self, path: Path) -> None:
        assert self.seconds(path) == [2 * i for i in range(10)]

    def test_a_part_begins_at_zero(self, path: Path) -> None:
        assert self.seconds(path, start_s=3, stop_s=8) == [1, 3]
        assert self.seconds(path, start_s=4, first=2) == [0, 2]

    def test_time_is_stretched(self, path: Path) -> None:
        assert self.seconds(path, time_scale=0.5, first=3) == [0, 1, 2]
        assert self.seconds(path, time_scale=0, first=3) == [0, 0, 0]

    def test_a_mean_rate(self, path: Path) -> None:
        assert self.seconds(path, rate=4) == [i / 4 for i in range(10)]
        with pytest.raises(ValueError, match="there is no rate"):
            self.seconds(path, rate=4, first=1)

    def test_nothing_in_it(self, path: Path) -> None:
        with pytest.raises(ValueError, match="none in the time"):
            self.seconds(path, start_s=100)

    @pytest.mark.parametrize(
        ("window", "says"),
        [
            ({"first": 0}, "^first:"),
            ({"start_s": 5, "stop_s": 5}, "^start_s:"),
            ({"time_scale": -1}, "^time_scale:"),
            ({"rate": 0}, "^rate:"),
            ({"rate": 1, "time_scale": 2}, "^rate: time_scale is given too"),
        ],
    )
    def test_windows_that_cannot_be(self, window, says) -> None:
        with pytest.raises(ValueError, match=says):
            Window(**window)
