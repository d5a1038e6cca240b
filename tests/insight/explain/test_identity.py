"""Every nanosecond of every request has a name, whoever runs the scheduler."""

from __future__ import annotations

import random
from functools import cache

from headway.core.config import SchedulerConfig
from headway.simulator.step_time.base import StepShape
from headway.simulator.workload.base import ClientRequest
from tests.insight.explain.worlds import MODEL, Explained, explained, explained_again
from tests.simulator.worlds import asks

MS = 1_000_000
CONFIG = SchedulerConfig(
    max_num_seqs=16, max_num_batched_tokens=128, block_size=8, max_model_len=1024
)
NUM_BLOCKS = 160


def crowd(number: int) -> list[ClientRequest]:
    """Chunks, cache hits, preemptions, and clients that leave."""
    draw = random.Random(7)
    requests, at_ns = [], 0
    for name in range(number):
        at_ns += draw.randrange(20 * MS)
        leaves = draw.randrange(5 * MS, 200 * MS) if draw.random() < 0.1 else None
        prompt = draw.choice((20, 60, 150, 400))
        requests.append(
            asks(
                name,
                prompt,
                draw.randrange(1, 120),
                at_ns=at_ns,
                prefix=16 if prompt > 20 and name % 3 == 0 else 0,
                leaves_after_ns=leaves,
            )
        )
    return requests


@cache
def run() -> Explained:
    return explained(CONFIG, crowd(1000), NUM_BLOCKS)


def test_a_thousand_requests_add_up_to_the_nanosecond() -> None:
    found = run()
    rows = found.result.sequences
    assert len(found.explanations) == 1000
    for request_id, arrival, ended in zip(
        rows["request_id"], rows["arrival_ns"], rows["ended_ns"], strict=True
    ):
        assert found[request_id].e2e_ns == ended - arrival  # the sums were checked on the way
    sequences = [e.sequences[0] for e in found.explanations.values()]
    assert sum(s.preemptions for s in sequences) > 50
    assert sum(s.prefill.steps > 1 for s in sequences) > 50
    assert sum(s.prefill.cached_tokens > 0 for s in sequences) > 50
    assert sum(s.status == "abort" for s in sequences) > 20
    assert sum(s.parts_ns["stall"] > 0 for s in sequences) > 500
    assert all(s.parts_ns["delivery"] == 0 for s in sequences)


def test_stalls_are_what_the_cost_model_says() -> None:
    """Of undisturbed sequences, from the records of the steps that they decoded in."""
    found = run()
    prompts = [*found.result.sequences["num_prompt_tokens"]]
    stalls: dict[int, int] = {}
    begun: set[int] = set()
    for record in found.log.records:
        decodes = [c for c in record.chunks if c.sequence_id in begun and c.num_tokens == 1]
        decodes = [c for c in decodes if c.first_position >= prompts[c.sequence_id]]
        if len(decodes) < len(record.chunks):
            attended = sum(c.first_position + 1 for c in decodes)
            alone = StepShape(0, 0, 0, 0, len(decodes), attended, len(decodes))
            stall_ns = record.end_ns - record.start_ns - (MODEL.step_ns(alone) if decodes else 0)
            for chunk in decodes:
                stalls[chunk.sequence_id] = stalls.get(chunk.sequence_id, 0) + stall_ns
        begun |= {output.sequence_id for output in record.outputs}
    names = found.result.sequences["request_id"]
    compared = 0
    for sequence_id, name in enumerate(names):
        [sequence] = found[name].sequences
        if not sequence.preemptions and sequence.status == "stop":
            assert sequence.parts_ns["stall"] == stalls.get(sequence_id, 0)
            assert sequence.stall.unknown_ns == 0
            compared += 1
    assert compared > 500


def test_a_preemption_says_who_when_for_whom_and_what_it_cost() -> None:
    found = run()
    names = found.result.sequences["request_id"]
    told = [(r.start_ns, p) for r in found.log.records for p in r.preempted]
    by_request: dict[str, list] = {}
    for at_ns, row in told:
        by_request.setdefault(names[row.sequence_id], []).append((at_ns, row))
    for name, rows in by_request.items():
        explanation = found[name]
        arrival_ns = found.result.sequences["arrival_ns"][list(names).index(name)]
        [sequence] = explanation.sequences
        assert sequence.preemptions == len(rows) == len(sequence.evictions)
        for number, ((at_ns, row), eviction) in enumerate(
            zip(rows, sequence.evictions, strict=True), 1
        ):
            assert eviction.number == number
            assert eviction.at_ns == at_ns - arrival_ns
            assert eviction.beneficiary == names[row.beneficiary_id]
            assert eviction.lost_tokens == row.num_lost_tokens
            assert eviction.free_blocks_after > eviction.free_blocks_before
            if eviction.away_ns:
                redone = eviction.recomputed_tokens + eviction.refunded_tokens
                assert redone == eviction.lost_tokens
        assert sequence.lost_tokens == sum(row.num_lost_tokens for _, row in rows)


def test_a_run_and_its_recording_are_explained_alike() -> None:
    first = explained(CONFIG, crowd(200), NUM_BLOCKS, is_exact=False, is_recorded=True)
    again = explained_again(first.recording, CONFIG)
    assert first.explanations == again
