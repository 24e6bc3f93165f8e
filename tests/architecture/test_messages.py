"""Each error of a command line has an entry in the page for trouble, to be found by its words."""

from __future__ import annotations

import pytest

from tests import support
from tests.support.messages import Message, messages, plain

PAGE = plain((support.ROOT / "docs" / "troubleshooting.md").read_text())

MESSAGES = [message for message in messages(support.ROOT) if message.words]


def test_messages_are_found_in_the_source() -> None:
    assert len(MESSAGES) > 70
    texts = " ".join(part for message in MESSAGES for part in message.parts)
    for words in ("give only one of them", "nothing was removed from", "chmod +x makes it so"):
        assert words in texts


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.words[0])
def test_an_error_is_found_by_its_words(message: Message) -> None:
    found = [words for words in message.words if words in PAGE]
    assert found, f"{message.place}: docs/troubleshooting.md has none of {message.words}"
