"""What each tenant has in flight, and its own limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.core.events import Aborted, Admitted, Advanced, Event, Queued, Rejected, Retired
from headway.core.request import Request
from headway.server.refusals import NeverFitsError, QueueFullError
from headway.server.throughput import FORGOTTEN_AFTER_NS, Throughput

_FEW = 256  # so many tenants are remembered in any case


@dataclass(slots=True, eq=False)
class _Account:
    num_sequences: int = 0
    num_tokens: int = 0  # of prompts whose first output token has not come
    throughput: Throughput = field(default_factory=Throughput)


@dataclass(slots=True)
class _Open:
    """A request of which the engine has not spoken to the end."""

    account: _Account
    num_prompt_tokens: int
    num_left: int  # sequences that have not ended
    num_unqueued: int
    sequence_ids: list[int] = field(default_factory=list)


class TenantBrakes:
    """A fold. Refuses a tenant what would be too much of its own; None is no limit.

    Tokens are those of prompts in flight, without what the prefix cache had, until the first output
    token: what a prompt under way has computed already still counts.
    """

    def __init__(self, max_num_reqs: int | None, max_num_tokens: int | None) -> None:
        self._max_num_reqs = max_num_reqs
        self._max_num_tokens = max_num_tokens
        self._accounts: dict[str, _Account] = {}
        self._open: dict[str, _Open] = {}
        self._to_compute: dict[int, int] = {}  # by sequence id, until its first output token
        self._most_remembered = _FEW
        self._now_ns = 0

    def on_submitted(self, request: Request, now_ns: int) -> None:
        self._now_ns = now_ns
        account = self._account(request.tenant)
        account.throughput.pass_time(now_ns)
        num, num_tokens = request.sampling.n, request.num_prompt_tokens
        account.num_sequences += num
        account.num_tokens += num * num_tokens
        account.throughput.is_busy = True
        self._open[request.request_id] = _Open(account, num_tokens, num, num)

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        self._now_ns = now_ns
        for event in events:
            opened = self._open.get(event.request_id)
            if opened is not None:
                self._fold(event, opened)

    def _fold(self, event: Event, opened: _Open) -> None:
        account = opened.account
        match event:
            case Queued(sequence_id):
                opened.num_unqueued -= 1
                opened.sequence_ids.append(sequence_id)
                self._to_compute[sequence_id] = opened.num_prompt_tokens
            case Admitted(sequence_id, _, num_cached_tokens):
                self._to_compute[sequence_id] -= num_cached_tokens
                account.num_tokens -= num_cached_tokens
            case Advanced(sequence_id):
                if num_tokens := self._to_compute.pop(sequence_id, 0):
                    account.num_tokens -= num_tokens
                    account.throughput.pass_time(self._now_ns)
                    account.throughput.computed(num_tokens)
            case Retired(sequence_id) | Aborted(sequence_id):
                account.num_tokens -= self._to_compute.pop(sequence_id, 0)
                self._ended(event.request_id, opened, 1)
            case Rejected(request_id):
                account.num_tokens -= opened.num_unqueued * opened.num_prompt_tokens
                account.num_tokens -= sum(self._to_compute.pop(i, 0) for i in opened.sequence_ids)
                self._ended(request_id, opened, opened.num_left)

    def _ended(self, request_id: str, opened: _Open, num_sequences: int) -> None:
        account, throughput = opened.account, opened.account.throughput
        throughput.pass_time(self._now_ns)
        account.num_sequences -= num_sequences
        opened.num_left -= num_sequences
        for _ in range(num_sequences):
            throughput.ended()
        throughput.is_busy = account.num_sequences > 0
        if not opened.num_left:
            del self._open[request_id]

    def refusals(self, tenant: str, num_sequences: int) -> list[QueueFullError]:
        """Why that many more sequences of the tenant are too many now.

        Raises NeverFitsError when they always will be.
        """
        account = self._accounts.get(tenant, _Account())
        account.throughput.pass_time(self._now_ns)
        found = (self._of_sequences(account, num_sequences), self._of_tokens(account))
        return [refusal for refusal in found if refusal is not None]

    def _of_sequences(self, account: _Account, num_sequences: int) -> QueueFullError | None:
        limit, now = self._max_num_reqs, account.num_sequences
        if limit is None or now + num_sequences <= limit:
            return None
        if num_sequences > limit:
            raise NeverFitsError(
                f"this asks for {num_sequences} sequences (prompts times n) and the server takes "
                f"{limit} of a tenant at once: send fewer prompts or a smaller n"
            )
        done = account.throughput.num_ended()
        seconds, basis = account.throughput.until_done(
            now + num_sequences - limit, done, "sequences of it"
        )
        return QueueFullError(
            f"your tenant has {now} of {limit} sequences in flight and this asks for "
            f"{num_sequences} more; try again in {seconds} s ({basis})",
            seconds,
            "tenant_reqs",
        )

    def _of_tokens(self, account: _Account) -> QueueFullError | None:
        limit, now = self._max_num_tokens, account.num_tokens
        if limit is None or now < limit:
            return None
        done = account.throughput.num_prompt_tokens()
        seconds, basis = account.throughput.until_done(now - limit + 1, done, "prompt tokens of it")
        return QueueFullError(
            f"{now} prompt tokens of your tenant wait to be computed and the limit is {limit}; "
            f"try again in {seconds} s ({basis})",
            seconds,
            "tenant_tokens",
        )

    def _account(self, tenant: str) -> _Account:
        known = self._accounts.get(tenant)
        if known is None:
            if len(self._accounts) >= self._most_remembered:
                self._forget()
            known = self._accounts[tenant] = _Account()
        return known

    def _forget(self) -> None:
        """Those with nothing in flight, of whom nothing of late is known."""
        self._accounts = {
            name: account
            for name, account in self._accounts.items()
            if account.num_sequences
            or account.throughput.idle_ns(self._now_ns) <= FORGOTTEN_AFTER_NS
        }
        self._most_remembered = 2 * len(self._accounts) + _FEW
