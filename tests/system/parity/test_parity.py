"""The published client and this project count the same.

Each release is installed from the package index into a folder of its own. The same randomly
drawn recorder calls run in real processes, once through the client in its multiprocess mode and
once through ours; every ``mx_`` sample of the client must be in a replay of the log, equal.

Left out are the values that the two treat differently on purpose: infinities, NaN, booleans,
negative amounts of counters, and ints beyond 64 bits.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from mx_exporter.core.builtin import BY_NAME, FAMILIES
from tests import support
from tests.support import parity

PROCESSES = 4
CALLS = 400

LABELS = ["", "x", "success", "ok", "error", "other", None, 3, 2.5, "é\U0001f600", 'q"\\\n', " a "]
POLICIES = ["random", "rendezvous_hash", "load_aware", "topology_aware", "mine", None]
MODELS = [None, "", " ", "org/model", " trimmed ", "m" * 96, "n" * 97, 0, 7]


def domain(family: str, label: str) -> list[object]:
    """Known values of a label, twice, and odd ones."""
    (found,) = (each for each in BY_NAME[family].labels if each.name == label)
    return [*(found.domain or ()), *(found.domain or ()), *LABELS]


def values(family: str) -> list[float]:
    """Boundaries, their neighbours, and numbers of other sizes."""
    bounds = BY_NAME[family].buckets
    near = [bound * factor for bound in bounds for factor in (1, 1 - 2**-52, 1 + 2**-51)]
    return [*near, *map(int, bounds), 0, -1, -0.0, 0.1, 1e-300, 5e-324, 1e9, 1e300, 7, 2**53 + 1]


#: recorder -> (release that introduced it, where each argument is drawn from)
RECORDERS: dict[str, tuple[str, list[list[object]]]] = {
    "record_selection": ("0.6.0", [POLICIES, ["w1", "w2", "", None, 5]]),
    "record_attempt": ("0.6.0", [POLICIES, domain("mx_p2p_source_attempts_total", "result")]),
    "record_metadata_failure": ("0.6.0", [POLICIES]),
    "record_list_sources": ("0.6.0", [POLICIES, domain("mx_p2p_list_sources_total", "result")]),
    "record_nixl_error": ("0.6.0", [domain("mx_nixl_data_plane_errors_total", "kind")]),
    "record_nixl_receive": ("0.6.0", [domain("mx_nixl_receive_total", "result")]),
    "observe_candidates": (
        "0.6.0",
        [POLICIES, domain("mx_p2p_candidates", "stage"), values("mx_p2p_candidates")],
    ),
    "observe_selection_seconds": ("0.6.0", [POLICIES, values("mx_p2p_source_selection_seconds")]),
    "observe_transfer_seconds": (
        "0.6.0",
        [
            POLICIES,
            domain("mx_p2p_transfer_seconds", "outcome"),
            values("mx_p2p_transfer_seconds"),
        ],
    ),
    "observe_candidate_loads": (
        "0.7.0",
        [[[(w, load) for w, load in pairs] for pairs in (
            [], [("a", 0.5)], [("a", None), ("b", 0.25)], [("b", 1.0), ("a", 0.75)],
            [("", 0), ("c", 3.5)], [(None, 0.125)], [("c", -2), ("c", 1e300)],
        )]],
    ),
    "observe_source_attempt_phase_seconds": (
        "0.7.0",
        [
            POLICIES,
            domain("mx_p2p_source_attempt_phase_seconds", "phase"),
            domain("mx_p2p_source_attempt_phase_seconds", "outcome"),
            values("mx_p2p_source_attempt_phase_seconds"),
        ],
    ),
    "observe_load_seconds": (
        "0.7.0",
        [
            domain("mx_load_seconds", "engine"),
            MODELS,
            domain("mx_load_seconds", "model_role"),
            domain("mx_load_seconds", "outcome"),
            values("mx_load_seconds"),
        ],
    ),
    "observe_load_phase_seconds": (
        "0.7.0",
        [
            domain("mx_load_phase_seconds", "engine"),
            MODELS,
            domain("mx_load_phase_seconds", "phase"),
            values("mx_load_phase_seconds"),
        ],
    ),
    "observe_artifact_install_step_seconds": (
        "0.7.0",
        [
            domain("mx_artifact_install_step_seconds", "artifact"),
            ["primary", "second", None],
            domain("mx_artifact_install_step_seconds", "step"),
            values("mx_artifact_install_step_seconds"),
        ],
    ),
    "record_artifact_install_bytes": (
        "0.7.0",
        [
            domain("mx_artifact_install_bytes_total", "artifact"),
            ["primary", "second", None],
            [0, 1, 734003200, 2**40, 0.5, 1e12],
        ],
    ),
    "time_source_attempt_phase": (
        "0.7.0",
        [POLICIES, domain("mx_p2p_source_attempt_phase_seconds", "phase")],
    ),
    "time_load": (
        "0.7.0",
        [domain("mx_load_seconds", "engine"), MODELS, domain("mx_load_seconds", "model_role")],
    ),
    "time_load_phase": (
        "0.7.0",
        [
            domain("mx_load_phase_seconds", "engine"),
            MODELS,
            domain("mx_load_phase_seconds", "phase"),
        ],
    ),
    "time_artifact_install_step": (
        "0.7.0",
        [
            domain("mx_artifact_install_step_seconds", "artifact"),
            ["primary", "second", None],
            domain("mx_artifact_install_step_seconds", "step"),
        ],
    ),
}  # fmt: skip


def drawn(version: str, rng: random.Random) -> list[tuple[str, list[object], bool]]:
    known = {name: given for name, (since, given) in RECORDERS.items() if since <= version}
    calls = []
    for name in rng.choices(list(known), k=CALLS):
        arguments = [rng.choice(choices) for choices in known[name]]
        calls.append((name, arguments, rng.random() < 0.3))
    return calls


def play(side: str, calls: Path, client: Path, directory: Path, **env: str) -> None:
    subprocess.run(
        [sys.executable, parity.PROGRAMS / "play.py", side, calls],
        check=True,
        env=support.clean_environment(
            PYTHONPATH=str(client),
            MX_METRICS_ENABLED="1",
            MX_METRICS_SCHEME="parity",
            MX_METRICS_DIR=str(directory),
            PROMETHEUS_MULTIPROC_DIR=str(directory),
            **env,
        ),
    )


@pytest.mark.parametrize("with_ids", [False, True], ids=["plain", "source ids"])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_client_and_we_count_the_same(client, seed, with_ids, tmp_path):
    version, folder = client
    rng = random.Random(f"{version} {seed}")
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    option = {"MX_METRICS_SOURCE_ID_LABEL": "1"} if with_ids else {}
    for process in range(PROCESSES):
        calls = tmp_path / f"calls-{process}.json"
        calls.write_text(json.dumps(drawn(version, rng)))
        # One after the other: a gauge shows what was set last.
        play("client", calls, folder, theirs, **option)
        play("ours", calls, folder, ours)
    expected, found = parity.both(theirs, ours, with_ids=with_ids)
    # The draw reached every family that the release has.
    reached = {name for name, _ in expected}
    for family in FAMILIES:
        if family.since <= version:
            assert family.name in reached or f"{family.name}_bucket" in reached
    parity.check(expected, found, parity.magnitudes(ours))
