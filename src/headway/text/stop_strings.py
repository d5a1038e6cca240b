"""Stop strings in a stream: find them across pieces, and never give out a part of one.

All stops are followed at once by one automaton (Aho and Corasick, 1975): its state is the longest
end of the text so far that begins some stop, which is exactly the part that must be held back.

    stops: "DEF", "EX"        text: A B C D E | X
                              held:       D DE  → "EX" completes: "ABCD" is the output
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache


def first_stop(text: str, stops: Sequence[str], *, min_end: int = 0) -> tuple[int, str] | None:
    """Where the first stop starts in `text`, and which; None without one.

    The definition that `StopStrings` streams. First is what completes first, because a client
    must not wait for a longer one; of two that end at the same character, the longer. Only ends
    beyond the first `min_end` characters count.
    """
    for end in range(max(min_end, 0) + 1, len(text) + 1):
        ending = [stop for stop in stops if text.endswith(stop, 0, end)]
        if ending:
            stop = max(ending, key=len)
            return end - len(stop), stop
    return None


@dataclass(slots=True, eq=False)
class _Node:
    depth: int
    children: dict[str, _Node] = field(default_factory=dict)
    fallback: _Node | None = None  # the longest proper end of this node's text that is a node
    stop: str | None = None  # the longest stop that ends here
    num_held: int = 0  # characters that may still become a stop


class StopStrings:
    """One sequence's stops. `include` gives the found stop itself out as well."""

    def __init__(self, stops: Sequence[str] = (), *, include: bool = False) -> None:
        if not all(isinstance(stop, str) and stop for stop in stops):
            raise ValueError(f"stop strings must be non-empty strings, got {list(stops)!r}")
        self._include = include
        self._root = _build(tuple(stops))
        self._node = self._root
        self._held = ""
        self._found: str | None = None

    def push(self, text: str, *, may_stop: bool = True) -> tuple[str, str | None]:
        """Text that is safe to give out, and the stop that was found, or None.

        After a find everything that follows is ignored. With `may_stop` False a stop that
        completes in this text is no stop, but one that begins in it can still complete later.
        """
        if self._found is not None:
            return "", None
        if not self._root.children:
            return text, None
        for position, char in enumerate(text):
            self._node = self._next(char)
            if may_stop and self._node.stop is not None:
                return self._end(self._held + text[: position + 1], self._node.stop)
        seen = self._held + text
        num_safe = len(seen) - self._node.num_held
        self._held = seen[num_safe:]
        return seen[:num_safe], None

    def flush(self) -> str:
        """What was held back: at the end of the text it can no longer become a stop."""
        held, self._held, self._node = self._held, "", self._root
        return held

    def _next(self, char: str) -> _Node:
        node: _Node | None = self._node
        while node is not None and char not in node.children:
            node = node.fallback
        return self._root if node is None else node.children[char]

    def _end(self, seen: str, stop: str) -> tuple[str, str]:
        self._found, self._held = stop, ""
        return (seen if self._include else seen[: len(seen) - len(stop)]), stop


@lru_cache(maxsize=8)  # the choices of a request share it: it is not written to once it is built
def _build(stops: tuple[str, ...]) -> _Node:
    root = _Node(depth=0)
    for stop in stops:
        node = root
        for char in stop:
            node = node.children.setdefault(char, _Node(depth=node.depth + 1))
        node.stop = stop
    _link(root)
    return root


def _link(root: _Node) -> None:
    # Breadth first: a fallback is shallower, so it is complete before it is needed.
    queue = deque([root])
    while queue:
        node = queue.popleft()
        for char, child in node.children.items():
            child.fallback = _fallback(root, node, char)
            child.stop = child.stop or child.fallback.stop
            child.num_held = child.depth if child.children else child.fallback.num_held
            queue.append(child)


def _fallback(root: _Node, parent: _Node, char: str) -> _Node:
    node = parent.fallback
    while node is not None and char not in node.children:
        node = node.fallback
    return root if node is None else node.children[char]
