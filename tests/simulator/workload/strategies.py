"""Laws of lengths, and all that a workload asks."""

from __future__ import annotations

from hypothesis import strategies as st

from headway.simulator.workload import lengths
from headway.simulator.workload.base import ClientRequest, Workload

small = st.integers(1, 60)
simple_laws = st.one_of(
    small.map(lengths.fixed),
    st.tuples(small, small).map(lambda pair: lengths.uniform(min(pair), max(pair))),
    st.tuples(small, small).map(lambda pair: lengths.log_uniform(min(pair), max(pair))),
    st.tuples(st.floats(1, 300), st.floats(1, 30)).map(lambda pair: lengths.spread(*pair)),
    st.tuples(st.floats(1, 200), st.floats(0.1, 2)).map(
        lambda pair: lengths.lognormal(*pair, 2, 300)
    ),
    st.lists(small, min_size=1, max_size=8).map(lengths.empirical),
)
laws = st.one_of(
    simple_laws,
    st.lists(st.tuples(st.floats(0.1, 9), simple_laws), min_size=1, max_size=3).map(
        lengths.mixture
    ),
)


def all_requests(workload: Workload) -> list[ClientRequest]:
    """With what follows the answers, all of which come at once."""
    traffic = workload.traffic()
    found: list[ClientRequest] = []
    for arrived in traffic.arrivals():
        asking = [arrived]
        while asking:
            request = asking.pop()
            found.append(request)
            asking += traffic.follow_up(request, request.arrival_ns)
    return found
