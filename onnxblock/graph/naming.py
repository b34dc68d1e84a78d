"""Names: unique within one graph, and the same every time the same graph is built."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class Names:
    """Gives out names that no value or node of a graph has yet."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}
        self._scope = ""

    def take(self, names: Iterable[str]) -> None:
        """Mark names as used."""
        self._taken.update(names)

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def unique(self, base: str, scoped: bool = True) -> str:
        """``base`` within the current scope, with a number behind it if it is taken."""
        stem = self._scope + base if scoped else base
        count = self._counts.get(stem, 0)
        name = stem if count == 0 else f"{stem}_{count}"
        while name in self._taken:
            count += 1
            name = f"{stem}_{count}"
        self._counts[stem] = count + 1
        self._taken.add(name)
        return name

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Put ``name/`` before every name given out inside."""
        outer = self._scope
        self._scope = f"{outer}{name}/"
        try:
            yield
        finally:
            self._scope = outer
