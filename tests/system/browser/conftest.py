"""A window of a real browser, for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import support
from tests.support.browser import Browser


@pytest.fixture(scope="module")
def spawner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[support.Spawner]:
    spawner = support.Spawner(tmp_path_factory.mktemp("browser") / "processes")
    try:
        yield spawner
    finally:
        spawner.end()


@pytest.fixture(scope="module")
def window(spawner: support.Spawner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(spawner, tmp_path_factory.mktemp("home"))
    try:
        yield browser
    finally:
        browser.close()


@pytest.fixture
def browser(window: Browser) -> Browser:
    """As others left it, but for what they changed."""
    window.open("about:blank")
    window.show_as()
    window.complaints()
    window.requests()
    return window
