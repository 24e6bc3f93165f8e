"""The command line as a user meets it: real processes, their output and exit codes."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import termios
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from mx_exporter.cli.extras import EXTRAS, PACKAGES
from mx_exporter.cli.main import cli
from mx_exporter.config import OPTIONS
from mx_log.schema import VERSION
from tests import support
from tests.support import Lines

BIN = Path(sys.executable).parent / "mx-metrics"


def run(
    *arguments: str, command: tuple[str, ...] = ("-m", "mx_exporter"), **env: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *command, *arguments],
        env=support.clean_environment(**env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def fails(code: int, *arguments: str, **env: str) -> str:
    """Run, and return the one line that it must have said."""
    done = run(*arguments, **env)
    assert (done.returncode, done.stdout) == (code, ""), done
    assert re.fullmatch(r"mx-metrics: [^\n]+\n", done.stderr), done.stderr
    return done.stderr


def test_version_of_module_and_script() -> None:
    said = f"mx-metrics {VERSION}\n"
    assert run("--version").stdout == said
    script = subprocess.run([BIN, "--version"], capture_output=True, text=True, check=True)
    assert script.stdout == said


def test_help_names_the_commands_and_every_flag() -> None:
    text = run("--help").stdout
    assert all(command in text for command in ("serve", "run", "push", "replay", "check"))
    text = run("run", "--help").stdout
    flags = [row.flag for row in OPTIONS.values() if row.flag]
    assert len(flags) == 15
    assert all(flag in text for flag in flags)
    assert run("replay", "-h").returncode == run("check", "-h").returncode == 0


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_help_loads_no_library_but_click(argument: str) -> None:
    code = (
        "import sys; from mx_exporter.__main__ import main; sys.argv[1:] = [sys.argv[1]]; "
        "assert main() == 0; "
        "heavy = {'prometheus_client', 'watchdog', 'h11', 'structlog', 'orjson', 'zstandard'};"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    done = run(argument, command=("-c", code))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Missing command"),
        (("sevre",), "No such command 'sevre'"),
        (("serve", "--prot", "1"), "No such option"),
        (("serve", "extra"), "unexpected extra argument"),
        (("serve", "--listen"), "requires an argument"),
        (("serve", "--listen", "nowhere"), "--listen: bad value 'nowhere'"),
        (("serve", "--dir", ""), "--dir: bad value ''"),
        (("serve", "--max-series", "0"), "--max-series: bad value '0'"),
        (("replay", "--jobs", "0"), "--jobs"),
        (("replay", "/no/such/log"), "/no/such/log"),
        (("check", "/no/such/log"), "/no/such/log"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(arguments: tuple[str, ...], said: str) -> None:
    assert said in fails(2, *arguments)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("MX_METRICS_PORT", "http"),
        ("MX_METRICS_PORT", "70000"),
        ("MX_METRICS_MAX_SERIES", "some"),
        ("MX_METRICS_SOURCE_ID_LABEL", "perhaps"),
        ("MX_METRICS_RETAIN_BYTES", "1G"),
    ],
)
def test_a_bad_variable_is_wrong_use_and_named(variable: str, value: str) -> None:
    assert f"{variable}: bad value {value!r}" in fails(2, "serve", **{variable: value})


def test_a_bad_port_is_no_matter_to_a_replay(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(Lines().header())
    assert run("replay", str(tmp_path / "log"), MX_METRICS_PORT="http").returncode == 0


def test_a_port_in_use_and_a_port_that_may_not_be_bound(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        address = "{}:{}".format(*stranger.getsockname())
        said = fails(1, "serve", "--dir", str(tmp_path), "--listen", address)
        assert f"cannot listen on {address}: the port is in use" in said
        said = fails(1, "serve", "--dir", str(tmp_path), "--listen", "192.0.2.1:9402")
        assert "this machine has no such address" in said
        said = fails(1, "serve", "--dir", str(tmp_path), "--listen", "no-such-host.invalid:9402")
        assert "no-such-host.invalid:9402: " in said
        said = fails(1, "serve", "--dir", str(tmp_path), "--listen", "a..b:9402")
        assert "cannot listen on a..b:9402: " in said


def test_a_port_in_use_on_one_interface_is_taken_for_all(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = str(stranger.getsockname()[1])
        said = fails(1, "serve", "--dir", str(tmp_path), MX_METRICS_PORT=port)
        assert f"cannot listen on *:{port}: the port is in use" in said


def test_a_port_for_root_alone(tmp_path: Path) -> None:
    limit = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    if limit.exists() and int(limit.read_text()) < 2:
        support.leave_out("this machine lets everybody bind every port")
    tmp_path.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", DROPPED, str(tmp_path)],
        env=support.clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "this user may not bind that port" in done.stderr


#: Imports everything as root (the interpreter may lie where others cannot read), then becomes
#: nobody in particular.
DROPPED = """
import encodings.idna, os, sys
from mx_exporter.cli import extras, main as cli
from mx_exporter.service import serve
for package in extras.PACKAGES:
    __import__(package)
if os.geteuid() == 0:
    os.setgid(65534); os.setuid(65534)
sys.exit(cli.main(["serve", "--dir", sys.argv[1], "--listen", "127.0.0.1:1"]))
"""


def test_a_missing_extra_says_how_to_install_it() -> None:
    code = (
        "import sys; sys.modules['click'] = None; "
        "from mx_exporter.__main__ import main; sys.exit(main())"
    )
    done = run(command=("-c", code))
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'mx-metrics[exporter]'" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_packages_that_are_looked_for_are_those_of_the_extra(extra: str) -> None:
    text = (support.ROOT / "pyproject.toml").read_text()
    found = re.search(rf"^{extra} = \[(.*?)\]", text, re.MULTILINE | re.DOTALL)
    assert found
    given = map(Requirement, re.findall(r'"([^"]+)"', found[1]))
    here = [each.name for each in given if each.marker is None or each.marker.evaluate()]
    assert sorted(here) == sorted(EXTRAS[extra].values())
    assert all(find_spec(module) for module in EXTRAS[extra])


@pytest.mark.parametrize(
    ("missing", "extra", "command"),
    [("rich", "top", ["top"]), ("distributed", "dask", ["replay", "--engine", "dask", "."])],
)
def test_what_needs_an_extra_of_its_own_says_how_to_install_it(
    missing: str, extra: str, command: list[str]
) -> None:
    code = (
        "import sys; sys.modules[sys.argv.pop(1)] = None; "
        "from mx_exporter.__main__ import main; sys.exit(main())"
    )
    done = run(missing, *command, command=("-c", code))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"the package {missing} is missing" in done.stderr
    assert f"pip install 'mx-metrics[exporter,{extra}]'" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("missing", sorted(PACKAGES.keys() - {"click"}))
def test_an_extra_that_is_there_in_part(missing: str, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules[sys.argv.pop(1)] = None; "
        "from mx_exporter.__main__ import main; sys.exit(main())"
    )
    log = str(tmp_path)
    commands = [
        ("serve", "--dir", log),
        ("run", "--dir", log, "--", "true"),
        ("push", log, "--pushgateway", "x:1"),
        ("replay", log),
        ("merge", log),
        ("check", log),
        ("loads", log),
        ("explain", "a", log),
        ("backfill", log, "-o", "-"),
        ("catalog",),
        ("report", log, "-o", f"{log}/x"),
        ("events", log),
        ("top", log),
        ("diff", log, log),
        ("trace", log),
        ("reset", "--dir", log),
        ("demo", "--pods", "1", "--out", log),
    ]
    assert {command for command, *_ in commands} == set(cli.commands)
    for command in commands if missing == "msgspec" else commands[:1]:
        done = run(missing, *command, command=("-c", code))
        assert (done.returncode, done.stdout) == (2, ""), (command, done.stderr)
        assert (
            f"the package {PACKAGES[missing]} is missing; install the exporter with" in done.stderr
        )
        assert done.stderr.count("\n") == 1


def test_a_missing_module_of_ours_is_not_taken_for_the_extra() -> None:
    code = (
        "import sys; sys.modules['mx_exporter.cli.main'] = None; "
        "from mx_exporter.__main__ import main; sys.exit(main())"
    )
    done = run(command=("-c", code))
    assert done.returncode == 1
    assert "pip install" not in done.stderr


def test_a_broken_pipe_is_quiet(tmp_path: Path) -> None:
    support.Lines().segment(tmp_path, 0, [("nixl_failed", {"kind": "timeout"})])
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "mx_exporter", "replay", str(tmp_path)],
            env=support.clean_environment(),
            stdout=write,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


def into(stdout: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run in a shell, with a redirection of standard output."""
    return subprocess.run(
        ["sh", "-c", f'"$@" {stdout}', "sh", sys.executable, "-m", "mx_exporter", *arguments],
        env=support.clean_environment(**env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["replay", "check", "--help", "--version"])
def test_a_full_disk_behind_standard_output(command: str, unbuffered: str, tmp_path: Path) -> None:
    for number in range(300):  # more than a buffer holds
        log = support.Lines(f"{number:012x}", scheme=f"s{number}")
        log.segment(tmp_path, 0, [("nixl_failed", {"kind": "timeout"})])
    logs = [] if command.startswith("-") else [str(tmp_path)]
    done = into(">/dev/full", command, *logs, PYTHONUNBUFFERED=unbuffered)
    said = "mx-metrics: standard output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.parametrize("command", [("replay",), ("check",), ("reset", "--dir")])
def test_a_closed_standard_output(command: tuple[str, ...], tmp_path: Path) -> None:
    path = support.Lines().segment(tmp_path, 0, [("nixl_failed", {"kind": "timeout"})])
    done = into(">&-", *command, str(tmp_path))
    said = "mx-metrics: standard output is closed; nothing can be printed\n"
    assert (done.returncode, done.stderr) == (1, said)
    assert len(list(tmp_path.iterdir())) == 1, path


def test_help_into_a_closed_standard_output() -> None:
    assert "Traceback" not in into(">&-", "--help").stderr


def test_a_closed_standard_error_sends_nothing_astray(tmp_path: Path) -> None:
    segment = support.Lines().segment(tmp_path, 0, [("nixl_failed", {"kind": "timeout"})])
    right = into("", "replay", str(tmp_path))
    with open(segment, "ab") as file:
        file.write(b"junk\n")
    done = into("2>&-", "replay", str(tmp_path))
    assert (done.returncode, done.stdout) == (0, right.stdout)


def test_ctrl_c_ends_a_replay_with_130(spawn: support.Spawner) -> None:
    process = spawn.python("-m", "mx_exporter", "replay", "-", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    pipe = process.stdin.fileno()
    support.wait_until(lambda: fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4) == b"\0" * 4)
    process.send_signal(signal.SIGINT)
    assert process.result() == 130
    assert process.output == ""
    assert "Traceback" not in process.error_output
