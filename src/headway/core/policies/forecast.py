"""How long outputs will be, from those seen so far."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from itertools import accumulate, pairwise

from headway.core.request import Request
from headway.core.sequence import Sequence, SequenceStatus

ONE = 1 << 24  # the scale of shares
WINDOW = 500  # outputs that a class remembers, those that began last; fewer after a shift
_ENOUGH = 64  # outputs of its own for a class to be believed
_NUM_PHANTOMS = 4
_PHANTOM = 512  # tokens that an output of which nothing is known has; half have twice as many
_FEWEST = 32  # latest outputs that may show a shift
_UNLIKELY = 12  # squared deviations of what is due by chance
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
    adapter, then everybody's. Each remembers the latest that began, until one of them is missed:
    those that still run count as what they are, outputs of at least so many tokens. Without them
    short outputs, which end first, would be all there is at the start and after a shift.
    """

    def __init__(self) -> None:
        self._everybody = _Class()
        self._classes: OrderedDict[tuple[object, ...], _Class] = OrderedDict()

    def entered(self, sequence: Sequence) -> None:
        """The sequence runs."""
        for found in self._classes_of(sequence.request):
            found.begin(sequence)

    def left(self, sequence: Sequence) -> None:
        """The sequence runs no more: it was preempted or has ended."""
        if sequence.status is SequenceStatus.FINISHED:
            for found in self._classes_of(sequence.request):
                found.withdraw(sequence)

    def ended(self, sequence: Sequence) -> None:
        """The output is finished, and not because somebody withdrew it; told before it leaves."""
        # One cut off at its limit would have been longer: nobody knows by how much.
        is_cut = len(sequence.token_ids) >= sequence.max_num_tokens
        for found in self._classes_of(sequence.request):
            found.observe(sequence, is_cut=is_cut)

    def survival(self, sequence: Sequence) -> Survival:
        """Of the narrowest class of its request that has seen enough."""
        narrow, middle, wide = self._classes_of(sequence.request)
        for found in (narrow, middle):
            if found.is_believed:
                return found.survival()
        return wide.survival()

    def shortest(self, request: Request) -> int:
        """The least that an output of the narrowest class that has seen enough had; or 1."""
        for found in self._classes_of(request):
            if found.is_believed:
                return found.survival().lengths[0]
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
    """The latest outputs of one kind, in the order in which they began."""

    def __init__(self) -> None:
        # Its length and whether that was its end; of who has not ended, the sequence.
        self._latest: OrderedDict[int, Sequence | tuple[int, bool]] = OrderedDict()
        self.num_seen = 0  # of them, those whose lengths are known
        self.is_believed = False  # once and for all: a wider one knows of a shift no sooner
        self._survival: Survival | None = None
        self._ended: list[int] = []  # the lengths that it is made of, those that are sure
        self._num_news = 0  # lengths since then

    def begin(self, sequence: Sequence) -> None:
        self._latest.setdefault(sequence.sequence_id, sequence)

    def withdraw(self, sequence: Sequence) -> None:
        if isinstance(self._latest.get(sequence.sequence_id), Sequence):
            del self._latest[sequence.sequence_id]

    def observe(self, sequence: Sequence, *, is_cut: bool) -> None:
        if sequence.sequence_id not in self._latest:
            return  # it began before all that count
        self._latest[sequence.sequence_id] = sequence.num_output_tokens, not is_cut
        self.num_seen += 1
        self._num_news += 1
        self.is_believed |= self.num_seen >= _ENOUGH
        while self.num_seen > WINDOW:
            self._forget_first()

    def _forget_first(self) -> None:
        _, first = self._latest.popitem(last=False)
        self.num_seen -= not isinstance(first, Sequence)

    def survival(self) -> Survival:
        """As of the latest outputs, or nearly: it is made anew for every sixteenth of them."""
        if self._survival is None or self._num_news * 16 > self.num_seen:
            if self._survival is not None:
                self._forget_until_a_shift(self._survival)
            lengths = self._lengths()
            self._ended = sorted(length for length, has_ended in lengths if has_ended)
            others = sorted(length for length, has_ended in lengths if not has_ended)
            self._survival = _estimate(self._ended, others, self.num_seen)
            self._num_news = 0
        return self._survival

    def _lengths(self) -> list[tuple[int, bool]]:
        """From the latest on; of who has not ended, so far."""
        return [
            (output.num_output_tokens, False) if isinstance(output, Sequence) else output
            for output in reversed(self._latest.values())
        ]

    def _forget_until_a_shift(self, expected: Survival) -> None:
        """Drop what began before lengths changed: of the latest, more or fewer have ended by now
        than were due on their way, beyond what chance does to both counts (a log-rank test)."""
        shares = expected.shares[: len(set(self._ended)) + 1]  # beyond, nothing was seen
        due = [0, *accumulate(ONE - ONE * after // before for before, after in pairwise(shares))]
        num_due = num_ended = 0
        for number, (length, has_ended) in enumerate(self._lengths(), start=1):
            num_due += due[min(bisect_right(expected.lengths, length), len(due) - 1)]
            num_ended += has_ended * ONE
            if number < _FEWEST or number & (number - 1):
                continue  # looked at where their number is a power of two
            chance = num_due * (ONE * len(self._ended) + num_due)
            if (num_ended - num_due) ** 2 * len(self._ended) > _UNLIKELY * chance:
                while len(self._latest) > number:
                    self._forget_first()
                return


def _estimate(ended: list[int], others: list[int], num_seen: int) -> Survival:
    """What is known of lengths, all ascending; of the `others`, at least.

    Kaplan and Meier's estimate (1958), which takes those who have not ended for what they are.
    Beyond all that was seen a length is as likely to double as not. While little was seen, a few
    phantoms are among them, which are long: they do not go on to their limits, which may be more
    than the pool where clients declare none, so that one would run at a time.
    """
    lengths: list[int] = []
    shares = [ONE]
    # One more, so that never nothing is left.
    num_phantoms = 1 + (_NUM_PHANTOMS - 1) * max(0, _ENOUGH - num_seen) // _ENOUGH
    place = 0
    while place < len(ended):
        length = ended[place]
        end = bisect_right(ended, length, place)
        num_at_risk = len(ended) - place + len(others) - bisect_left(others, length) + num_phantoms
        shares.append(shares[-1] * (num_at_risk - (end - place)) // num_at_risk)
        lengths.append(length)
        place = end
    least = _PHANTOM * max(0, _ENOUGH - len(ended)) // _ENOUGH
    length = max(lengths[-1] + 1 if lengths else 0, others[-1] if others else 0, least, 4)
    while length < _LONGEST:
        lengths.append(length)
        shares.append(max(1, shares[-1] * 4 // 5))
        length += length // 4
    return Survival(lengths, shares)
