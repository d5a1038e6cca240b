"""Every field of a request has its effect, or says why it has none; both endpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.server.asking import BOTH, EITHER, PATHS, ask, body_of, last_request, refused
from tests.server.bench import LiveServer, live_server


@pytest.fixture(scope="module")
def replaying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    flags = ("--trace-replay", "--policy", "priority", "--cached", "2")
    with live_server(tmp_path_factory.mktemp("replay"), *flags) as live:
        yield live


SAMPLING = {
    "min_tokens": 1,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 7,
    "min_p": 0.1,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "repetition_penalty": 1.1,
    "seed": 11,
    "allowed_token_ids": [97, 98],
    "bad_words": ["zz"],
    "ignore_eos": True,
    "skip_special_tokens": False,
}


@BOTH
def test_sampling_fields_reach_the_engine(server: LiveServer, endpoint: str) -> None:
    fields = {**SAMPLING, "logit_bias": {"97": 1.5}, "stop_token_ids": [33]}
    ask(server, endpoint, "ab", max_tokens=2, **fields)
    request = last_request(server)
    sampling = request["sampling"]
    assert {name: sampling[name] for name in SAMPLING} == SAMPLING
    assert sampling["logit_bias"] == {"97": 1.5}
    assert request["stop_token_ids"] == [33]
    assert request["bad_word_ids"] == [[122, 122]]


@BOTH
@EITHER
def test_repetition_ends_with_its_own_reason(
    server: LiveServer, endpoint: str, stream: bool
) -> None:
    pattern = {"max_pattern_size": 3, "min_pattern_size": 1, "min_count": 2}
    said = ask(server, endpoint, "abcdef", stream=stream, repetition_detection=pattern).choice()
    assert (said.text, said.finish, said.stop) == ("abcd", "repetition", "repetition_detected")
    assert last_request(server)["sampling"]["repetition_detection"] == pattern


@pytest.mark.parametrize(
    ("keep", "left"), [(3, "def"), (6, "abcdef"), (100, "abcdef"), (-1, "abcdef")]
)
def test_truncation_keeps_the_last_tokens(server: LiveServer, keep: int, left: str) -> None:
    ask(server, "completions", "abcdef", max_tokens=1, truncate_prompt_tokens=keep)
    assert bytes(last_request(server)["prompt_token_ids"]).decode() == left


def test_truncation_to_what_leaves_room(server: LiveServer) -> None:
    ask(server, "completions", "a" * 3000, max_tokens=1500, truncate_prompt_tokens=-1)
    assert len(last_request(server)["prompt_token_ids"]) == 548


@BOTH
@EITHER
def test_token_ids_are_returned(server: LiveServer, endpoint: str, stream: bool) -> None:
    answer = ask(server, endpoint, "é!", stream=stream, max_tokens=3, return_token_ids=True)
    said = answer.choice()
    assert [i for ids in said.token_ids for i in ids] == [0xC3, 0xA9, 33]
    first = answer.chunks[0]
    holder = first if endpoint == "chat" else first["choices"][0]
    assert holder["prompt_token_ids"][:3] == [0xC3, 0xA9, 33]
    if stream:
        later = [c for c in answer.chunks[1:] if c["choices"]]
        assert all("prompt_token_ids" not in c for c in later)
        assert all("prompt_token_ids" not in c["choices"][0] for c in later)


def test_nothing_is_returned_unasked(server: LiveServer) -> None:
    choice = ask(server, "completions", "ab", max_tokens=1).chunks[0]["choices"][0]
    assert set(choice) == {"index", "text", "logprobs", "finish_reason", "stop_reason"}


@EITHER
def test_tokens_as_ids(server: LiveServer, stream: bool) -> None:
    fields = {"max_tokens": 2, "return_tokens_as_token_ids": True}
    plain = ask(server, "completions", "ab", stream=stream, logprobs=1, echo=True, **fields)
    tokens = [t for c in plain.chunks for x in c["choices"] for t in x["logprobs"]["tokens"]]
    assert tokens == [f"token_id:{i}" for i in (97, 98, 97, 98)]
    chat = ask(server, "chat", "ab", stream=stream, logprobs=True, top_logprobs=1, **fields)
    named = [
        entry["token"]
        for chunk in chat.chunks
        for choice in chunk["choices"]
        for entry in (choice["logprobs"] or {"content": []})["content"]
    ]
    assert named == ["token_id:97", "token_id:98"]


@BOTH
@EITHER
def test_forced_output(replaying: LiveServer, endpoint: str, stream: bool) -> None:
    forced = list(b"twenty tokens of it!")
    answer = ask(replaying, endpoint, "x", stream=stream, trace_decode_token_ids=forced)
    assert answer.choice().text == "twenty tokens of it!"


@BOTH
def test_priority_under_its_policy(replaying: LiveServer, endpoint: str) -> None:
    ask(replaying, endpoint, "x", max_tokens=1, priority=-3)
    assert last_request(replaying)["priority"] == -3


@BOTH
@EITHER
def test_cached_tokens_streamed_or_not(replaying: LiveServer, endpoint: str, stream: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if stream else {}
    usage = ask(replaying, endpoint, "abc", stream=stream, n=2, max_tokens=2, **options).usage
    assert usage["prompt_tokens_details"] == {"cached_tokens": 2}
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 0}
    assert usage["completion_tokens"] == 4


@EITHER
def test_echo_in_chat_repeats_a_message_of_the_same_role(server: LiveServer, stream: bool) -> None:
    messages = [{"role": "assistant", "content": "so "}]
    body = {"messages": messages, "echo": True, "stream": stream, "max_tokens": 2}
    body |= {"continue_final_message": True}
    answer = httpx.post(server.url + PATHS["chat"], json=body)
    assert '"so ' in answer.text
    asked = ask(server, "chat", "hello", stream=stream, echo=True, max_tokens=2)
    assert asked.choice().text == "he"  # the user's words are not the assistant's


def test_response_role_is_the_servers(tmp_path: Any) -> None:
    with live_server(tmp_path, response_role="helper") as live:
        message = ask(live, "chat", "x", max_tokens=1).chunks[0]["choices"][0]["message"]
        assert message["role"] == "helper"


@BOTH
def test_request_id_of_the_body_and_of_the_header(server: LiveServer, endpoint: str) -> None:
    prefix = "chatcmpl" if endpoint == "chat" else "cmpl"
    assert ask(server, endpoint, "x", max_tokens=1, request_id="mine").id == f"{prefix}-mine"
    named = ask(
        server, endpoint, "x", max_tokens=1, request_id="mine", headers={"X-Request-Id": "theirs"}
    )
    assert named.id == f"{prefix}-theirs"


@BOTH
@EITHER
def test_stream_interval(server: LiveServer, endpoint: str, stream: bool) -> None:
    said = ask(
        server, endpoint, "abcdefghij", stream=stream, max_tokens=9, stream_interval=4
    ).choice()
    assert said.text == "abcdefghi"
    if stream:
        assert [piece for piece in said.pieces if piece] == ["a", "bcde", "fghi"]


def test_forced_usage_and_running_usage(tmp_path: Any) -> None:
    with live_server(tmp_path, enable_force_include_usage=True, stream_interval=2) as live:
        chunks = ask(live, "completions", "abc", stream=True, max_tokens=5).chunks
        assert chunks[-1]["usage"]["completion_tokens"] == 5
        assert all(chunk["usage"] is None for chunk in chunks[:-1])
        texts = [chunk["choices"][0]["text"] for chunk in chunks[:-1]]
        assert texts == ["a", "bc", "ab"]


@BOTH
@EITHER
def test_timings_when_asked(server: LiveServer, endpoint: str, stream: bool) -> None:
    answer = ask(server, endpoint, "ab", stream=stream, max_tokens=3, include_metrics=True)
    metrics = answer.chunks[-1]["metrics"]
    assert metrics["time_to_first_token_ms"] > 0
    assert metrics["preemptions"] == 0
    plain = ask(server, endpoint, "ab", stream=stream, max_tokens=3)
    assert all("metrics" not in chunk for chunk in plain.chunks)


def test_timings_for_all_when_the_server_says_so(tmp_path: Any) -> None:
    with live_server(tmp_path, enable_per_request_metrics=True) as live:
        assert "metrics" in ask(live, "chat", "ab").chunks[0]
        streamed = ask(live, "chat", "ab", stream=True).chunks
        # Who did not ask for usage may not expect a chunk without choices.
        assert all(chunk["choices"] for chunk in streamed)
        options = {"include_usage": True}
        assert "metrics" in ask(live, "chat", "ab", stream=True, stream_options=options).chunks[-1]


def test_fields_without_effect_are_named(server: LiveServer) -> None:
    answer = ask(
        server,
        "chat",
        "x",
        max_tokens=1,
        store=True,
        reasoning_effort="low",
        parallel_tool_calls=True,
        user="me",
        metadata={"a": "b"},
        stream_options=None,
        repetition_detection={"max_pattern_size": 2, "window": 9},
        nonsense=1,
    )
    named = answer.headers["x-headway-ignored-fields"].split(", ")
    assert named == [
        "store",
        "reasoning_effort",
        "parallel_tool_calls",
        "repetition_detection.window",
        "nonsense",
    ]


def test_template_of_a_client_only_where_trusted(tmp_path: Any) -> None:
    with live_server(
        tmp_path,
        trust_request_chat_template=True,
        default_chat_template_kwargs={"mark": "?", "tail": "."},
    ) as live:
        template = "{{ messages[0]['content'] }}{{ mark }}{{ tail }}"
        said = ask(
            live,
            "chat",
            "ab",
            max_tokens=4,
            chat_template=template,
            chat_template_kwargs={"mark": "!"},
        )
        assert said.choice().text == "ab!."
        status, error, _ = refused(live, "chat", "x", chat_template="{% for %}")
        assert (status, error["param"]) == (400, "messages")
        status, error, _ = refused(
            live, "chat", "x", chat_template="{% for i in range(10**9) %}{% endfor %}"
        )
        assert status == 400


def test_content_format_of_the_server(tmp_path: Any) -> None:
    template = "{{ messages[0]['content'][0]['text'] }}<|end|>"
    with live_server(tmp_path, template=template, chat_template_content_format="openai") as live:
        assert ask(live, "chat", "abc").choice().text == "abc"


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"priority": 1}, "unsupported_parameter", "priority"),
    ({"cache_salt": ""}, "invalid_value", "cache_salt"),
    ({"trace_decode_token_ids": [1]}, "unsupported_parameter", "trace_decode_token_ids"),
    ({"allowed_token_ids": []}, "invalid_value", "allowed_token_ids"),
    ({"allowed_token_ids": [9999]}, "invalid_value", "allowed_token_ids"),
    ({"bad_words": [""]}, "invalid_value", "bad_words"),
    ({"bad_words": ["x" * 10_001]}, "invalid_value", "bad_words"),
    ({"truncate_prompt_tokens": 0}, "invalid_value", "truncate_prompt_tokens"),
    ({"truncate_prompt_tokens": 4000}, "invalid_value", "truncate_prompt_tokens"),
    ({"repetition_detection": {}}, "missing_required_parameter", None),  # type: ignore[list-item]
    (
        {"repetition_detection": {"max_pattern_size": 0}},
        "invalid_value",
        "repetition_detection.max_pattern_size",
    ),
    (
        {"repetition_detection": {"max_pattern_size": 10**30}},
        "invalid_value",
        "repetition_detection.max_pattern_size",
    ),
    ({"stream_interval": 0}, "invalid_value", "stream_interval"),
    ({"request_id": "a b"}, "invalid_value", "request_id"),
    ({"request_id": "x" * 300}, "invalid_value", "request_id"),
    ({"stream": True, "prompt_logprobs": 1}, "invalid_value", "prompt_logprobs"),
    ({"truncation_side": "right"}, "unsupported_parameter", "truncation_side"),
    ({"min_tokens": 50, "max_tokens": 4}, "invalid_value", "min_tokens"),
    ({"seed": 2**70}, "invalid_value", "seed"),
]


@BOTH
@pytest.mark.parametrize(("fields", "code", "param"), WRONG)
def test_what_is_wrong_is_said(
    server: LiveServer, endpoint: str, fields: dict[str, Any], code: str, param: str | None
) -> None:
    status, error, _ = refused(server, endpoint, "ab", **fields)
    assert (status, error["code"]) == (400, code)
    if param is not None:
        assert error["param"] == param
    assert len(error["message"]) > 10


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"chat_template": "{{ 1 }}"}, "chat_template"),
        ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs.chat_template"),
        (
            {"add_generation_prompt": True, "continue_final_message": True},
            "continue_final_message",
        ),
        ({"tools": [{"type": "function"}]}, "tools"),
    ],
)
def test_what_is_wrong_in_chat(server: LiveServer, fields: dict[str, Any], param: str) -> None:
    status, error, _ = refused(server, "chat", "ab", **fields)
    assert (status, error["param"]) == (400, param)


def test_a_null_inside_a_body_is_the_same_as_absent(server: LiveServer) -> None:
    body = body_of("chat", "ab", max_tokens=1, stream_options=None, repetition_detection=None)
    assert httpx.post(server.url + PATHS["chat"], json=body).status_code == 200
