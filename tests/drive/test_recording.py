"""A recording has everything that a replay needs and nothing of what anybody wrote."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
from test_engine_loop import STEP_NS, ScriptedInbox, TimedExecutor

from headway.core.config import SchedulerConfig
from headway.core.request import FinishReason, Request, SamplingParams, TimeLimits
from headway.core.scheduler import Scheduler
from headway.drive.clock import VirtualClock
from headway.drive.loop import EngineLoop
from headway.drive.ports import ResetPrefixCache, Submit, Withdraw
from headway.drive.record import StepRecord
from headway.drive.recorder import BlockNames, RecordedInbox, Recorder
from headway.drive.recording import (
    _KINDS,
    VERSION,
    Arrival,
    CacheReset,
    EndedSequence,
    FilledBlocks,
    QueuedSequence,
    RecordingHeader,
    RefusedRequest,
    Withdrawal,
    read_line,
    read_recordings,
    write_line,
)

FIRST_TOKEN = 7_654_321  # no count and no time looks like these
NEWER = "line 1: a recording of version 9; this Headway reads version 2"
HEADER = RecordingHeader(start_ns=0, num_blocks=20, scheduler={"block_size": 4}, model={})
WORD = "unspeakable"


class Steps:
    def __init__(self) -> None:
        self.records: list[StepRecord] = []

    def on_step(self, record: StepRecord) -> None:
        self.records.append(record)


class ManyTokens(TimedExecutor):
    def run(self, step):
        result = super().run(step)
        ids = [FIRST_TOKEN + 1000 + c.sequence.sequence_id for c in step.chunks if c.samples]
        return type(result)(ids)


def request(name: str, num_tokens: int, *, shift: int = 0, **fields) -> Submit:
    sampling = SamplingParams(
        max_tokens=fields.pop("max_tokens", 6),
        n=fields.pop("n", 1),
        stop=[WORD],
        bad_words=[WORD],
        allowed_token_ids=[FIRST_TOKEN],
        logit_bias={FIRST_TOKEN: 1.0},
        stop_token_ids=[FIRST_TOKEN + 1],
    )
    ids = tuple(range(FIRST_TOKEN + shift, FIRST_TOKEN + shift + num_tokens))
    return Submit(Request(request_id=name, prompt_token_ids=ids, sampling=sampling, **fields))


def record(script, *, salt: bytes = b"salt", raises_in=(), **knobs) -> tuple[list[str], Steps]:
    clock = VirtualClock()
    config = SchedulerConfig(block_size=4, **knobs)
    lines = [write_line(HEADER)]
    recorder, steps = Recorder(lines.append, salt=salt, block_size=4), Steps()
    loop = EngineLoop(
        Scheduler(config, 20),
        clock=clock,
        inbox=RecordedInbox(ScriptedInbox(clock, script), recorder, clock),
        executor=ManyTokens(clock, raises_in=raises_in),
        listeners=[recorder],
        step_listeners=[steps, recorder],
    )
    loop.run()
    return lines, steps


SCRIPT = [
    (0, request("a", 10, n=2, priority=3, tenant="t", limits=TimeLimits(max_run_ns=10**12))),
    (0, request("too long", 500)),
    (0, request("a", 3)),
    (STEP_NS, Withdraw("a", 1, FinishReason.STOP, detail=f"said {WORD}")),
    (10 * STEP_NS, ResetPrefixCache()),
    (20 * STEP_NS, request("b", 9, cache_salt="secret")),
    (20 * STEP_NS, request("c", 10)),
]


def entries_of(lines, kind):
    return [entry for entry in read_recordings(lines)[0].entries if isinstance(entry, kind)]


def test_everything_is_in_it_in_order_and_survives_the_file():
    lines, steps = record(SCRIPT)
    assert entries_of(lines, StepRecord) == steps.records
    arrivals = entries_of(lines, Arrival)
    assert [a.request_id for a in arrivals] == ["a", "too long", "a", "b", "c"]
    first = arrivals[0]
    assert (first.n, first.priority, first.tenant, first.max_run_ns) == (2, 3, "t", 10**12)
    assert [a.at_ns for a in arrivals] == [0, 0, 0, 20 * STEP_NS, 20 * STEP_NS]
    [withdrawal] = entries_of(lines, Withdrawal)
    assert (withdrawal.request_id, withdrawal.index, withdrawal.reason) == ("a", 1, "stop")
    assert entries_of(lines, CacheReset) == [CacheReset(at_ns=10 * STEP_NS)]
    assert [q.sequence_id for q in entries_of(lines, QueuedSequence)] == [0, 1, 2, 3]
    assert [r.cause for r in entries_of(lines, RefusedRequest)] == ["never_fits", "id_in_use"]
    ended = {e.sequence_id: e for e in entries_of(lines, EndedSequence)}
    assert {i: e.num_output_tokens for i, e in ended.items()} == {0: 6, 1: 1, 2: 6, 3: 6}
    assert ended[1].reason == "stop"


def test_every_line_is_what_it_was_before_it_was_written():
    lines, _ = record(SCRIPT)
    assert [write_line(read_line(line)) for line in lines] == lines


def test_no_prompt_no_token_and_no_word_is_in_it():
    text = "\n".join(record(SCRIPT, raises_in=[1])[0])
    assert WORD not in text
    assert "secret" not in text
    assert not re.search(r"765[45]\d{3}\b", text)
    assert "no room" not in text  # what an exception says may quote a token
    assert '"error":"the step failed"' in text


def test_equal_prefixes_have_equal_names_and_others_do_not():
    script = [
        (0, request("a", 12)),
        (1, request("longer", 16)),
        (2, request("other", 12, shift=1)),
        (3, request("salted", 12, cache_salt="s")),
        (4, request("adapter", 12, adapter="x")),
    ]
    blocks = {a.request_id: a.prompt_blocks for a in entries_of(record(script)[0], Arrival)}
    assert blocks["longer"][:3] == blocks["a"]
    names = [name for key in ("longer", "other", "salted", "adapter") for name in blocks[key]]
    assert len(set(names)) == len(names) == 13
    assert all(re.fullmatch(r"[0-9a-f]{16}", name) for name in names)


def test_another_recording_names_the_same_prompt_otherwise():
    one, two = (
        entries_of(record([(0, request("a", 12))], salt=salt)[0], Arrival)[0].prompt_blocks
        for salt in (b"one", b"two")
    )
    assert not set(one) & set(two)


def test_a_continued_conversation_is_found_by_the_blocks_of_the_output_before():
    said = [FIRST_TOKEN + 1000] * 6
    first = request("first", 6)
    ids = (*first.request.prompt_token_ids, *said, 1, 1, 1)
    again = Request(request_id="again", prompt_token_ids=ids, sampling=SamplingParams())
    lines, _ = record([(0, first), (10**9, Submit(again))])
    filled = [
        name for f in entries_of(lines, FilledBlocks) if f.sequence_ids == (0,) for name in f.names
    ]
    before, after = entries_of(lines, Arrival)
    assert len(filled) == 2
    assert after.prompt_blocks[:3] == (*before.prompt_blocks, *filled)


def test_the_blocks_that_a_step_fills_follow_it_at_once_before_who_ended():
    lines, _ = record([(0, request("a", 3, max_tokens=1)), (0, request("b", 3))])
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds[kinds.index("step") :][:3] == ["step", "filled", "ended"]
    assert entries_of(lines, FilledBlocks)[0].sequence_ids == (0, 1)


def test_names_do_not_depend_on_how_the_tokens_come():
    at_once, by_one = BlockNames(b"root", 4), BlockNames(b"root", 4)
    tokens = list(range(11))
    assert at_once.push(tokens) == [name for t in tokens for name in by_one.push([t])]
    assert at_once.fork().push([1]) == by_one.fork().push([1])


def test_a_file_may_hold_several_recordings_of_which_the_last_line_is_cut_off():
    lines, _ = record(SCRIPT)
    killed = [*lines[:5], lines[5][:20]]
    recordings = read_recordings([*killed, *lines])
    assert [len(r.entries) for r in recordings] == [4, len(lines) - 1]
    assert len(read_recordings(killed)[0].entries) == 4


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["{}", "{}"], "line 1: not a line of a recording"),
        ([write_line(CacheReset(at_ns=1))], "line 1: a recording begins with its header"),
        ([write_line(HEADER), "garbage", write_line(CacheReset(at_ns=1))], "line 2: "),
        ([write_line(HEADER).replace('"version":2', '"version":9')], NEWER),
        ([write_line(HEADER).replace('"version":2', '"version":9,"more":1')], NEWER),
        ([write_line(HEADER), '{"kind":"cache_reset","at_ns":"x"}', "x"], "line 2: .*must be int"),
    ],
)
def test_what_is_no_recording_is_refused_with_its_place(lines, sentence):
    with pytest.raises(ValueError, match=sentence):
        read_recordings(lines)


@pytest.mark.parametrize("line", ["null", "[]", '{"kind":"step"}', '{"kind":"x"}', '{"a":1}', "5"])
def test_garbage_is_no_line(line):
    with pytest.raises(ValueError, match=r"."):
        read_line(line)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("chunks", "x\x1b[2J", r"not as in 'x\\x1b\[2J'"),
        ("chunks", [["0", 0, 4]], "ChunkRecord has the columns sequence_id int, first_position"),
        ("chunks", [[0, 0, 4], [1, 0.5, 1]], "ChunkRecord has the columns"),
        ("chunks", [[0, 0, True]], "ChunkRecord has the columns"),
        ("chunks", [[0, 0, 4], [1, 0]], "ChunkRecord has the columns"),
        ("chunks", [[0, [], 4]], "ChunkRecord has the columns"),
        ("chunks", None, "not a step record"),
        ("outputs", [[0, None]], "OutputRecord has the columns sequence_id int, num_tokens int"),
        ("retired", [[0, 1]], "RetirementRecord has the columns sequence_id int, reason str"),
        ("expired", ["ab"], "ExpiryRecord has the columns"),
        ("parked", [[]], "parked must be ids of sequences"),
        ("blocker", [], "blocker cannot be"),
        ("blocked_sequence_id", "x", "blocked_sequence_id cannot be 'x'"),
        ("error", None, "error cannot be None"),
        ("index", True, "index cannot be True"),
    ],
)
def test_a_step_with_wrong_values_is_no_line(field, value, sentence):
    step = next(line for line in record(SCRIPT)[0] if '"kind":"step"' in line)
    assert read_line(step)
    with pytest.raises(ValueError, match=sentence):
        read_line(json.dumps({**json.loads(step), field: value}))


def test_a_block_that_nobody_filled_is_no_line():
    with pytest.raises(ValueError, match="1 blocks were filled, 2 named"):
        read_line('{"kind":"filled","sequence_ids":[1],"names":["a","b"]}')


def test_the_header_is_json_that_people_can_read():
    assert json.loads(write_line(HEADER))["scheduler"] == {"block_size": 4}


def test_every_kind_and_field_is_in_the_documents():
    text = (Path(__file__).parents[2] / "docs" / "recording.md").read_text()
    assert f"**version {VERSION}**" in text
    for kind, entry in _KINDS.items():
        section = text.partition(f"\n### `{kind}`\n")[2].partition("\n### ")[0]
        missing = [f.name for f in fields(entry) if f"`{f.name}`" not in section]
        assert not missing, f"docs/recording.md, {kind}: {missing}"
