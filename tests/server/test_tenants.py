"""Whose a request is, and what a tenant's own limits refuse it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from headway.cli.settings import _tenant_header
from headway.core.events import AbortCause, Aborted, Admitted, Advanced, Queued, Rejected, Retired
from headway.core.request import FinishReason, Request, SamplingParams
from headway.server.config import AppSettings, ServerConfig
from headway.server.log_stats import limits_line
from headway.server.refusals import NeverFitsError, QueueFullError
from headway.server.tenant_brakes import TenantBrakes
from tests.server.bench import LiveServer, live_server
from tests.server.test_disconnects import is_idle, send
from tests.server.test_full_server import LONG, rejections

SECOND = 1_000_000_000
SHORT = {"prompt": "abc", "max_tokens": 1}


class World:
    """The fold, told what an engine would tell it."""

    def __init__(self, max_num_reqs: int | None = None, max_num_tokens: int | None = None) -> None:
        self.brakes = TenantBrakes(max_num_reqs, max_num_tokens)
        self.now_ns = 0
        self.num_sequences = 0

    def submit(self, name: str, num_tokens: int = 10, n: int = 1) -> list[int]:
        """`a1` is of tenant a."""
        request = Request(
            request_id=name,
            prompt_token_ids=tuple(range(num_tokens)),
            sampling=SamplingParams(n=n),
            tenant=name[0],
        )
        self.brakes.on_submitted(request, self.now_ns)
        ids = list(range(self.num_sequences, self.num_sequences + n))
        self.num_sequences += n
        return ids

    def queue(self, name: str, num_tokens: int = 10, n: int = 1) -> list[int]:
        ids = self.submit(name, num_tokens, n)
        self.tell(*(Queued(i, name, index) for index, i in enumerate(ids)))
        return ids

    def tell(self, *events: object) -> None:
        self.brakes.on_events(events, self.now_ns)  # type: ignore[arg-type]

    def refusal(self, tenant: str, num_sequences: int = 1) -> QueueFullError | None:
        return next(iter(self.brakes.refusals(tenant, num_sequences)), None)


def retired(sequence_id: int, name: str) -> Retired:
    return Retired(sequence_id, name, FinishReason.LENGTH)


def test_one_tenants_load_is_not_anothers() -> None:
    world = World(max_num_reqs=3)
    ids = world.queue("a1", n=3)
    full = world.refusal("a")
    assert full is not None
    assert full.cause == "tenant_reqs"
    assert "your tenant has 3 of 3 sequences in flight and this asks for 1 more" in str(full)
    assert world.refusal("b", 3) is None
    world.tell(retired(ids[0], "a1"))
    assert world.refusal("a") is None
    assert world.refusal("a", 2) is not None


def test_more_than_the_limit_can_never_come_in() -> None:
    with pytest.raises(
        NeverFitsError, match=r"asks for 4 sequences .* takes 3 of a tenant at once"
    ):
        World(max_num_reqs=3).refusal("a", 4)


def test_prompt_tokens_count_until_the_first_output_less_what_was_cached() -> None:
    world = World(max_num_tokens=100)
    [first] = world.queue("a1", num_tokens=70)
    assert world.refusal("a") is None
    [second] = world.queue("a2", num_tokens=50)
    full = world.refusal("a")
    assert full is not None
    assert full.cause == "tenant_tokens"
    assert "120 prompt tokens of your tenant wait to be computed and the limit is 100" in str(full)
    world.tell(Admitted(second, "a2", 30))
    assert world.refusal("a") is None, "70 + 20"
    world.queue("a3", num_tokens=10)
    assert world.refusal("a") is not None
    world.tell(Admitted(first, "a1", 0), Advanced(first, "a1", (5,)))
    world.tell(Advanced(first, "a1", (5,)))
    assert world.brakes._accounts["a"].num_tokens == 20 + 10


def test_retry_after_is_of_the_tenants_own_work() -> None:
    """b's many endings do not shorten a's wait."""
    world = World(max_num_reqs=10)
    mine = [world.queue(f"a{n}")[0] for n in range(10)]
    others = [world.queue(f"b{n}")[0] for n in range(100)]
    for second in range(20):
        world.now_ns += SECOND
        world.tell(*(retired(others.pop(), f"b{len(others)}") for _ in range(5)))
        if second % 4 == 3:  # one of a's every four seconds
            number = second // 4
            world.tell(retired(mine[number], f"a{number}"))
            world.queue(f"a{100 + number}")
    full = world.refusal("a", 3)
    assert full is not None
    assert full.retry_after_s == 12
    assert "5 sequences of it done in the last 20 s" in str(full)


def test_retry_after_of_prompt_tokens() -> None:
    world = World(max_num_tokens=100)
    [first] = world.queue("a1", num_tokens=80)
    world.tell(Admitted(first, "a1", 0))
    world.now_ns += 4 * SECOND
    world.tell(Advanced(first, "a1", (1,)))
    world.queue("a2", num_tokens=199)
    full = world.refusal("a")
    assert full is not None
    assert full.retry_after_s == 5, "100 of them too many, at 80 in 4 s"


def test_a_tenant_of_whom_nothing_is_done_waits_as_long_as_it_has_waited() -> None:
    world = World(max_num_reqs=1)
    world.queue("a1")
    for _ in range(25):
        world.now_ns += SECOND
        world.tell()
    full = world.refusal("a")
    assert full is not None
    assert full.retry_after_s == 25
    assert "no sequences of it done" in str(full)


def test_every_way_to_end_leaves_nothing() -> None:
    world = World(max_num_reqs=100, max_num_tokens=10_000)
    for number in range(300):
        name = f"{'abcdef'[number % 6]}{number}"
        kind = number % 5
        if kind == 0:
            world.submit(name, n=2)
            world.tell(Rejected(name, "never fits"))
            continue
        ids = world.queue(name, num_tokens=number, n=2)
        if kind == 1:
            world.tell(Rejected(name, "too late"))
            continue
        for i in ids:
            if kind > 2:
                world.tell(Admitted(i, name, number // 2))
            if kind > 3:
                world.tell(Advanced(i, name, (1,)))
            ended = retired(i, name) if kind > 3 else Aborted(i, name, cause=AbortCause.ENGINE)
            world.tell(ended)
    accounts = world.brakes._accounts.values()
    assert [(a.num_sequences, a.num_tokens) for a in accounts] == [(0, 0)] * 6
    assert not world.brakes._open
    assert not world.brakes._to_compute


def test_tenants_of_long_ago_are_forgotten() -> None:
    world = World(max_num_reqs=5)
    for number in range(3000):
        request = Request(
            request_id=f"{number}",
            prompt_token_ids=(1,),
            sampling=SamplingParams(),
            tenant=f"t{number}",
        )
        world.brakes.on_submitted(request, world.now_ns)
        world.tell(Queued(number, f"{number}", 0), retired(number, f"{number}"))
        world.now_ns += SECOND
    assert len(world.brakes._accounts) < 400


# ---- At the door ----


def tenants(live: LiveServer) -> list[str]:
    return [entry["request"].get("tenant", "") for entry in live.commands("SubmitMessage")]


def ask(live: LiveServer, body: dict[str, object] = SHORT, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(live.url + "/v1/completions", json=body, headers=named)


def test_the_header_names_the_tenant(tmp_path: Path) -> None:
    with live_server(tmp_path) as live:
        assert ask(live).status_code == 200
        assert ask(live, x_tenant_id="team-a").status_code == 200
        live.wait_for(lambda: len(tenants(live)) == 2)
        assert tenants(live) == ["", "team-a"]
        for wrong in ("two words", "", "x" * 129):
            refused = ask(live, x_tenant_id=wrong)
            assert refused.status_code == 400
            assert refused.json()["error"]["param"] == "x-tenant-id"


def test_another_header_or_none(tmp_path: Path) -> None:
    with live_server(tmp_path, tenant_header="x-team") as live:
        ask(live, x_tenant_id="a", x_team="b")
        assert tenants(live) == ["b"]
    (tmp_path / "none").mkdir()
    with live_server(tmp_path / "none", tenant_header=None) as live:
        ask(live, x_tenant_id="a")
        assert tenants(live) == [""]


def test_of_several_keys_each_is_a_tenant(tmp_path: Path) -> None:
    with live_server(tmp_path, api_keys=("one", "two"), tenant_header=None) as live:
        for key in ("two", "one"):
            assert ask(live, authorization=f"Bearer {key}", x_tenant_id="a").status_code == 200
        assert tenants(live) == ["key 2", "key 1"]


def test_a_header_is_believed_beside_keys_only_where_it_is_named() -> None:
    assert _tenant_header(ServerConfig()) == "x-tenant-id"
    assert _tenant_header(ServerConfig(api_key=("one",))) == "x-tenant-id"
    assert _tenant_header(ServerConfig(api_key=("one", "two"))) is None
    assert _tenant_header(ServerConfig(api_key=("one", "two"), tenant_header="x-team")) == "x-team"
    assert _tenant_header(ServerConfig(tenant_header="none")) is None


def test_a_flood_is_turned_away_and_others_come_in(tmp_path: Path) -> None:
    settings = {"max_tenant_queued_reqs": 3, "max_num_queued_reqs": 50}
    with live_server(tmp_path, "--delay", "0.01", **settings) as live:

        async def all_at_once() -> list[httpx.Response]:
            async with httpx.AsyncClient(timeout=30) as http:
                url = live.url + "/v1/completions"
                flood = [
                    http.post(url, json=LONG, headers={"x-tenant-id": "flood"}) for _ in range(10)
                ]
                quiet = [
                    http.post(url, json=LONG, headers={"x-tenant-id": f"q{n}"}) for n in range(3)
                ]
                return await asyncio.gather(*flood, *quiet)

        answers = asyncio.run(all_at_once())
        assert sorted(a.status_code for a in answers[:10]) == [200] * 3 + [503] * 7
        assert [a.status_code for a in answers[10:]] == [200] * 3
        refused = next(a for a in answers if a.status_code == 503)
        assert refused.json()["error"]["message"].startswith("your tenant has 3 of 3 sequences")
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert rejections(live, "tenant_reqs") == 7
        assert rejections(live, "queue_reqs") == 0


def test_prompt_tokens_of_a_tenant(tmp_path: Path) -> None:
    with live_server(tmp_path, "--delay", "0.05", max_tenant_queued_tokens=50) as live:
        held = send(live, {**LONG, "stream": True, "prompt": "x" * 60, "max_tokens": 1900})
        live.wait_for(lambda: len(tenants(live)) == 1)
        assert ask(live, {**LONG, "max_tokens": 2}).status_code in (200, 503)
        assert ask(live, SHORT, x_tenant_id="other").status_code == 200
        held.close()
        live.wait_for(lambda: is_idle(live))
        assert ask(live).status_code == 200, "what was withdrawn waits no more"


def test_tenants_limits_are_told() -> None:
    settings = AppSettings(
        served_model_names=("m",), stop_token_ids=frozenset(), max_tenant_queued_reqs=8
    )
    assert "8 sequences of a tenant in flight, no limit of sequences in flight" in limits_line(
        settings
    )
