"""Keys of a table of TOML, taken one by one; what is wrong is said with file, table and key."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

from ..errors import UsageError

_Kind = TypeVar("_Kind")

_WORDS: dict[type, str] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    list: "an array",
    dict: "a table",
}


class Keys:
    """A table that is being read.

    :param where: file and table, for messages.
    """

    def __init__(self, where: str, given: dict[str, Any]) -> None:
        self.where = where
        self._left = dict(given)

    def wrong(self, key: str, why: str) -> NoReturn:
        """Refuse the table for what stands under a key."""
        raise UsageError(f"{self.where}, {key}: {why}")

    def take(self, key: str, kind: type[_Kind], default: _Kind | None = None) -> _Kind:
        """The value of a key, which must be there where there is no default."""
        if key not in self._left:
            if default is None:
                self.wrong(key, "missing")
            return default
        value = self._left.pop(key)
        if type(value) is not kind:
            self.wrong(key, f"expected {_WORDS[kind]}")
        return value

    def has(self, key: str) -> bool:
        """Whether the key is there, and not taken yet."""
        return key in self._left

    def take_any(self, key: str) -> Any:
        """The value of a key, of whatever kind; None where it is not there."""
        return self._left.pop(key, None)

    def texts(self, key: str) -> list[str]:
        """An array of texts; none where the key is not there."""
        values = self.take(key, list, [])
        if not all(type(value) is str for value in values):
            self.wrong(key, "expected an array of texts")
        return values

    def tables(self, key: str, what: str) -> list[Keys]:
        """An array of tables, each called by its name if it has one."""
        found = []
        for number, value in enumerate(self.take(key, list, []), 1):
            if type(value) is not dict:
                self.wrong(key, "expected tables")
            name = value.get("name")
            named = f" ({name})" if type(name) is str else ""
            found.append(Keys(f"{self.where}, {what} {number}{named}", value))
        return found

    def end(self) -> None:
        """Refuse keys that nobody took."""
        for key in self._left:
            self.wrong(key, "no such key here")
