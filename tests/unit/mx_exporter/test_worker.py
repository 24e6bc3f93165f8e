"""A thread beside the event loop lets what is more urgent go first."""

from __future__ import annotations

from mx_exporter.worker import StepAside


def test_it_waits_while_something_is_urgent() -> None:
    asked: list[bool] = []

    def urgent() -> bool:
        asked.append(len(asked) < 3)
        return asked[-1]

    aside = StepAside(urgent)
    while not asked:  # a step has gone by
        aside()
    assert asked == [True, True, True, False]


def test_it_does_not_wait_for_ever() -> None:
    asked: list[bool] = []
    aside = StepAside(lambda: not asked.append(True))
    while not asked:
        aside()
    assert len(asked) > 1
