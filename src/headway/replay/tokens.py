"""Token ids that nobody wrote, with which a prefix cache finds what it found when recorded.

A block of a recorded name becomes a block of tokens that depends on the name alone:

    position in the block    0  1  2  3  ...  block_size - 1
    token                    0  1  0  1  ...  the name, a number from 2 on

What is not in a full block is 0, 1, 0, 1 ... as well. No token equals the one before it, so that no
output seems to go round in circles; and a block's last token comes last: an output that fills it
need not know before which block it will be.
"""

from __future__ import annotations

from collections.abc import Iterable

from headway.drive.recording import Arrival
from headway.simulator.script import END_TOKEN

STOP_TOKEN = END_TOKEN  # ends an output here as it does in the simulator
FIRST_NAME = 2


class BlockTokens:
    """Numbers for the names of blocks, in order of their first mention, and blocks of tokens."""

    def __init__(self, block_size: int, first_name: int = FIRST_NAME) -> None:
        self.block_size = block_size
        self._first_name = first_name
        self._number_of: dict[str, int] = {}
        self._head = tuple(place % 2 for place in range(block_size - 1))

    def number_of(self, name: str) -> int:
        """The token that stands at the end of the block."""
        return self._number_of.setdefault(name, self._first_name + len(self._number_of))

    def filler(self, position: int) -> int:
        """The token at any other position of a sequence."""
        return position % self.block_size % 2

    def named_prompt(self, arrival: Arrival) -> tuple[int, ...]:
        """The arrival's prompt. Raises ValueError where the number of names is wrong."""
        check_blocks(arrival, self.block_size)
        return self.prompt(map(self.number_of, arrival.prompt_blocks), arrival.num_prompt_tokens)

    def prompt(self, numbers: Iterable[int], num_tokens: int) -> tuple[int, ...]:
        """A prompt of full blocks with these numbers, and of what is left behind them."""
        tokens: list[int] = []
        for number in numbers:
            tokens += self._head
            tokens.append(number)
        return (*tokens, *self._head[: num_tokens - len(tokens)])


def check_blocks(arrival: Arrival, block_size: int) -> None:
    """Raises ValueError unless every full block of the prompt has a name."""
    num_names, num_tokens = len(arrival.prompt_blocks), arrival.num_prompt_tokens
    if num_tokens < 0 or num_names != num_tokens // block_size:
        raise ValueError(
            f"request {arrival.request_id!r}: a prompt of {num_tokens} tokens has "
            f"{num_tokens // block_size} full blocks of {block_size}, the recording names "
            f"{num_names}"
        )
