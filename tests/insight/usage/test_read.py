"""Files of usage as servers and programs write them, and what is no such file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import zstandard

from headway.insight.timeline import RequestTimings, metrics_body
from headway.insight.usage import streams
from headway.insight.usage.answer import Ending
from headway.insight.usage.columns import MAX_GROUPS, UNSAID, Usage
from headway.insight.usage.read import looks_like_usage, read_usage
from headway.server.schema.answers import (
    ChatChoice,
    ChatCompletion,
    ChatMessage,
    PromptTokensDetails,
)
from headway.server.schema.answers import Usage as UsageBody

CHAT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1_700_000_000,
    "model": "llama",
    "choices": [{"index": 0, "message": {"content": "…"}, "finish_reason": "stop"}],
    "usage": {
        "prompt_tokens": 30,
        "completion_tokens": 7,
        "total_tokens": 37,
        "prompt_tokens_details": {"cached_tokens": 16},
    },
}
USED = {"prompt_tokens": 3, "completion_tokens": 4}


def file(folder: Path, lines: Iterable[Any], name: str = "usage.jsonl") -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / name).write_text("\n".join(texts) + "\n")
    return folder / name


def chunk(id: str, finish: str | None = None, usage: Mapping[str, Any] | None = None, **fields):
    body = {"id": id, "object": "chat.completion.chunk", "model": "llama", "usage": usage}
    choices = [{"index": fields.pop("index", 0), "delta": {}, "finish_reason": finish}]
    return f"data: {json.dumps({'choices': choices, **body, **fields})}"


def only(usage: Usage) -> dict[str, Any]:
    """The one answer of a file."""
    assert len(usage) == 1
    columns = (f for f in Usage.__slots__ if f not in ("groups", "left_out"))
    row = {name: getattr(usage, name)[0].item() for name in columns}
    return {**row, "name": usage.groups[0].name}


# ---- Shapes of answers ----


def test_an_answer_as_this_server_sends_it(tmp_path):
    body = ChatCompletion(
        id="chatcmpl-1",
        created=1_700_000_000,
        model="smol",
        system_fingerprint=None,
        choices=[ChatChoice(0, ChatMessage("assistant", "…"), finish_reason="length")],
        usage=UsageBody(30, 7, 37, PromptTokensDetails(16)),
        metrics=metrics_body(RequestTimings(queue_ns=2_500_000, num_preemptions=3)),
    )
    row = only(read_usage(file(tmp_path, [msgspec.json.encode(body).decode()])))
    assert row == {
        "completion_tokens": 7,
        "prompt_tokens": 30,
        "cached_tokens": 16,
        "max_tokens": UNSAID,
        "num_preemptions": 3,
        "num_choices": 1,
        "ending": Ending.LENGTH,
        "group": 0,
        "at_s": 1_700_000_000,
        "queue_ms": 2.5,
        "name": "smol",
    }


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (CHAT, {"completion_tokens": 7, "cached_tokens": 16, "ending": Ending.STOP}),
        (USED, {"completion_tokens": 4, "prompt_tokens": 3, "ending": Ending.UNKNOWN}),
        ({"usage": USED, "finish_reason": "length"}, {"ending": Ending.LENGTH}),
        (
            {**CHAT, "choices": [{"finish_reason": "stop"}, {"finish_reason": "length"}]},
            {"num_choices": 2, "ending": Ending.LENGTH},
        ),
        (
            {
                "object": "response",
                "created_at": 5,
                "status": "incomplete",
                "incomplete_details": {"reason": "max_output_tokens"},
                "max_output_tokens": 9,
                "usage": {
                    "input_tokens": 4,
                    "output_tokens": 9,
                    "input_tokens_details": {"cached_tokens": 1},
                },
            },
            {
                "completion_tokens": 9,
                "prompt_tokens": 4,
                "cached_tokens": 1,
                "max_tokens": 9,
                "ending": Ending.LENGTH,
                "at_s": 5.0,
            },
        ),
        (
            {"object": "response", "status": "completed", "usage": {"output_tokens": 2}},
            {"ending": Ending.STOP, "prompt_tokens": UNSAID},
        ),
        (
            {
                "id": "batch_req_1",
                "custom_id": "a",
                "response": {"status_code": 200, "request_id": "b", "body": CHAT},
                "error": None,
            },
            {"completion_tokens": 7, "name": "llama"},
        ),
        (
            {
                "request": {"model": "m", "max_completion_tokens": 512, "max_tokens": 9},
                "response": CHAT,
                "adapter": "sql",
                "arrival_s": 12.5,
            },
            {"max_tokens": 512, "name": "llama + sql", "at_s": 12.5},
        ),
        (
            {"type": "response.completed", "response": {"usage": {"output_tokens": 3}}},
            {"completion_tokens": 3},
        ),
        ({"usage": {**USED, "completion_tokens": "12"}}, {"completion_tokens": 12}),
        ({"usage": {**USED, "completion_tokens": 12.0}}, {"completion_tokens": 12}),
        ({**USED, "created": "2026-01-02T03:04:05Z"}, {"at_s": 1767323045.0}),
        ({**USED, "created": 1_767_323_045_000}, {"at_s": 1767323045.0}),
        ({**USED, "metrics": {"queue_time_ms": 1e300, "preemptions": 2}}, {"num_preemptions": 2}),
        ({**USED, "max_tokens": "many", "model": 7, "metrics": []}, {"max_tokens": UNSAID}),
        ({"model": "a\x1b[2Jb" + "x" * 200, **USED}, {"name": "a?[2Jb" + "x" * 71 + "..."}),
    ],
)
def test_bodies(tmp_path, body, said):
    row = only(read_usage(file(tmp_path, [body])))
    assert {name: row[name] for name in said} == said


def test_streams_are_put_together_whoever_they_are_mixed_with(tmp_path):
    lines = [
        chunk("a"),
        "",
        chunk("b", index=1),
        ": keep-alive",
        "event: message",
        chunk("a", "length"),
        chunk("b", "stop"),
        chunk("b", usage={"completion_tokens": 5}, choices=[]),
        chunk("a", usage={"completion_tokens": 9}, choices=[]),
        "data: [DONE]",
        # continuous_usage_stats: the last counts, and nothing says that it is the last
        chunk("c", usage={"completion_tokens": 1}),
        chunk("c", "stop", usage={"completion_tokens": 2}),
        chunk("d"),
        '{"type":"response.created","response":{"status":"in_progress","usage":null}}',
    ]
    usage = read_usage(file(tmp_path, lines))
    assert usage.completion_tokens.tolist() == [5, 9, 2]
    assert usage.ending.tolist() == [Ending.STOP, Ending.LENGTH, Ending.STOP]
    assert usage.num_choices.tolist() == [2, 1, 1]
    assert {why: left.count for why, left in usage.left_out.items()} == {
        "a stream that ends without a usage": 1
    }


def test_a_completion_that_streams_is_told_from_a_whole_one(tmp_path):
    body = {"id": "c", "object": "text_completion"}
    open_, done = ({"index": 0, "finish_reason": finish} for finish in (None, "length"))
    lines = [
        {**body, "choices": [open_]},
        {**body, "choices": [done]},
        {**body, "choices": [], "usage": {"completion_tokens": 8}},
        {**body, "choices": [done], "usage": {"completion_tokens": 3}},
    ]
    usage = read_usage(file(tmp_path, lines))
    assert usage.completion_tokens.tolist() == [8, 3]
    assert set(usage.ending.tolist()) == {Ending.LENGTH}


def test_streams_that_never_end_take_a_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "MAX_OPEN", 3)
    lines = [chunk(f"{n}", usage={"completion_tokens": n}) for n in range(10)]
    usage = read_usage(file(tmp_path, lines))
    assert usage.completion_tokens.tolist() == list(range(10))


# ---- Tables ----


def test_a_table(tmp_path):
    lines = [
        "Model,Arrival_s,prompt_tokens,completion_tokens,finish_reason,max_tokens",
        '"llama, the big one",1.5,10,20,length,64',
        "llama,2,10,oops,stop,64",
        "llama,2,10",
        "llama,,10,0,,",
    ]
    usage = read_usage(file(tmp_path, lines, "usage.csv"))
    assert usage.completion_tokens.tolist() == [20, 0]
    assert usage.max_tokens.tolist() == [64, UNSAID]
    assert usage.ending.tolist() == [Ending.LENGTH, Ending.UNKNOWN]
    assert [group.name for group in usage.groups] == ["llama, the big one", "llama"]
    assert np.isnan(usage.at_s[1])
    assert [left.first_line for left in usage.left_out.values()] == [3, 4]


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:17:03.9799600,4808,10"),
        (
            "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
            "5,ChatGPT,4808,10,4818,Conversation log",
        ),
        ("usage.prompt_tokens,usage.completion_tokens", "4808,10"),
    ],
)
def test_tables_of_others(tmp_path, header, row):
    read = only(read_usage(file(tmp_path, [header, row], "usage.csv")))
    assert (read["prompt_tokens"], read["completion_tokens"]) == (4808, 10)


# ---- What is no usage ----


@pytest.mark.parametrize("name", ["usage.jsonl", "usage.jsonl.gz", "usage.jsonl.zst"])
def test_garbage_is_counted_by_its_reason_and_the_rest_is_read(tmp_path, name):
    lines = [
        "\ufeff" + json.dumps(CHAT),
        "not json",
        '{"usage": {"completion_tokens": 1',
        json.dumps({"hello": 1}),
        json.dumps({"usage": {"completion_tokens": -1}}),
        json.dumps({"usage": {"completion_tokens": True}}),
        '{"usage": {"completion_tokens": 1e400}}',
        json.dumps({"usage": {"completion_tokens": 10**30}}),
        json.dumps({"response": {"status_code": 429, "body": {"error": {"message": "x"}}}}),
        '{"a":' * 3000 + "1" + "}" * 3000,
        '["a"]',
        json.dumps({"usage": "none", "response": "text", "choices": 5}),
    ]
    data = ("\n".join(lines)).encode() + b"\n\x00\xff\xfe{}\n"
    compress = {".gz": gzip.compress, ".zst": zstandard.compress}
    path = tmp_path / name
    path.write_bytes(compress.get(path.suffix, bytes)(data))
    usage = read_usage(path)
    assert usage.completion_tokens.tolist() == [7]
    counted = {
        why.split(",")[0]: (left.first_line, left.count) for why, left in usage.left_out.items()
    }
    assert counted == {
        "no JSON object": (2, 4),
        "no usage in it": (4, 3),
        "a count of tokens that is no whole number up to 16": (5, 3),
        "an error in place of an answer": (9, 1),
        "a JSON array": (11, 1),
    }


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"hello\nworld\n", r"no JSON object \(line 1 and 1 more\)"),
        (b"prompt_tokens,completion_tokens\n", "is empty"),
        (b"[1, 2]", "a JSON array"),
        (bytes(range(256)) * 40, "no JSON object"),
    ],
)
def test_a_file_without_an_answer_is_refused_with_the_reason(tmp_path, content, why):
    (tmp_path / "usage.jsonl").write_bytes(content)
    with pytest.raises(ValueError, match=f"no answer with a usage: {why}"):
        read_usage(tmp_path / "usage.jsonl")
    assert not looks_like_usage(tmp_path / "usage.jsonl")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ValueError, match="No such file"):
        read_usage(tmp_path / "none")
    with pytest.raises(ValueError, match="directory"):
        read_usage(tmp_path)
    (tmp_path / "cut.gz").write_bytes(gzip.compress(json.dumps(CHAT).encode())[:-9])
    with pytest.raises(ValueError, match="cut off"):
        read_usage(tmp_path / "cut.gz")


def test_more_models_than_are_told_apart(tmp_path):
    count = MAX_GROUPS + 5
    lines = [{"model": f"m{n}", **USED} for n in range(count)]
    usage = read_usage(file(tmp_path, lines))
    assert len(usage) == count
    assert len(usage.groups) == MAX_GROUPS + 1
    assert [usage.groups[g].name for g in usage.group[-2:]] == ["other models"] * 2


def test_a_file_is_known_by_its_first_lines(tmp_path):
    assert looks_like_usage(file(tmp_path, ["hello", CHAT]))
    assert not looks_like_usage(file(tmp_path, ["hello"] * 30 + [json.dumps(CHAT)]))
