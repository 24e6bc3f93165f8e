"""How the text of a setting is read, by the emitter and by the exporter alike.

It imports nothing: `mx_activate` uses it in every process of an engine.
"""

from __future__ import annotations

#: Words that switch something on, and words that switch it off.
TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off"})


def whole_number(text: str) -> int:
    """The integer that ``text`` spells: an optional sign and 1 to 18 ASCII digits.

    ``int()`` alone would also take ``1_000`` and the digits of other scripts.

    :raises ValueError: it spells none.
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise ValueError("expected a whole number")
    return int(text)


def is_true(text: str) -> bool:
    """Whether ``text`` is one of `TRUE`, in any case and with blanks around it."""
    return text.strip().lower() in TRUE


def well_formed(text: str) -> str:
    """``text`` with each lone surrogate, which UTF-8 cannot hold, spelt out as ``\\udc80``."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()
