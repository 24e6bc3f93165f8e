"""How much of its volume the log may take."""

from __future__ import annotations

import os
from pathlib import Path

from mx_log.volume import limit_on


def test_half_of_a_small_volume(small_disk: Path) -> None:
    assert limit_on(str(small_disk), 32 << 20) == 128 * 1024
    assert limit_on(str(small_disk), 1000) == 1000
    folder = os.open(small_disk, os.O_RDONLY)
    try:
        assert limit_on(folder, 32 << 20) == 128 * 1024
    finally:
        os.close(folder)


def test_without_a_volume_the_setting_alone_holds(tmp_path: Path) -> None:
    assert limit_on(str(tmp_path / "missing"), 1 << 60) == 1 << 60


def test_a_volume_that_does_not_say_how_large_it_is() -> None:
    assert os.statvfs("/proc").f_blocks == 0
    assert limit_on("/proc", 1 << 60) == 1 << 60
