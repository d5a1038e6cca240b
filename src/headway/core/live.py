"""The sequences whose ending has not been told yet."""

from __future__ import annotations

from collections.abc import Iterator

from headway.core.events import Retired
from headway.core.sequence import Sequence


class LiveSequences:
    """By request and in order of arrival; a request lives as long as one of its sequences."""

    def __init__(self) -> None:
        self._requests: dict[str, dict[int, Sequence]] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._requests

    def __iter__(self) -> Iterator[Sequence]:
        return (s for siblings in self._requests.values() for s in siblings.values())

    def request_ids(self) -> list[str]:
        return list(self._requests)

    def of(self, request_id: str) -> list[Sequence]:
        return list(self._requests.get(request_id, {}).values())

    def add(self, sequence: Sequence) -> None:
        siblings = self._requests.setdefault(sequence.request.request_id, {})
        siblings[sequence.sequence_id] = sequence

    def remove(self, request_id: str, sequence_id: int) -> None:
        siblings = self._requests[request_id]
        del siblings[sequence_id]
        if not siblings:
            del self._requests[request_id]

    def tell(self, due: list[Retired]) -> list[Retired]:
        """These endings are told now, so that their sequences are gone; returns the same."""
        for retired in due:
            self.remove(retired.request_id, retired.sequence_id)
        return due
