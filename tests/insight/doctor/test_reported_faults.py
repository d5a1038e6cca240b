"""Reports about other engines to which the doctor is the answer (docs/faults.md)."""

from __future__ import annotations

import dataclasses

from headway.insight.doctor.diagnose import diagnose
from headway.insight.doctor.findings import Diagnosis, Finding, Severity, Wall
from headway.insight.doctor.page import read_page
from headway.insight.doctor.pages import observe_pages
from headway.insight.doctor.readings import UnderWay
from headway.insight.doctor.runs import observe_run
from tests.insight.doctor.foreign import Seen, vllm
from tests.insight.doctor.foreign_situations import BUSY, PROMPTS, steady
from tests.insight.doctor.simulated import SimulatedServer


def of_vllm(seen: Seen) -> Diagnosis:
    return diagnose(observe_pages(seen.looks(vllm), "pages"))


def found(diagnosis: Diagnosis, kind: str) -> Finding:
    [finding] = [finding for finding in diagnosis.findings if finding.kind == kind]
    return finding


def test_p60_prompts_bind_while_memory_is_a_third_full() -> None:
    queue = [40, 52, 61, 70, 83, 95]
    diagnosis = of_vllm(Seen([14, 9, 12, 16, 11, 13], queue, steady(0.32), **PROMPTS))
    assert diagnosis.wall is Wall.PREFILL
    assert any("KV cache" in sentence or "memory" in sentence for sentence in diagnosis.inert)
    assert found(diagnosis, "queueing-collapse").severity is Severity.CRITICAL


def test_p18_the_adapter_slot_is_named_and_how_many_would_do() -> None:
    adapters = [("a", "b,c,d")] * 6
    waiting = {"deferred": steady(3), "max_loras": 1, "adapters": adapters}
    diagnosis = of_vllm(Seen(steady(1), steady(3), steady(0.03), **BUSY, **waiting))
    assert diagnosis.wall is Wall.ADAPTERS
    [change] = diagnosis.changes
    assert (change.what, change.before, change.after) == ("--max-loras", "1", "4")


def test_p17_a_page_tells_that_somebody_holds_the_slot() -> None:
    held = {"output": 5.4, "steps": 5.4, "gap": 0.185, "queue": 3.0, "decode": 8.0}
    diagnosis = of_vllm(Seen(steady(1), steady(14), steady(0.1), seconds=60, **held))
    assert diagnosis.wall is Wall.SLOTS
    assert found(diagnosis, "slots-held").severity is Severity.CRITICAL


def test_p17_a_server_that_knows_who_is_asked() -> None:
    held = {"output": 5.4, "steps": 5.4, "gap": 0.185, "queue": 3.0, "decode": 8.0}
    seen = Seen(steady(1), steady(14), steady(0.1), seconds=60, **held)
    oldest = (
        UnderWay(request_id="b", status="waiting", age_s=3700),
        UnderWay(request_id="a", status="running", age_s=3600),
    )
    observation = observe_pages(seen.looks(vllm), "pages")
    diagnosis = diagnose(dataclasses.replace(observation, under_way=oldest))
    finding = found(diagnosis, "slots-held")
    assert finding.subject == "a"
    assert "a runs, and came 3,600 s ago" in finding.evidence


def test_p17_a_recording_tells_who() -> None:
    endless = {"arrivals": "at-once", "requests": 1, "output_tokens": 100_000}
    short = {"arrivals": "constant:4", "requests": 14, "output_tokens": 8}
    workload = {"prompt_tokens": 20, "streams": [endless, short]}
    server = SimulatedServer(workload, max_num_seqs=1, pool=120_000, max_model_len=110_000)
    holder = server.scheduler.running_sequences()[0].request.request_id
    diagnosis = diagnose(observe_run(server.result, "steps"))
    finding = found(diagnosis, "slots-held")
    assert finding.subject == holder
    assert holder in finding.title
    assert finding.severity is Severity.CRITICAL


def test_p52_a_long_step_of_a_busy_engine_is_not_a_stuck_one() -> None:
    slow = {"gap": 4.0, "output": 0.0}
    stands = (steady(4), steady(2), steady(0.1))
    assert of_vllm(Seen(*stands, **slow, seconds=15)).wall is not Wall.STUCK  # who knows its gaps?
    assert of_vllm(Seen(*stands, **slow, seconds=75)).wall is Wall.STUCK
    used_to = 'vllm:inter_token_latency_seconds_bucket{engine="0",model_name="m",le="%s"} %d\n'
    gaps = "".join(used_to % (bound, count) for bound, count in ((1, 0), (5, 90), ("+Inf", 90)))
    gaps += 'vllm:inter_token_latency_seconds_sum{engine="0",model_name="m"} 360\n'
    gaps += 'vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 90\n'
    diagnosis = of_vllm(Seen(*stands, **slow, seconds=15, extra=gaps))
    assert diagnosis.wall is not Wall.STUCK
    short = gaps.replace('le="5"', 'le="0.1"').replace(" 360", " 5")
    quick = of_vllm(Seen(*stands, **slow, seconds=15, extra=short))
    assert quick.wall is Wall.STUCK
    text = "vllm:num_requests_running 1\nvllm:num_requests_waiting 3\nheadway:backlog_tokens 9\n"
    pages = [text + "vllm:iteration_tokens_total_count 5\nvllm:engine_healthy 1\n"] * 2
    watched = [(read_page(page), 20.0 * n) for n, page in enumerate(pages)]
    assert diagnose(observe_pages(watched, "pages")).wall is not Wall.STUCK


def test_few_evictions_of_many_requests_are_no_wall() -> None:
    quiet = (steady(20), steady(0), steady(0.5))
    few, many = (of_vllm(Seen(*quiet, **BUSY, preempted=rate)) for rate in (0.1, 0.5))
    assert few.wall is not Wall.KV_MEMORY
    assert many.wall is Wall.KV_MEMORY
