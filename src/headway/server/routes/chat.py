"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from headway.server.answering import (
    Envelope,
    Extras,
    answer,
    delivery_of,
    envelope,
    error_frames,
    finish_of,
    token_names,
)
from headway.server.arrival import arrive
from headway.server.errors import ApiError
from headway.server.frontend import Call, Frontend, frontend_of, ignored_header
from headway.server.generation import ChoiceDelta
from headway.server.logprobs import chat_logprobs, prompt_logprobs
from headway.server.openapi import GENERATION_PROBLEMS, documented
from headway.server.params import clamped_header
from headway.server.schema.answers import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
)
from headway.server.schema.bodies import ChatBody
from headway.server.sse import frame

router = APIRouter()


@router.post(
    "/v1/chat/completions",
    **documented(ChatCompletion, ChatBody, stream=[ChatChunk], problems=GENERATION_PROBLEMS),
)
async def create_chat_completion(http: HttpRequest) -> Response:
    """Answer a conversation, n choices; see the OpenAI API."""
    frontend = frontend_of(http)
    parsed = await frontend.read(http, ChatBody)
    body = parsed.body
    frontend.door.check_fields(body)
    arrival = arrive(http, frontend.settings, body.request_id)
    head = envelope(http, "chatcmpl", body.model, arrival, explain=body.explain)
    frontend.check_room(frontend.door.check_num_choices(1, body), arrival.tenant)
    text = await frontend.renderer.render(body.messages, body)
    # The template writes the special tokens itself.
    prompt = await frontend.encode(text, add_special_tokens=bool(body.add_special_tokens))
    request = frontend.door.chat_request(head.id, prompt, body, arrival)
    headers = ignored_header(parsed.ignored)
    headers |= clamped_header(body.max_completion_tokens or body.max_tokens, [request])
    return await answer(
        http,
        frontend,
        [request],
        delivery_of(frontend, body, follows_text=body.continue_final_message),
        lambda call: ChatWriter(frontend, head, body, call),
        headers,
    )


class ChatWriter:
    """A `Writer` of chat completions."""

    def __init__(self, frontend: Frontend, head: Envelope, body: ChatBody, call: Call) -> None:
        self._head = head
        self._body = body
        self._generation = call.generation
        self._extras = Extras(frontend, body, call, head.asker)
        self._role = frontend.renderer.answer_role(body.messages, body)
        self._echo = frontend.renderer.echoed(body.messages, self._role) if body.echo else ""
        self._names = token_names(frontend, body)

    def whole(self, deltas: Sequence[ChoiceDelta]) -> ChatCompletion:
        head = self._head
        whole = ChatCompletion(
            id=head.id,
            created=head.created,
            model=head.model,
            system_fingerprint=head.fingerprint,
            choices=[self._choice(delta) for delta in deltas],
        )
        self._extras.complete(whole)
        request = self._generation.requests[0]
        if self._body.return_token_ids:
            whole.prompt_token_ids = list(request.prompt_token_ids)
        if self._body.prompt_logprobs is not None:
            positions = self._generation.prompt_logprobs.get(request.request_id, [None])
            whole.prompt_logprobs = prompt_logprobs(self._names.tokenizer, positions)
        return whole

    def opening(self) -> bytes:
        """Every choice begins with its role, and with the last message where that is echoed."""
        first = ChatDelta(self._role, self._echo)
        chunks = [
            self._chunk([ChatChunkChoice(index, first)])
            for index in range(self._generation.num_choices)
        ]
        if self._body.return_token_ids:
            chunks[0].prompt_token_ids = list(self._generation.requests[0].prompt_token_ids)
        return b"".join(map(frame, chunks))

    def chunk(self, delta: ChoiceDelta) -> bytes:
        choice = ChatChunkChoice(
            delta.index,
            ChatDelta(content=delta.text or None),
            self._logprobs(delta),
            finish_of(delta),
            delta.stop_reason,
        )
        if self._body.return_token_ids:
            choice.token_ids = list(delta.token_ids)
        return frame(self._chunk([choice]))

    def closing(self) -> bytes:
        return self._extras.end(self._chunk([]))

    def failure(self, error: ApiError) -> bytes:
        return error_frames(error)

    def _chunk(self, choices: list[ChatChunkChoice]) -> ChatChunk:
        head = self._head
        chunk = ChatChunk(
            id=head.id,
            created=head.created,
            model=head.model,
            system_fingerprint=head.fingerprint,
            choices=choices,
        )
        self._extras.mark(chunk)
        return chunk

    def _choice(self, delta: ChoiceDelta) -> ChatChoice:
        choice = ChatChoice(
            delta.index,
            ChatMessage(self._role, self._echo + delta.text),
            self._logprobs(delta),
            finish_of(delta),
            delta.stop_reason,
        )
        if self._body.return_token_ids:
            choice.token_ids = list(delta.token_ids)
        return choice

    def _logprobs(self, delta: ChoiceDelta) -> ChatLogprobs | None:
        if not self._body.logprobs:
            return None
        return chat_logprobs(self._names, delta.logprobs, self._body.top_logprobs or 0)
