"""Whatever becomes of a snapshot's bytes, it is what was written or it is refused."""

from __future__ import annotations

import subprocess

import pytest

from mx_exporter.core import snapshot_seal
from mx_exporter.core.snapshot_seal import BadSnapshot, check_size, seal, unseal
from tests.support.snapshots import sealed

CONTENT = b'{"segments":{"aaaaaaaaaaaa":3},"events":{"nixl_received":2}}'
SEALED = seal(CONTENT)


def test_what_was_sealed_is_unsealed() -> None:
    assert unseal(SEALED) == (2, CONTENT + b"\n")
    assert sealed(CONTENT + b"\n") == SEALED


def test_the_checksum_can_be_taken_by_hand(tmp_path) -> None:
    path = tmp_path / "mx-metrics.snapshot"
    path.write_bytes(SEALED)
    command = f"tail -n +2 {path} | sha256sum"
    digest = subprocess.run(command, shell=True, check=True, capture_output=True).stdout[:64]
    assert digest in SEALED.partition(b"\n")[0]


def test_each_change_of_a_byte_is_refused() -> None:
    for at, byte in enumerate(SEALED):
        for other in {byte ^ 1, byte ^ 0x20, byte ^ 0x80, ord("1"), ord(" "), ord("\n")} - {byte}:
            with pytest.raises(BadSnapshot):
                unseal(SEALED[:at] + bytes([other]) + SEALED[at + 1 :])


def test_each_byte_too_few_or_too_many_is_refused() -> None:
    for at in range(len(SEALED)):
        for other in (SEALED[:at], SEALED[at + 1 :], SEALED[:at] + b" " + SEALED[at:]):
            with pytest.raises(BadSnapshot):
                unseal(other)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is damaged: "),
        (SEALED[:-10], r"is damaged: it has 51 bytes after its first line, not 61$"),
        (SEALED.replace(b"aaaa", b"aaab"), "is damaged: its checksum is another one"),
        (sealed(CONTENT, format=3), r"is of format 3, of a newer release; .* formats up to 2$"),
        (sealed(CONTENT, format=0), "is damaged: there is no format 0"),
        (sealed(CONTENT, more=1), "is damaged: .*unknown field `more`"),
        (b"[" * 100_000, "is damaged: "),
    ],
)
def test_why_it_is_refused(data, why) -> None:
    with pytest.raises(BadSnapshot, match=f"^{why}"):
        unseal(data)


def test_format_1_had_no_seal() -> None:
    assert unseal(b'{"format":1,"events":{}}') == (1, b'{"format":1,"events":{}}')


def test_one_that_could_not_be_read_back_is_not_written(monkeypatch) -> None:
    monkeypatch.setattr(snapshot_seal, "MAX_BYTES", len(SEALED))
    check_size(len(SEALED))
    assert unseal(seal(CONTENT))
    with pytest.raises(BadSnapshot, match=f"has {len(SEALED) + 1} bytes, and none .* larger than"):
        seal(CONTENT + b" ")
    with pytest.raises(BadSnapshot, match="none of ours is larger"):
        unseal(SEALED + b" ")
