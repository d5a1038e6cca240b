"""How long outputs will be, from those seen so far."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict, deque

from headway.core.request import Request
from headway.core.sequence import Sequence

ONE = 1 << 24  # the scale of shares
WINDOW = 200  # outputs that a class remembers: so many after a shift, none from before it counts
_ENOUGH = 64  # outputs of its own for a class to be believed
_NUM_PHANTOMS = 4
_PHANTOM = 512  # tokens that each of them has; half have twice as many, a quarter four times
_MAX_CLASSES = 512
_LONGEST = 1 << 24


class Survival:
    """The share of outputs that have more than so many tokens: a step function.

    `lengths` ascend; `shares[i]`, of ONE, holds from `lengths[i - 1]` on to before `lengths[i]`.
    """

    def __init__(self, lengths: list[int], shares: list[int]) -> None:
        self.lengths = lengths
        self.shares = shares
        self._areas = [0]  # under the steps up to each length
        for place, length in enumerate(lengths):
            width = length - (lengths[place - 1] if place else 0)
            self._areas.append(self._areas[-1] + shares[place] * width)

    def beyond(self, num_tokens: int) -> int:
        """Of ONE: outputs with more than `num_tokens` tokens. Never 0."""
        return self.shares[bisect_right(self.lengths, num_tokens)]

    def num_tokens_left(self, num_tokens: int, most: int) -> int:
        """The mean of what comes after `num_tokens`, for an output of at most `most` tokens."""
        if most <= num_tokens:
            return 0
        area = self._area(most) - self._area(num_tokens)
        return max(1, area // self.beyond(num_tokens))

    def reach(self, share: int) -> int:
        """The least length that at most `share`, of ONE, have more tokens than."""
        low, high = 0, len(self.lengths) - 1
        while low < high:
            middle = (low + high) // 2
            if self.shares[middle + 1] <= share:
                high = middle
            else:
                low = middle + 1
        return self.lengths[low]

    def _area(self, num_tokens: int) -> int:
        place = bisect_right(self.lengths, num_tokens)
        start = self.lengths[place - 1] if place else 0
        return self._areas[place] + self.shares[place] * (num_tokens - start)


class LengthForecast:
    """Lengths by class: (tenant, adapter, size of the prompt), as far as each has been seen.

    A class that has seen fewer than 64 outputs leaves it to a wider one: the tenant's with that
    adapter, then everybody's. Each remembers its latest 200. Told of every sequence that enters,
    leaves and finishes, so that those who still run count as what they are: outputs of at least
    so many tokens. Without them short outputs, which end first, would be all there is at the start.
    """

    def __init__(self) -> None:
        self._everybody = _Class()
        self._classes: OrderedDict[tuple[object, ...], _Class] = OrderedDict()

    def entered(self, sequence: Sequence) -> None:
        """The sequence runs."""
        for found in self._classes_of(sequence.request):
            found.running[sequence.sequence_id] = sequence

    def left(self, sequence: Sequence) -> None:
        """The sequence runs no more: it was preempted or has ended."""
        for found in self._classes_of(sequence.request):
            found.running.pop(sequence.sequence_id, None)

    def ended(self, sequence: Sequence) -> None:
        """The output is finished, and not because somebody withdrew it."""
        # One cut off at its limit would have been longer: nobody knows by how much.
        is_cut = len(sequence.token_ids) >= sequence.max_num_tokens
        for found in self._classes_of(sequence.request):
            found.observe(sequence.num_output_tokens, is_cut=is_cut)

    def survival(self, sequence: Sequence) -> Survival:
        """Of the narrowest class of its request that has seen enough."""
        narrow, middle, wide = self._classes_of(sequence.request)
        for found in (narrow, middle):
            if found.num_seen >= _ENOUGH:
                return found.survival()
        return wide.survival()

    def shortest(self, request: Request) -> int:
        """The least that an output of the narrowest class that has seen enough had; or 1."""
        for found in self._classes_of(request):
            if found.num_seen >= _ENOUGH:
                return found.shortest
        return 1

    def num_tokens_left(self, sequence: Sequence) -> int:
        """The mean of what the sequence will still say; its limit is a bound."""
        most = sequence.max_num_tokens - sequence.num_prompt_tokens
        curve = self.survival(sequence)
        return curve.num_tokens_left(sequence.num_output_tokens, most)

    def _classes_of(self, request: Request) -> tuple[_Class, _Class, _Class]:
        wide = (request.tenant, request.adapter)
        narrow = (*wide, request.num_prompt_tokens.bit_length())
        return self._class(narrow), self._class(wide), self._everybody

    def _class(self, key: tuple[object, ...]) -> _Class:
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = _Class()
            if len(self._classes) > _MAX_CLASSES:
                self._classes.popitem(last=False)
        self._classes.move_to_end(key)
        return found


class _Class:
    """The latest outputs of one kind, in order of length too."""

    def __init__(self) -> None:
        self.running: dict[int, Sequence] = {}
        self._latest: deque[tuple[int, bool]] = deque()
        self._lengths: list[int] = []
        self._cut: list[int] = []
        self._survival: Survival | None = None
        self._num_news = 0  # outputs since then

    @property
    def num_seen(self) -> int:
        return len(self._latest)

    @property
    def shortest(self) -> int:
        return min(lengths[0] for lengths in (self._lengths, self._cut) if lengths)

    def observe(self, num_tokens: int, *, is_cut: bool) -> None:
        if len(self._latest) == WINDOW:
            old, was_cut = self._latest.popleft()
            lengths = self._cut if was_cut else self._lengths
            del lengths[bisect_left(lengths, old)]
        self._latest.append((num_tokens, is_cut))
        insort(self._cut if is_cut else self._lengths, num_tokens)
        self._num_news += 1

    def survival(self) -> Survival:
        """As of the latest outputs, or nearly: it is made anew for every sixteenth of them."""
        if self._survival is None or self._num_news * 16 > self.num_seen:
            ages = sorted(s.num_output_tokens for s in self.running.values())
            self._survival = _estimate(self._lengths, self._cut, ages)
            self._num_news = 0
        return self._survival


def _estimate(ended: list[int], cut: list[int], running: list[int]) -> Survival:
    """What is known of lengths: all ascending.

    Kaplan and Meier's estimate (1958), which takes those who have not ended for what they are.
    Beyond all that was seen a length is as likely to double as not. While little was seen, some
    phantoms beside it say that outputs are long: not that they go on to their limits, which may be
    more than the pool where clients declare none, so that one would run at a time.
    """
    lengths: list[int] = []
    shares = [ONE]
    open_ended = sorted([*cut, *running])
    place, num_ended = 0, len(ended)
    while place < num_ended:
        length = ended[place]
        end = bisect_right(ended, length, place)
        num_at_risk = num_ended - place + len(open_ended) - bisect_left(open_ended, length)
        # One more, so that never nothing is left.
        shares.append(shares[-1] * (num_at_risk + 1 - (end - place)) // (num_at_risk + 1))
        lengths.append(length)
        place = end
    known = max(lengths[-1] if lengths else 0, open_ended[-1] if open_ended else 0, 4)
    if lengths[-1:] != [known]:
        lengths.append(known)
        shares.append(shares[-1])
    _add_tail(lengths, shares)
    return Survival(lengths, _with_phantoms(lengths, shares, num_ended))


def _add_tail(lengths: list[int], shares: list[int]) -> None:
    length = lengths[-1]
    while length < _LONGEST:
        length += length // 4
        lengths.append(length)
        shares.append(max(1, shares[-1] * 4 // 5))


def _with_phantoms(lengths: list[int], shares: list[int], num_seen: int) -> list[int]:
    fading = max(0, _ENOUGH - num_seen) * _NUM_PHANTOMS
    if not fading:
        return shares
    whole = fading + num_seen * _ENOUGH
    phantoms = (ONE, *(ONE * _PHANTOM // max(length, _PHANTOM) for length in lengths))
    pairs = zip(phantoms, shares, strict=True)
    return [(fading * ours + num_seen * _ENOUGH * share) // whole for ours, share in pairs]
