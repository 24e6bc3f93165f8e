"""Each error of a command line has an entry in the page for trouble, to be found by its words."""

from __future__ import annotations

from typing import Any

import pytest

from mx_emitter.__main__ import main as emitter
from mx_exporter.cli.main import main as exporter
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


@pytest.mark.parametrize(
    ("main", "arguments", "words"),
    [
        (exporter, [], "Missing command"),
        (exporter, ["sevre"], "No such command"),
        (exporter, ["serve", "--prot"], "No such option"),
        (exporter, ["serve", "--port"], "requires an argument"),
        (exporter, ["serve", "extra"], "unexpected extra argument"),
        (exporter, ["run"], "Missing argument"),
        (emitter, ["doctro"], "invalid choice"),
        (emitter, ["doctor", "extra"], "unrecognized arguments"),
    ],
)
def test_an_error_of_the_libraries_is_found_as_well(
    main: Any, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(arguments)
    except SystemExit as end:
        code = end.code
    assert code == 2
    assert words in capsys.readouterr().err
    assert words in PAGE
