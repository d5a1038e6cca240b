"""One generation in the shapes of /v1/responses."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import msgspec

from headway.core.request import FinishReason
from headway.server.errors import ApiError
from headway.server.explaining import Asker
from headway.server.frontend import Call
from headway.server.generation import ChoiceDelta
from headway.server.schema.responses import (
    ContentPartEvent,
    IncompleteDetails,
    InputTokensDetails,
    OutputItemEvent,
    OutputMessage,
    OutputText,
    OutputTokensDetails,
    ResponseError,
    ResponseEvent,
    ResponseObject,
    ResponsesUsage,
    TextDeltaEvent,
    TextDoneEvent,
)
from headway.server.sse import named_frame

_REASONS = {FinishReason.LENGTH: "max_output_tokens"}


class ResponsesWriter:
    """A `Writer`. `blank` is the answer before it has begun.

    There is one output item, a message with one part of text.
    """

    def __init__(self, blank: ResponseObject, call: Call, asker: Asker) -> None:
        self._blank = blank
        self._call = call
        self._asker = asker
        self._item_id = blank.id.replace("resp", "msg", 1)
        self._numbers = count()
        self._pieces: list[str] = []
        self._end: ChoiceDelta | None = None

    def whole(self, deltas: Sequence[ChoiceDelta]) -> ResponseObject:
        self._take(deltas[0])
        return self._ended()

    def opening(self) -> bytes:
        item = OutputMessage(id=self._item_id, status="in_progress", content=[])
        return b"".join(
            [
                self._response("response.created", self._blank),
                self._response("response.in_progress", self._blank),
                self._item("response.output_item.added", item),
                self._part("response.content_part.added", ""),
            ]
        )

    def chunk(self, delta: ChoiceDelta) -> bytes:
        self._take(delta)
        if not delta.text:
            return b""
        return _named(
            TextDeltaEvent(
                sequence_number=next(self._numbers), item_id=self._item_id, delta=delta.text
            )
        )

    def closing(self) -> bytes:
        whole, text = self._ended(), "".join(self._pieces)
        done = TextDoneEvent(sequence_number=next(self._numbers), item_id=self._item_id, text=text)
        return b"".join(
            [
                _named(done),
                self._part("response.content_part.done", text),
                self._item("response.output_item.done", whole.output[0]),
                self._response(f"response.{whole.status}", whole),
            ]
        )

    def failure(self, error: ApiError) -> bytes:
        said = ResponseError(error.problem.value.code, error.message)
        failed = msgspec.structs.replace(
            self._blank, status="failed", error=said, output=self._output("incomplete")
        )
        return self._response("response.failed", failed)

    def _take(self, delta: ChoiceDelta) -> None:
        self._pieces.append(delta.text)
        if delta.finish_reason is not None:
            self._end = delta

    def _ended(self) -> ResponseObject:
        why = self._incomplete()
        status = "completed" if why is None else "incomplete"
        return msgspec.structs.replace(
            self._blank,
            status=status,
            output=self._output(status),
            incomplete_details=why,
            usage=self._usage(),
            explain=self._call.explanation(self._asker),
        )

    def _incomplete(self) -> IncompleteDetails | None:
        end = self._end
        if end is None or end.finish_reason in (None, FinishReason.STOP):
            return None
        named = end.stop_reason if isinstance(end.stop_reason, str) else end.finish_reason.value
        return IncompleteDetails(_REASONS.get(end.finish_reason, named))

    def _output(self, status: str) -> list[OutputMessage]:
        content = [OutputText("".join(self._pieces))]
        return [OutputMessage(id=self._item_id, status=status, content=content)]  # type: ignore[arg-type]

    def _usage(self) -> ResponsesUsage:
        usage = self._call.generation.usage()
        return ResponsesUsage(
            usage.prompt_tokens,
            InputTokensDetails(usage.prompt_tokens_details.cached_tokens),
            usage.completion_tokens,
            OutputTokensDetails(),
            usage.total_tokens,
        )

    def _response(self, kind: str, response: ResponseObject) -> bytes:
        number = next(self._numbers)
        return _named(ResponseEvent(type=kind, sequence_number=number, response=response))

    def _item(self, kind: str, item: OutputMessage) -> bytes:
        number = next(self._numbers)
        return _named(OutputItemEvent(type=kind, sequence_number=number, item=item))

    def _part(self, kind: str, text: str) -> bytes:
        number = next(self._numbers)
        part = OutputText(text)
        return _named(
            ContentPartEvent(type=kind, sequence_number=number, item_id=self._item_id, part=part)
        )


Event = ResponseEvent | OutputItemEvent | ContentPartEvent | TextDeltaEvent | TextDoneEvent


def _named(event: Event) -> bytes:
    return named_frame(event.type, event)
