"""`mx-metrics replay --save-state` and `mx-metrics merge`: a fleet in two steps by hand."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from mx_exporter.core.snapshot_seal import seal, unseal
from mx_exporter.offline import merge_states
from tests.support import Lines, load_logs
from tests.support.commands import Run
from tests.support.load_logs import ranks


def page(mx_metrics: Run, *arguments: Path | str) -> bytes:
    code, out, err = mx_metrics(*arguments)
    assert (code, err) == (0, ""), err
    return out


def save(mx_metrics: Run, state: Path, *arguments: Path | str) -> None:
    """Make a state; a part of a log may lack numbers of a process, which is said."""
    code, _, err = mx_metrics(*arguments, "--save-state", state)
    assert code == 0
    assert not err or " lost; `mx-metrics check` " in err


@pytest.mark.parametrize("seed", range(3))
def test_any_split_of_files_and_any_tree_of_merges_print_what_a_replay_prints(
    seed: int, tmp_path: Path, mx_metrics: Run
) -> None:
    """Also where the segments of a process, and the lines of a load, are in several states."""
    rng = random.Random(seed)
    paths = ranks(tmp_path / "log", processes=4, segments=3, end=False)
    for path in paths[:3]:  # a load that goes on in the next segment, and doubles of its lines
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:-4]))
        (tmp_path / f"rest-{path.name}").write_bytes(b"".join([*lines[-4:], lines[-1]]))
    files = [*paths, *tmp_path.glob("rest-*")]
    whole = page(mx_metrics, "replay", *files)
    assert b"mx_loads_abandoned_total{" in whole
    rng.shuffle(files)
    states: list[Path] = []
    while files:
        some = [files.pop() for _ in range(min(len(files), rng.randint(1, 4)))]
        state = tmp_path / f"{len(states)}.state"
        save(mx_metrics, state, "replay", *some)
        states.append(state)
    rng.shuffle(states)
    assert page(mx_metrics, "merge", *states) == whole
    number = 0
    while len(states) > 1:
        some = [states.pop(rng.randrange(len(states))) for _ in range(min(len(states), 2))]
        number += 1
        states.append(tmp_path / f"tree-{number}.state")
        save(mx_metrics, states[-1], "merge", *some)
    assert page(mx_metrics, "merge", states[0]) == whole
    every = [*tmp_path.glob("*.state")]
    assert page(mx_metrics, "merge", *every) == whole, "what another state holds counts once"


def test_all_ways_to_print_are_those_of_a_replay(tmp_path: Path, mx_metrics: Run) -> None:
    log, state = tmp_path / "log", tmp_path / "state"
    ranks(log)
    options = ["--buckets", "mx_load_seconds=1,2", "--since", "2000-01-01"]
    page(mx_metrics, "replay", log, *options, "--save-state", state)
    (tmp_path / "state.gz").write_bytes(gzip.compress(state.read_bytes()))
    for form in ("--openmetrics", "--json"):
        right = page(mx_metrics, "replay", log, form, *options)
        given = (form, *options[:2])
        assert page(mx_metrics, "merge", state, *given) == right
        assert page(mx_metrics, "merge", tmp_path / "state.gz", *given) == right
        out = tmp_path / "out"
        assert page(mx_metrics, "merge", state, *given, "-o", out) == b""
        assert out.read_bytes() == right


def test_many_states_in_several_processes(
    tmp_path: Path, mx_metrics: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks(tmp_path / "log", processes=5, segments=1)
    for path in (tmp_path / "log").iterdir():
        page(mx_metrics, "replay", path, "--save-state", tmp_path / f"{path.name}.state")
    monkeypatch.setattr(merge_states, "_GROUP", 2)
    used = []
    real = merge_states.spread
    monkeypatch.setattr(merge_states, "spread", lambda *given: used.append(1) or real(*given))
    whole = page(mx_metrics, "replay", tmp_path / "log")
    assert page(mx_metrics, "merge", f"{tmp_path}/*.state", "--jobs", "2") == whole
    assert used


def test_states_that_share_some_events_are_named(tmp_path: Path, mx_metrics: Run) -> None:
    first, second, third = ranks(tmp_path / "log", processes=1, segments=3)
    for name, files in (("a", (first, second)), ("b", (second, third))):
        save(mx_metrics, tmp_path / name, "replay", *files)
    code, out, err = mx_metrics("merge", tmp_path / "a", tmp_path / "b")
    assert (code, out) == (1, b"")
    assert f"{tmp_path}/a and {tmp_path}/b hold some of the same events of process 0000" in (
        err.replace(f"{tmp_path}/b and {tmp_path}/a", f"{tmp_path}/a and {tmp_path}/b")
    )
    page(mx_metrics, "replay", first, second, third, "--save-state", tmp_path / "c")
    three = [tmp_path / name for name in "abc"]
    assert page(mx_metrics, "merge", *three) == page(mx_metrics, "replay", tmp_path / "log")


def test_what_is_no_state_is_named_and_nothing_is_written(tmp_path: Path, mx_metrics: Run) -> None:
    (segment,) = ranks(tmp_path / "log", processes=1, segments=1)
    state, bad, out = (tmp_path / name for name in ("state", "bad", "out"))
    page(mx_metrics, "replay", segment, "--save-state", state)
    data = state.read_bytes()
    _, inner = unseal(data)
    cases = {
        segment.read_bytes(): "no state that --save-state wrote",
        b"": "no state that --save-state wrote",
        data[:-9]: "is damaged: it has",
        data.replace(b"success", b"failure"): "is damaged: its checksum",
        seal(b'{"segments":{}}'): "no state that --save-state wrote",
        seal(inner[:-1].replace(b'"state":1', b'"state":2')): "of format 2, of a newer release",
        seal(inner[:-1].replace(b'"since":""', b'"since":5')): "is damaged: Expected `str`",
    }
    for content, why in cases.items():
        bad.write_bytes(content)
        code, printed, err = mx_metrics("merge", state, bad, "-o", out)
        assert (code, printed) == (1, b"")
        assert err.startswith(f"mx-metrics: {bad}: ")
        assert why in err, err
        assert not out.exists()


@pytest.mark.parametrize(
    ("made", "merged", "code", "said"),
    [
        (["--buckets", "mx_load_seconds=1"], [], 1, "b: was derived with another table"),
        ([], ["--buckets", "mx_load_seconds=1"], 1, "a: was derived with another table"),
        (["--since", "2020-01-01"], [], 1, "make all of them with the same --since"),
        (["--group-by", "pod"], None, 2, "--save-state and --group-by exclude each other"),
        (["--max-series", "5"], None, 2, "--save-state and --max-series exclude each other"),
        (["--pod", "x"], None, 2, "a state that is to be merged is of all loads"),
    ],
)
def test_what_does_not_go_together_is_said(
    made: list[str],
    merged: list[str] | None,
    code: int,
    said: str,
    tmp_path: Path,
    mx_metrics: Run,
) -> None:
    for name, options in (("a", []), ("b", made)):
        log = Lines(name * 12)
        path = load_logs.segment(log, tmp_path, 0, [])
        done = mx_metrics("replay", path, *options, "--save-state", tmp_path / name)
        assert done[0] == (0 if merged is not None or name == "a" else code)
    if merged is not None:
        done = mx_metrics("merge", tmp_path / "a", tmp_path / "b", *merged)
    assert done[0] == code
    assert done[1] == b""
    assert said in done[2]
    assert (tmp_path / "b").exists() == (merged is not None)


def test_logs_that_could_not_be_read_are_told_of_by_the_merge(
    tmp_path: Path, mx_metrics: Run
) -> None:
    good, bad = ranks(tmp_path / "log", processes=2, segments=1)
    packed = tmp_path / f"{bad.name}.gz"
    packed.write_bytes(gzip.compress(bad.read_bytes())[:-20])
    page(mx_metrics, "replay", good, "--save-state", tmp_path / "a")
    assert mx_metrics("replay", packed, "--save-state", tmp_path / "b")[0] == 1
    code, out, err = mx_metrics(
        "merge", tmp_path / "a", tmp_path / "b", "--save-state", tmp_path / "c"
    )
    assert (code, bool(out)) == (1, True)
    assert f"{tmp_path}/b: some of its logs could not be read to their end" in err
    code, again, err = mx_metrics("merge", tmp_path / "c")
    assert (code, again) == (1, out)
    assert f"{tmp_path}/c: some of its logs could not be read to their end" in err
