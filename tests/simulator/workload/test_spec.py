"""Specs and short forms: they read back as what they were written from, and errors name fields."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.simulator.workload import lengths
from headway.simulator.workload.arrivals import AtOnce, ClosedLoop, Phases, Renewal
from headway.simulator.workload.clients import Choice, Declared, Leaving, Prefixes, Turns
from headway.simulator.workload.forms import parse_arrivals, parse_lengths, parse_wait
from headway.simulator.workload.spec import changed_spec, from_spec, to_spec, with_later_seed
from headway.simulator.workload.synthetic import Streams, Synthetic
from headway.simulator.workload.waits import ExponentialWait, FixedWait, UniformWait
from workload.strategies import laws

positive = st.floats(1e-6, 1e6)
waits = st.one_of(
    positive.map(FixedWait),
    positive.map(ExponentialWait),
    st.tuples(positive, positive).map(lambda pair: UniformWait(min(pair), max(pair))),
)
variations = st.floats(0, 50)
arrivals = st.one_of(
    st.builds(Renewal, positive, variations),
    st.just(AtOnce()),
    st.builds(ClosedLoop, st.integers(1, 999), waits),
    st.builds(
        Phases,
        st.lists(st.tuples(positive, positive), min_size=1, max_size=3).map(tuple),
        variations,
    ),
)
shares = st.floats(0, 1)
workloads = st.builds(
    Synthetic,
    arrivals=arrivals,
    prompt_tokens=laws,
    output_tokens=laws,
    num_requests=st.integers(1, 10**9),
    duration_s=st.none() | positive,
    seed=st.integers(0, 2**64 - 1),
    max_tokens=st.one_of(
        st.just(Declared()),
        st.builds(Declared, multiple=st.floats(1, 100)),
        st.builds(Declared, constant=st.integers(1, 10**6)),
    ),
    prefixes=st.none() | st.builds(Prefixes, st.integers(1, 99), laws, st.floats(0, 9), shares),
    turns=st.none() | st.builds(Turns, laws, waits, st.none() | laws),
    tenants=st.dictionaries(st.text(), positive, min_size=1, max_size=3).map(Choice.of),
    priorities=st.dictionaries(st.integers(-9, 9), positive, min_size=1, max_size=3).map(Choice.of),
    leaving=st.none() | st.builds(Leaving, shares, waits),
    max_queue_s=st.none() | positive,
    deadline_s=st.none() | positive,
)


@given(workloads)
def test_specs_read_back(workload: Synthetic) -> None:
    assert from_spec(json.loads(json.dumps(to_spec(workload)))) == workload


@given(st.lists(workloads, min_size=1, max_size=3))
def test_streams_read_back(parts: list[Synthetic]) -> None:
    workload = Streams(tuple(parts))
    assert from_spec(to_spec(workload)) == workload


@given(laws)
def test_laws_read_back_with_their_tables(law: lengths.LengthLaw) -> None:
    again = parse_lengths(law.text)
    assert again.values.tolist() == law.values.tolist()
    assert again.cumulative.tolist() == law.cumulative.tolist()


def test_short_forms() -> None:
    assert parse_lengths("256") == lengths.fixed(256)
    assert parse_lengths("values:3,5,5") == lengths.empirical([3, 5, 5])
    assert parse_lengths("lognormal:1000:0.8:32-8192") == lengths.lognormal(1000, 0.8, 32, 8192)
    assert parse_arrivals("4") == Renewal(4)
    assert parse_arrivals("closed:8:exponential:2") == ClosedLoop(8, ExponentialWait(2))
    assert parse_arrivals("phases:3600@2,60@8:2.5") == Phases(((3600, 2), (60, 8)), 2.5)
    assert parse_wait("0.5") == FixedWait(0.5)


STREAMS = {
    "requests": 9,
    "seed": 3,
    "streams": [
        {"rate": 1, "prompt_tokens": 5, "output_tokens": 6},
        {"arrivals": "at-once", "prompt_tokens": 7, "output_tokens": 8, "requests": 2, "seed": 4},
    ],
}


def test_changes_reach_each_stream() -> None:
    changed = from_spec(changed_spec(STREAMS, {"rate": "4", "requests": "10", "seed": "8"}))
    assert isinstance(changed, Streams)
    assert [(p.arrivals, p.num_requests, p.seed) for p in changed.parts] == [
        (Renewal(4), 10, 8)
    ] * 2
    kept = from_spec(changed_spec(STREAMS, {"max_tokens": "9"}))
    assert isinstance(kept, Streams)
    assert [(p.arrivals, p.num_requests) for p in kept.parts] == [(Renewal(1), 9), (AtOnce(), 2)]


def test_later_seeds_reach_each_stream() -> None:
    later = from_spec(with_later_seed(STREAMS, 10))
    assert isinstance(later, Streams)
    assert [part.seed for part in later.parts] == [13, 14]


def test_large_seeds_are_exact() -> None:
    spec = {"rate": 1, "prompt_tokens": 5, "output_tokens": 6, "requests": 1}
    for seed in ("9007199254740993", 9007199254740993):
        workload = from_spec(with_later_seed({**spec, "seed": seed}, 1))
        assert isinstance(workload, Synthetic)
        assert workload.seed == 9007199254740994
    with pytest.raises(ValueError, match=r"^seed: a number is needed, got 'x'"):
        with_later_seed({**spec, "seed": "x"}, 1)


def test_what_a_command_line_gives() -> None:
    """Texts for everything, as flags are."""
    workload = from_spec(
        {
            "rate": "4",
            "prompt_tokens": "lognormal:1000:0.8:32-8192",
            "output_tokens": "fixed:256",
            "requests": "100",
            "max_tokens": "4x",
            "tenants": "a=3,b",
            "priorities": "0=9,1",
            "think_s": None,
        }
    )
    assert workload == Synthetic(
        arrivals=Renewal(4),
        prompt_tokens=lengths.lognormal(1000, 0.8, 32, 8192),
        output_tokens=lengths.fixed(256),
        num_requests=100,
        max_tokens=Declared(multiple=4),
        tenants=Choice.of({"a": 3, "b": 1}),
        priorities=Choice.of({0: 9, 1: 1}),
    )


def test_lists_are_empirical_and_numbers_are_fixed() -> None:
    workload = from_spec({"rate": 1, "prompt_tokens": [1, 2, 2], "output_tokens": 5, "requests": 1})
    assert workload.prompt_tokens == lengths.empirical([1, 2, 2])
    assert workload.output_tokens == lengths.fixed(5)


def test_streams_share_what_stands_beside_them() -> None:
    spec = {
        "requests": 10,
        "prompt_tokens": 100,
        "output_tokens": 10,
        "streams": [{"rate": 1, "tenants": "slow"}, {"rate": 9, "prompt_tokens": 7}],
    }
    slow, fast = from_spec(spec).parts
    assert (slow.prompt_tokens, fast.prompt_tokens) == (lengths.fixed(100), lengths.fixed(7))
    assert slow.tenants == Choice.of({"slow": 1})


GOOD = {"rate": 4, "prompt_tokens": 9, "output_tokens": 9, "requests": 9}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"prompt_token": 3}, "^prompt_token: there is no such field; there are rate, arrivals"),
        ({"prompt_tokens": None}, "^prompt_tokens: is needed"),
        ({"rate": None}, "^arrivals: are needed, or a rate"),
        ({"arrivals": "poisson:4"}, "^rate: arrivals are given too"),
        ({"rate": "fast"}, "^rate: a number is needed, got 'fast'"),
        ({"rate": True}, "^rate: a number is needed"),
        ({"rate": 0}, "^rate: a rate is above 0"),
        ({"requests": 1.5}, "^requests: a whole number is needed, got 1.5"),
        ({"prompt_tokens": "lognormal:1000"}, "^prompt_tokens: 'lognormal:1000': .* the form is"),
        ({"prompt_tokens": "lognormal:a:b"}, "^prompt_tokens: .*'a' is not a number"),
        ({"prompt_tokens": "lognormal:1:1:9"}, "^prompt_tokens: .*'9' is not LOW-HIGH"),
        ({"prompt_tokens": "pareto:3"}, "^prompt_tokens: 'pareto:3' is not a law .*fixed:N"),
        ({"prompt_tokens": "uniform:9-3"}, "^prompt_tokens: a range of lengths"),
        ({"prompt_tokens": "uniform:1.5-3"}, "^prompt_tokens: .*1.5 is not a whole number"),
        ({"prompt_tokens": "mixture:fixed:3"}, "^prompt_tokens: .*has no weight"),
        ({"prompt_tokens": "histogram:3"}, "^prompt_tokens: .*has no weight"),
        ({"prompt_tokens": [3, "x"]}, "^prompt_tokens: a number is needed, got 'x'"),
        ({"max_tokens": "0.5x"}, "^max_tokens: max_tokens is at least 1 times"),
        ({"max_tokens": "lots"}, "^max_tokens: 'lots' is not a number"),
        ({"prefixes": 3}, "^prefixes: prefix_tokens is needed too"),
        ({"prefix_skew": 1}, "^prefix_skew: prefixes is needed too"),
        ({"prefixes": 0, "prefix_tokens": 9}, "^prefixes: there are 1 to"),
        ({"think_s": 3}, "^think_s: turns is needed too"),
        ({"turns": "2", "think_s": "soon"}, "^think_s: 'soon' is not a law of pauses"),
        ({"tenants": "a=x"}, "^tenants: 'x' is not a number"),
        ({"tenants": "a,a"}, "^tenants: 'a' is there twice"),
        ({"priorities": "high"}, "^priorities: a number is needed, got 'high'"),
        ({"leave_share": 0.5}, "^leave_share: leave_after_s is needed too"),
        ({"leave_share": 5, "leave_after_s": 1}, "^leave_share: a share is between 0 and 1"),
        ({"requests": None}, "say when it ends"),
        ({"streams": 3}, "^streams: a list of specs"),
        ({"streams": [{}, {"rate": -1}]}, r"^streams\[1\].rate: a rate is"),
        ({"rate": None, "arrivals": "phases:5"}, "^arrivals: .*'5' is not SECONDS@RATE"),
        ({"rate": None, "arrivals": "at-once:5"}, "^arrivals: .*nothing follows"),
        ({"rate": None, "arrivals": "closed:x"}, "^arrivals: .*'x' is not a number"),
    ],
)
def test_errors_name_the_field(change, says) -> None:
    with pytest.raises(ValueError, match=says):
        from_spec({**GOOD, **change})
