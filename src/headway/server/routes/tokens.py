"""POST /tokenize and /detokenize, GET /tokenizer_info."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from headway.server.errors import ApiError, Problem, invalid_value
from headway.server.frontend import Frontend, frontend_of, ignored_header, run_aside
from headway.server.openapi import READING_PROBLEMS, documented
from headway.server.schema.bodies import DetokenizeBody, TokenizeBody
from headway.server.schema.service import Text, TokenizerCard, Tokens
from headway.server.sse import JsonAnswer

router = APIRouter()


@router.post("/tokenize", **documented(Tokens, TokenizeBody, problems=READING_PROBLEMS))
async def tokenize(http: HttpRequest) -> Response:
    """The token ids of a prompt, or of a conversation as the chat template writes it."""
    frontend = frontend_of(http)
    parsed = await frontend.read(http, TokenizeBody)
    body = parsed.body
    frontend.door.check_model(body.model)
    token_ids = await _tokenize(frontend, body)
    answer = Tokens(len(token_ids), frontend.client.facts.max_model_len, token_ids)
    if body.return_token_strs:
        name_of = frontend.tokenizer.id_to_token
        answer.token_strs = await run_aside(
            lambda: [name_of(i) or "" for i in token_ids], len(token_ids)
        )
    return JsonAnswer(answer, ignored_header(parsed.ignored))


async def _tokenize(frontend: Frontend, body: TokenizeBody) -> list[int]:
    if (body.prompt is None) == (body.messages is None):
        raise invalid_value("give either prompt or messages", "prompt")
    if body.messages is None:
        add_special = True if body.add_special_tokens is None else body.add_special_tokens
        return await frontend.encode(body.prompt or "", add_special_tokens=add_special)
    text = await frontend.renderer.render(body.messages, body)
    return await frontend.encode(text, add_special_tokens=bool(body.add_special_tokens))


@router.post("/detokenize", **documented(Text, DetokenizeBody, problems=READING_PROBLEMS))
async def detokenize(http: HttpRequest) -> Response:
    """The text of token ids, special tokens included."""
    frontend = frontend_of(http)
    parsed = await frontend.read(http, DetokenizeBody)
    frontend.door.check_model(parsed.body.model)
    try:
        text = await frontend.decode(parsed.body.tokens)
    except ValueError as error:
        raise invalid_value(str(error), "tokens") from None
    return JsonAnswer(Text(text), ignored_header(parsed.ignored))


@router.get("/tokenizer_info", **documented(TokenizerCard, problems=(Problem.NOT_FOUND,)))
async def tokenizer_info(http: HttpRequest) -> Response:
    """Names and special tokens, where --enable-tokenizer-info-endpoint opens this."""
    frontend = frontend_of(http)
    if not frontend.settings.enable_tokenizer_info_endpoint:
        raise ApiError(
            Problem.NOT_FOUND,
            "this is closed: start the server with --enable-tokenizer-info-endpoint",
        )
    tokenizer, template = frontend.tokenizer, frontend.template
    added = {str(i): tokenizer.id_to_token(i) or "" for i in sorted(tokenizer.added_ids)}
    return JsonAnswer(
        TokenizerCard(
            tokenizer_class=type(tokenizer).__name__,
            vocab_size=tokenizer.vocab_size,
            model_max_length=frontend.client.facts.max_model_len,
            bos_token=tokenizer.bos_token,
            eos_token=tokenizer.eos_token,
            chat_template=None if template is None else template.source,
            added_tokens_decoder=added,
        )
    )
