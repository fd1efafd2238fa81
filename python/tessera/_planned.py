"""Plans that are made once and then found by everything on which they depend, such as shapes."""

from __future__ import annotations

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Planned(dict[Key, Value]):
    """Holds at most `most` values; when it is full, all are forgotten before the next one is added."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def add(self, key: Key, value: Value) -> Value:
        if len(self) >= self._most:
            self.clear()
        self[key] = value
        return value
