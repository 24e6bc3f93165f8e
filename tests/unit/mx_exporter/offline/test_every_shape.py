"""One log in the shapes in which collectors, tools and archives give it back, and in their
combinations: always the page of the plain log, and always a place for each line."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import json
import lzma
import random
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mx_exporter.analysis.check import examine
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.decode import Event, Rejected
from mx_exporter.offline import json_text, reader
from mx_exporter.offline.records import Records
from mx_exporter.offline.sources import Source
from tests.support import Lines, envelopes, load_logs
from tests.support.commands import Run
from tests.support.envelopes import ENVELOPES
from tests.support.folding import replayed_page as page

E = json.dumps(Lines().record("source_attempted", policy="random", result="success")).encode()

#: Shapes that give a line for each line, so that another one may lie around them.
INNER = [
    "plain",
    "cri",
    "cri in parts",
    "docker",
    "fluent bit after its cri parser",
    "journald",
    "cloud logging",
    "filebeat",
    "compose, coloured",
    "times of 9 digits",
    "empty ones left out",
    "sorted, with floats",
]
#: Shapes that hold each line by itself, and as it was.
KEEP_LINES = ["plain", "docker", "fluent bit", "journald", "logcli", "vector", "cloudwatch", "otlp"]

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
    "utf-16": lambda data: data.decode().encode("utf-16"),
    "utf-16-le": lambda data: data.decode().encode("utf-16-le"),
    "tar": lambda data: tar({"pod/0.log": data}),
    "zip": lambda data: zipped({"pod/0.log": data}),
}


def tar(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


class Log(NamedTuple):
    """The lines of a log, and its page; shown in short when a test fails."""

    lines: list[bytes]
    page: bytes

    def __repr__(self) -> str:
        return "a log"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    directory = tmp_path_factory.mktemp("log") / "plain"
    lines = load_logs.lines_of(load_logs.ranks(directory, count=2, end=False))
    return Log(lines, page(directory))


@given(
    inner=st.sampled_from(INNER),
    outer=st.sampled_from(sorted(ENVELOPES)),
    packed=st.lists(st.sampled_from(sorted(PACK)), max_size=2),
    others=st.sampled_from(["", "listening on *:9402", '{"event":"hello"}', "[1]"]),
    block=st.sampled_from([300, 4096, 128 * 1024]),
)
@settings(
    max_examples=settings().max_examples,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_combination_gives_the_page_of_the_plain_log(
    log: Log,
    inner: str,
    outer: str,
    packed: list[str],
    others: str,
    block: int,
    tmp_path: Path,
) -> None:
    lines, right = log
    lines = ENVELOPES[inner](lines).splitlines()
    if others and inner != "cri in parts":
        lines = [others.encode(), *lines, others.encode()]
    if inner == "cri in parts" and outer not in KEEP_LINES:
        outer = "vector"  # parts that are no lines any more are nobody's
    if any(not line.startswith(b"{") for line in lines) and _wants_json(outer):
        outer = "vector"
    data = ENVELOPES[outer](lines)
    for pack in packed:
        # A zip archive is read from both ends, so it is not in anything else.
        if data[:2] != b"PK" and (
            not pack.startswith("utf") or (data.isascii() and b"\0" not in data)
        ):
            data = PACK[pack](data)
    path = tmp_path / "collected"
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_BLOCK", block)
        if page(path) != right:
            pytest.fail(f"{inner} in {outer}, {packed}, {others!r}, blocks of {block}")


def _wants_json(outer: str) -> bool:
    """Whether a shape holds lines as the JSON that they are."""
    try:
        return ENVELOPES[outer]([b"no json"]) in (b"[no json]", b"no json", b"[\nno json\n]\n")
    except ValueError:
        return True


# --------------------------------------------------------------------------------------
# A place for each line


pieces = st.sampled_from(
    [
        b"\n",
        b"\r\n",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b'"',
        b'\\"',
        b":",
        b" ",
        b"\0",
        b"\xff",
        b"T ",
        b"junk",
        b"12",
        b'{"log":"',
        b'","stream":"stdout","time":"T"}',
        b"2026-01-01T00:00:00Z stdout P ",
        b"2026-01-01T00:00:00Z stdout F ",
        b'{"message":' + json.dumps(E.decode()).encode() + b"}",
        E,
        E[:50],
        E[50:],
        E.replace(b'"seq": 0', b'"seq": 1'),
        b'{"event":"x","proc":"a","seq":"no"}',
        b"x" * 700,
    ]
)
anything = st.lists(pieces | st.binary(max_size=8), max_size=30).map(b"".join)


def found_in(data: bytes, path: Path, block: int, limit: int) -> list[str]:
    """What a file gives, and the counts of its lines."""
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_BLOCK", block)
        patch.setattr(json_text, "MAX_PIECE", limit)
        report = examine(CATALOG, (str(path),))
        given = [
            (number, repr(entry))
            for number, entries in reader.read(Source(str(path)), CATALOG.decoder, numbered=True)
            for entry in entries
        ]
    lines = report.lines
    assert lines.all == lines.events + lines.met_before + lines.rejected + lines.foreign
    return [*map(repr, sorted(given)), repr(lines)]


@given(data=anything, block=st.integers(1, 400), limit=st.sampled_from([300, 4 << 20]))
@settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_each_line_of_any_bytes_has_a_place_however_they_are_split(
    data: bytes, block: int, limit: int, tmp_path: Path
) -> None:
    data = b"\n" + data  # no first bytes of anything packed
    path = tmp_path / "log"
    assert found_in(data, path, block, limit) == found_in(data, path, 1 << 20, limit)


@given(
    lines=st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=20)
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_line_of_others_goes_uncounted(lines: list[bytes], tmp_path: Path) -> None:
    """Where no line can begin a JSON text of several lines."""
    path = tmp_path / "log"
    path.write_bytes(b"\n" + b"".join(b"x" + line + b"\n" for line in lines))
    assert examine(CATALOG, (str(path),)).lines == (len(lines), 0, 0, 0, len(lines))


@pytest.mark.parametrize("line", [b"INFO hello", b'{"level":"info"}', b'{"log":"hi\\n"}', b" \t"])
def test_lines_of_others_are_counted_in_any_number(
    line: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where many are told at a time."""
    monkeypatch.setattr(reader, "_BLOCK", 512)
    path = tmp_path / "log"
    path.write_bytes((line + b"\n") * 1000 + E)
    others = 1000 if line.strip() else 0
    assert examine(CATALOG, (str(path),)).lines == (others + 1, 1, 0, 0, others)


@example(data=b"\0{", cuts=[1])
@example(data=b" \xef\xbb\xbf[ [\r\n\0[\0", cuts=[4])
@given(data=anything, cuts=st.lists(st.integers(0, 2000), max_size=8))
@settings(deadline=None)
def test_records_do_not_depend_on_blocks(data: bytes, cuts: list[int]) -> None:
    def records(blocks: Iterator[bytes] | list[bytes]) -> list[tuple[int, bytes]]:
        cutter = Records()
        runs = [run for block in blocks for run in cutter.feed(block)]
        runs += cutter.rest()
        return [pair for run in runs for pair in zip(run.numbers, run.records, strict=True)]

    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    split = [data[a:b] for a, b in itertools.pairwise(places)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_text, "MAX_PIECE", 300)
        assert records(split) == records([data])


#: Texts that look like what stands between two elements of a list.
tricky = st.text(alphabet='],[{}"\\ :a\n', max_size=12)
values = st.recursive(
    st.none() | st.integers() | st.floats() | tricky | st.just("x" * 1700),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(tricky, inner, max_size=3),
    max_leaves=12,
)


@given(
    lists=st.lists(st.lists(values, max_size=12), min_size=1, max_size=3),
    separators=st.sampled_from([(",", ":"), (", ", ": "), (" ,", ":")]),
    cut=st.integers(0, 2000),
)
@settings(deadline=None)
def test_elements_that_are_taken_together_are_those_one_by_one(
    lists: list[list[object]], separators: tuple[str, str], cut: int
) -> None:
    data = json.dumps({"a": lists, "b": "x" * 4000}, separators=separators).encode()

    def records() -> list[bytes]:
        cutter = Records()
        runs = [run for block in (data[:cut], data[cut:]) for run in cutter.feed(block)]
        return [record for run in (*runs, *cutter.rest()) for record in run.records]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_text, "MAX_PIECE", 2000)
        patch.setattr(json_text, "_LARGE", 10)
        together = records()
        patch.setattr(json_text, "_BETWEEN", {})
        patch.setattr(json_text, "goes_on", lambda _: False)
        assert together == records()


# --------------------------------------------------------------------------------------
# What begins in one place and ends in another


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("in_archive", [False, True])
def test_a_line_that_a_rotation_cut_is_one(
    pack: Callable[[bytes], bytes], in_archive: bool, tmp_path: Path
) -> None:
    lines = load_logs.lines_of(load_logs.ranks(tmp_path / "log"))
    right = page(tmp_path / "log")
    whole = envelopes.cri(lines, part=90).splitlines(keepends=True)
    middle = next(at for at, line in enumerate(whole) if at > 40 and b" P " in line) + 1
    suffix = "" if pack is bytes else ".gz"
    files = {
        "0.log": b"".join(whole[middle:]),
        f"0.log.20260102-030405{suffix}": pack(b"".join(whole[:middle])),
    }
    if in_archive:
        (tmp_path / "pod.tar").write_bytes(tar(files))
        assert page(tmp_path / "pod.tar") == right
        return
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    for order in (sorted(files), sorted(files, reverse=True)):
        assert page(*(tmp_path / name for name in order)) == right
    assert examine(CATALOG, (str(tmp_path / "0.log*"),)).faulty is False


def test_the_halves_of_a_line_alone(tmp_path: Path) -> None:
    for name, data, reasons, foreign in (
        ("first", b"2026-01-01T00:00:00Z stdout P " + E[:60], ["torn"], 0),
        ("rest", b"2026-01-01T00:00:00Z stdout F " + E[60:] + b"\n", [], 1),
    ):
        (tmp_path / name).write_bytes(data)
        report = examine(CATALOG, (str(tmp_path / name),))
        assert list(report.files[0].rejected) == reasons
        assert report.lines.foreign == foreign


# --------------------------------------------------------------------------------------
# Archives


@pytest.mark.parametrize("pack", ["tar", "zip", "tar.gz", "tar.zst", "tar.xz", "gz in tar"])
def test_an_archive_of_a_directory(pack: str, tmp_path: Path) -> None:
    paths = load_logs.ranks(tmp_path / "log")
    files = {f"log/{path.name}": path.read_bytes() for path in paths}
    files["log/.mx-metrics.lock"] = b""
    files["log/counter_1.db"] = b"\0\1\2" * 1000
    if pack == "gz in tar":
        files = {f"{name}.gz": gzip.compress(data) for name, data in files.items()}
    data = zipped(files) if pack == "zip" else tar(files)
    pack_with = {"tar.gz": "gzip", "tar.zst": "zstd", "tar.xz": "xz"}.get(pack, "")
    path = tmp_path / "copy"
    path.write_bytes(PACK[pack_with](data))
    assert page(path) == page(tmp_path / "log")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (tar({"a": E * 100})[:9000], "the tar archive"),
        (zipped({"a": E * 100})[:200], "the zip archive is broken"),
        (lzma.compress(E * 100)[:-30], "the xz data ends in the middle"),
        (bz2.compress(E * 100)[:-30], "the bzip2 data ends in the middle"),
        (b"7z\xbc\xaf\x27\x1c" + E, "is a 7z archive; unpack it first"),
        (gzip.compress(b"PAR1" + E), "is Parquet"),
    ],
)
def test_what_cannot_be_unpacked_is_said_by_name(
    data: bytes, said: str, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "log").write_bytes(data)
    code, _, err = run(tmp_path / "log")
    assert code == 1
    assert err.startswith(f"mx-metrics: {tmp_path}/log: {said}")


def test_a_window_of_zstd_that_is_too_large_is_said_by_name(tmp_path: Path, run: Run) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    (tmp_path / "log.zst").write_bytes(compressor.compress(E) + compressor.flush())
    code, _, err = run(tmp_path / "log.zst")
    assert (code, "--long=31" in err) == (1, True)


# --------------------------------------------------------------------------------------
# Nothing there


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {"0.log": b"x\n"},
            "no segments there (events-<12 hex digits>-<number>.jsonl, plain or compressed), but "
            "1 other file: 0.log; to read other files name them: '{}/*'",
        ),
        (
            {"a.db": b"", "b.db": b""},
            "no segments there (events-<12 hex digits>-<number>.jsonl, plain or compressed), but "
            "2 .db files of the client",
        ),
    ],
)
def test_a_directory_without_segments_says_what_is_there(
    files: dict[str, bytes], said: str, tmp_path: Path, run: Run
) -> None:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    assert run(tmp_path) == (1, b"", f"mx-metrics: {tmp_path}: {said.format(tmp_path)}\n")


def test_lines_none_of_which_is_an_event(tmp_path: Path, run: Run) -> None:
    (tmp_path / "log").write_bytes(b"hello \x1b[2J\n" * 12)
    (tmp_path / "good").write_bytes(E)
    line = f"{tmp_path}/log: 12 lines, none an event; the first is hello \\x1b[2J"
    assert run(tmp_path / "log") == (1, b"", f"mx-metrics: {line}\n")
    code, out, err = run(tmp_path / "log", tmp_path / "good")
    assert (code, err) == (1, f"mx-metrics: {line}\n")
    assert b"mx_p2p_source_attempts_total" in out
    report = examine(CATALOG, (str(tmp_path / "log"),))
    assert (report.faulty, report.absent) == (True, [line])


# --------------------------------------------------------------------------------------
# Single lines


@pytest.mark.parametrize(
    ("data", "kinds"),
    [
        (E + E, "ee"),
        (E[:40] + E, "er"),
        (b"T " + E[:60], "r"),
        (b'{"message":' + json.dumps(E[:60].decode()).encode() + b"}", "r"),
        (b'{"event":"hello","level":"info"}', ""),
        (b'{"event":"x","proc":"a","seq":-1,"timestamp":"","scheme":""}', "r"),
        (b'{"event":"a","event":"b","proc":"a","seq":0}', "r"),
        (E.replace(b"{", b'{"event":"nixl_failed",', 1), "r"),
        (b"{" * 5000, ""),
        (b'{"a":' * 5000 + b"1", ""),
        (E.replace(b'"source_attempted"', b'"of_the_future"'), "e"),
    ],
)
def test_what_a_line_is(data: bytes, kinds: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(data + b"\n")
    found = [
        "r" if isinstance(entry, Rejected) else "e" if isinstance(entry, Event) else "?"
        for _, entries in reader.read(Source(str(tmp_path / "log")), CATALOG.decoder)
        for entry in entries
    ]
    assert "".join(found) == kinds


@pytest.mark.parametrize("wrap", ["an array", "cloudwatch", "otlp", "no newline between"])
def test_an_answer_of_any_size_takes_little_memory(
    wrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, chance = Lines(), random.Random(1)
    lines = [
        log("transfer_finished", policy="p", outcome="o", seconds=chance.random()).strip()
        for _ in range(4_000)
    ]
    (tmp_path / "plain").write_bytes(b"\n".join(lines))
    path = tmp_path / "answer"
    path.write_bytes(ENVELOPES[wrap](lines))
    monkeypatch.setattr(json_text, "MAX_PIECE", 16 * 1024)
    monkeypatch.setattr(reader, "_BLOCK", 4096)
    assert page(path) == page(tmp_path / "plain")
    tracemalloc.start()
    try:
        for _ in reader.read(Source(str(path)), CATALOG.decoder):
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < path.stat().st_size / 2
