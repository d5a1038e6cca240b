"""What the endpoints around generation send."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from headway.insight.explain.report import Glance


class ModelCard(Struct, kw_only=True):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "headway"
    root: str
    parent: str | None = None
    max_model_len: int


class ModelList(Struct, kw_only=True):
    object: Literal["list"] = "list"
    data: list[ModelCard]


class RequestList(Struct, kw_only=True):
    object: Literal["list"] = "list"
    data: list[Glance]


class Tokens(Struct):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class Text(Struct):
    prompt: str


class TokenizerCard(Struct, kw_only=True):
    tokenizer_class: str
    vocab_size: int
    model_max_length: int
    bos_token: str | None
    eos_token: str | None
    chat_template: str | None
    added_tokens_decoder: dict[str, str]  # id → token


class HealthReport(Struct):
    status: str
    last_turn_age_s: float


class Version(Struct):
    version: str


class Load(Struct):
    server_load: int  # requests of generating endpoints under way
