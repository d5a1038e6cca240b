"""Synthetic workloads: the same requests each time, whatever becomes of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from headway.simulator.workload import lengths
from headway.simulator.workload import sessions as sessions_module
from headway.simulator.workload.arrivals import AtOnce, ClosedLoop, Renewal
from headway.simulator.workload.base import MAX_NAME, ClientRequest, Segment, Workload
from headway.simulator.workload.clients import Choice, Declared, Leaving, Prefixes, Turns
from headway.simulator.workload.sessions import Conversations
from headway.simulator.workload.synthetic import MAX_IN_VAIN, Streams, Synthetic
from headway.simulator.workload.waits import SECOND, ExponentialWait, FixedWait, UniformWait

PLAIN = Synthetic(
    arrivals=Renewal(4),
    prompt_tokens=lengths.lognormal(1000, 0.8, 32, 8192),
    output_tokens=lengths.lognormal(250, 0.8, 8, 2048),
    num_requests=2500,
    seed=7,
)
SERVICE_NS = 2 * SECOND


def arrived(workload: Workload) -> list[ClientRequest]:
    return list(workload.traffic().arrivals())


def served(workload: Workload, service_ns: int = SERVICE_NS) -> list[ClientRequest]:
    """All requests in order of arrival, each answered after the same time."""
    traffic = workload.traffic()
    coming, asked = traffic.arrivals(), []
    waiting = [next(coming)]
    while waiting:
        waiting.sort(key=lambda request: (request.arrival_ns, request.request_id))
        request = waiting.pop(0)
        asked.append(request)
        waiting += traffic.follow_up(request, request.arrival_ns + service_ns)
        if not waiting or not any(r.request_id.isdigit() for r in waiting):
            waiting += [r for r in [next(coming, None)] if r is not None]
    return asked


def test_the_same_each_time_and_in_order() -> None:
    first, second = arrived(PLAIN), arrived(PLAIN)
    assert first == second
    assert len(first) == 2500
    assert len({request.request_id for request in first}) == 2500
    times = [request.arrival_ns for request in first]
    assert times == sorted(times)
    assert arrived(replace(PLAIN, seed=8))[0] != first[0]


def test_every_text_is_its_own() -> None:
    names = [name for r in arrived(PLAIN) for name in (*(s.name for s in r.prompt), r.output.name)]
    assert len(set(names)) == len(names) == 5000
    assert min(names) >= 0
    assert max(names) <= MAX_NAME


def test_blocks_do_not_matter(monkeypatch) -> None:
    workload = replace(
        PLAIN,
        num_requests=300,
        turns=Turns(lengths.uniform(1, 4), ExponentialWait(1)),
        tenants=Choice.of({"a": 3, "b": 1}),
        prefixes=Prefixes(5, lengths.uniform(10, 90), skew=1, share=0.7),
        leaving=Leaving(0.2, UniformWait(1, 2)),
    )
    expected = served(workload)
    monkeypatch.setattr(sessions_module, "BLOCK", 11)
    assert served(workload) == expected


def test_changing_one_law_leaves_the_rest() -> None:
    changed = replace(PLAIN, output_tokens=lengths.fixed(9), prefixes=None, arrivals=AtOnce())
    assert [r.num_prompt_tokens for r in arrived(changed)] == [
        r.num_prompt_tokens for r in arrived(PLAIN)
    ]


def test_a_duration_ends_it() -> None:
    requests = arrived(replace(PLAIN, num_requests=None, duration_s=100))
    assert requests == arrived(PLAIN)[: len(requests)]
    assert 300 < len(requests) < 500
    assert requests[-1].arrival_ns < 100 * SECOND


def test_golden_requests() -> None:
    workload = replace(
        PLAIN,
        num_requests=3000,
        max_tokens=Declared(multiple=1.5),
        prefixes=Prefixes(10, lengths.fixed(512), 1.0, 0.9),
        tenants=Choice.of({"a": 3, "b": 1}),
        priorities=Choice.of({0: 9, 1: 1}),
        leaving=Leaving(0.5, ExponentialWait(5)),
        turns=Turns(lengths.uniform(1, 3), FixedWait(3)),
    )
    requests = arrived(workload)
    assert requests[0] == ClientRequest(
        request_id="0.0",
        arrival_ns=124439180,
        prompt=(Segment(10, 1808),),
        output=Segment(11, 122),
        max_tokens=183,
        tenant="a",
        leaves_after_ns=4515799341,
    )
    assert requests[-1] == ClientRequest(
        request_id="1522",
        arrival_ns=384380501661,
        prompt=(Segment(0, 512), Segment(6008, 382)),
        output=Segment(6009, 93),
        max_tokens=140,
        tenant="a",
        leaves_after_ns=4280972514,
    )


def test_declared_max_tokens() -> None:
    assert {r.max_tokens for r in arrived(PLAIN)} == {None}
    assert {r.max_tokens for r in arrived(replace(PLAIN, max_tokens=Declared(constant=99)))} == {99}
    for request in arrived(replace(PLAIN, max_tokens=Declared(multiple=4))):
        assert request.max_tokens == 4 * request.output.num_tokens


def test_prefixes_are_shared_by_zipf_law() -> None:
    prefixes = Prefixes(100, lengths.uniform(100, 200), skew=1.0, share=0.5)
    requests = arrived(replace(PLAIN, num_requests=20_000, prefixes=prefixes))
    shared = [r.prompt[0] for r in requests if len(r.prompt) == 2]
    assert len(shared) == pytest.approx(10_000, rel=0.05)
    counts = Counter(shared).most_common()
    assert [segment.name for segment, _ in counts[:3]] == [0, 1, 2]
    assert counts[0][1] / counts[9][1] == pytest.approx(10, rel=0.25)
    assert len(counts) == 100  # one length each
    own = [r.prompt[-1].num_tokens for r in requests]
    assert own[:2500] == [r.num_prompt_tokens for r in arrived(PLAIN)]


def test_tenants_and_priorities_by_weight() -> None:
    workload = replace(
        PLAIN, tenants=Choice.of({"a": 3, "b": 1}), priorities=Choice.of({0: 1, 5: 1})
    )
    requests = arrived(workload)
    shares = Counter((r.tenant, r.priority) for r in requests)
    assert shares["a", 0] / len(requests) == pytest.approx(3 / 8, abs=0.03)
    assert shares["b", 5] / len(requests) == pytest.approx(1 / 8, abs=0.03)


def test_limits_count_from_arrival() -> None:
    for request in arrived(replace(PLAIN, num_requests=3, max_queue_s=2, deadline_s=9)):
        assert request.max_queue_ns == 2 * SECOND
        assert request.deadline_ns == request.arrival_ns + 9 * SECOND


class TestTurns:
    WORKLOAD = replace(
        PLAIN,
        num_requests=1000,
        turns=Turns(lengths.fixed(3), FixedWait(5), lengths.fixed(40)),
        max_tokens=Declared(constant=100),
    )

    def test_each_prompt_is_all_that_was_said_and_new_words(self) -> None:
        traffic = self.WORKLOAD.traffic()
        first = next(traffic.arrivals())
        (second,) = traffic.follow_up(first, first.arrival_ns + 7)
        assert second.arrival_ns == first.arrival_ns + 7 + 5 * SECOND
        said = Segment(first.output.name, min(first.output.num_tokens, 100))
        assert second.prompt[:-1] == (*first.prompt, said)
        assert second.prompt[-1].num_tokens == 40
        (third,) = traffic.follow_up(second, second.arrival_ns)
        assert third.prompt[: len(second.prompt)] == second.prompt
        assert traffic.follow_up(third, third.arrival_ns) == ()

    def test_requests_are_counted_with_their_turns(self) -> None:
        requests = served(self.WORKLOAD)
        assert len(requests) == 1000
        assert Counter(r.request_id.partition(".")[0] for r in requests)["333"] == 1

    def test_who_answers_when_changes_no_request(self) -> None:
        def content(service_ns: int) -> dict:
            return {r.request_id: (r.prompt, r.output) for r in served(self.WORKLOAD, service_ns)}

        assert content(1) == content(100 * SECOND)

    def test_who_has_left_has_no_next_turn(self) -> None:
        traffic = replace(self.WORKLOAD, leaving=Leaving(1, FixedWait(3))).traffic()
        coming = traffic.arrivals()
        stays, leaves = next(coming), next(coming)
        assert stays.leaves_after_ns == 3 * SECOND
        assert len(tuple(traffic.follow_up(stays, stays.arrival_ns + 2 * SECOND))) == 1
        assert traffic.follow_up(leaves, leaves.arrival_ns + 3 * SECOND) == ()

    def test_no_turn_begins_after_the_end(self) -> None:
        traffic = replace(self.WORKLOAD, duration_s=10).traffic()
        first = next(traffic.arrivals())
        assert traffic.follow_up(first, 6 * SECOND) == ()


class TestClosedLoop:
    WORKLOAD = replace(PLAIN, arrivals=ClosedLoop(8, ExponentialWait(1)), num_requests=500)

    def test_there_are_never_more_requests_than_clients(self) -> None:
        traffic = self.WORKLOAD.traffic()
        asking = list(traffic.arrivals())
        assert [r.arrival_ns for r in asking] == [0] * 8
        count = 0
        while asking:
            asking.sort(key=lambda request: request.arrival_ns)
            request = asking.pop(0)
            count += 1
            after = tuple(traffic.follow_up(request, request.arrival_ns + SERVICE_NS))
            assert all(r.arrival_ns >= request.arrival_ns + SERVICE_NS for r in after)
            asking += after
            assert len(asking) <= 8
        assert count == 500

    def test_ends_with_the_duration(self) -> None:
        traffic = replace(self.WORKLOAD, num_requests=None, duration_s=30).traffic()
        asking, count = list(traffic.arrivals()), 0
        while asking:
            request = asking.pop(0)
            assert request.arrival_ns < 30 * SECOND
            count += 1
            asking += traffic.follow_up(request, request.arrival_ns + SERVICE_NS)
        assert count == pytest.approx(8 * 30 / 3, rel=0.3)

    def test_turns_first_then_the_next_session(self) -> None:
        workload = replace(self.WORKLOAD, turns=Turns(lengths.fixed(2)), num_requests=20)
        traffic = workload.traffic()
        request, *_ = traffic.arrivals()
        ids = [request.request_id]
        while following := tuple(traffic.follow_up(request, request.arrival_ns + 1)):
            (request,) = following
            ids.append(request.request_id)
        assert ids == ["0.0", "0.1", "8.0", "8.1", "9.0", "9.1"]


class TestStreams:
    BOTH = Streams(
        (
            replace(PLAIN, num_requests=100, tenants=Choice.of({"fast": 1})),
            replace(PLAIN, num_requests=50, arrivals=Renewal(1), tenants=Choice.of({"slow": 1})),
        )
    )

    def test_merged_in_order_with_texts_of_their_own(self) -> None:
        requests = arrived(self.BOTH)
        assert len(requests) == 150
        times = [request.arrival_ns for request in requests]
        assert times == sorted(times)
        names = [s.name for r in requests for s in (*r.prompt, r.output)]
        assert len(set(names)) == len(names)
        assert Counter(r.tenant for r in requests) == {"fast": 100, "slow": 50}
        assert len({r.request_id for r in requests}) == 150

    def test_equal_seeds_draw_different_requests(self) -> None:
        prompts = {r.request_id: r.num_prompt_tokens for r in arrived(self.BOTH)}
        assert [prompts[f"0-{i}"] for i in range(9)] != [prompts[f"1-{i}"] for i in range(9)]

    def test_follow_ups_come_from_the_stream_that_asked(self) -> None:
        both = Streams(tuple(replace(p, turns=Turns(lengths.fixed(2))) for p in self.BOTH.parts))
        traffic = both.traffic()
        for request in traffic.arrivals():
            (after,) = traffic.follow_up(request, request.arrival_ns)
            assert after.tenant == request.tenant
            assert after.request_id == request.request_id.replace(".0", ".1")

    def test_nobody_comes_in_vain_for_ever(self) -> None:
        """Requests that end as they arrive move no clock: only their number ends the loop."""
        timed = replace(PLAIN, arrivals=ClosedLoop(2), num_requests=None, duration_s=5)
        assert len(served(timed, 0)) == 2 * MAX_IN_VAIN
        assert len(served(timed, SECOND)) == 2 * 5
        counted = replace(timed, num_requests=3 * MAX_IN_VAIN)
        assert len(served(counted, 0)) == 3 * MAX_IN_VAIN


def test_given_conversations_come_in_order() -> None:
    given = Conversations("here", *(np.array(c) for c in ([2, 1], [5, 6, 7], [1, 2, 3])))
    workload = Synthetic(arrivals=Renewal(1), conversations=given)
    traffic = workload.traffic()
    first, second = traffic.arrivals()
    (later,) = traffic.follow_up(first, first.arrival_ns)
    assert [s.num_tokens for s in later.prompt] == [5, 1, 6]
    assert later.output.num_tokens == 2
    assert (second.num_prompt_tokens, second.output.num_tokens) == (7, 3)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: replace(PLAIN, num_requests=0), "num_requests is at least 1"),
        (lambda: replace(PLAIN, num_requests=None), "say when it ends"),
        (lambda: replace(PLAIN, num_requests=None, arrivals=AtOnce(), duration_s=9), "say when"),
        (lambda: replace(PLAIN, prompt_tokens=None), "prompt_tokens and output_tokens"),
        (lambda: replace(PLAIN, seed=-1), "seed is between"),
        (lambda: replace(PLAIN, deadline_s=0), "deadline_s is above 0"),
        (lambda: Streams(()), "at least one"),
        (lambda: Prefixes(0, lengths.fixed(1)), "prefixes"),
        (lambda: Prefixes(1, lengths.fixed(1), share=2), "between 0 and 1"),
        (lambda: Prefixes(1, lengths.fixed(1), skew=-1), "skew"),
        (lambda: Leaving(-0.1, FixedWait(1)), "between 0 and 1"),
        (lambda: Declared(multiple=0.5), "at least 1 times"),
        (lambda: Declared(constant=0), "at least 1"),
        (lambda: Declared(2.0, 3), "not both"),
        (lambda: Choice(()), "weights above 0"),
        (lambda: Choice((("a", 0.0),)), "weights above 0"),
    ],
)
def test_workloads_that_cannot_be(make, says) -> None:
    with pytest.raises(ValueError, match=says):
        make()
