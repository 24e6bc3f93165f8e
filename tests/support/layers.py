"""The floors of the house, as `docs/architecture.md` draws them, and the imports that break them.

The page is the rule: its tables list floors from the top down, and the rooms on each. A module may
import what lies on a lower floor of the same table, and what lies in its own room. Two rooms on one
floor never import each other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: Packages whose imports are looked at, by the folder that they lie in.
PACKAGES = {
    "mx_log": "emitter",
    "mx_activate": "emitter",
    "mx_emitter": "emitter",
    "mx_exporter": "exporter",
    "mx_demo": "exporter",
}

#: Rooms that know no file, no clock and no thread.
PURE = ("mx_exporter.core", "mx_exporter.loads")

#: What they do without.
NOT_IN_CORE = frozenset(
    {"asyncio", "io", "logging", "os", "prometheus_client", "socket", "threading", "time"}
)


class Import(NamedTuple):
    """An import as it stands in a module, at module level or within a function."""

    module: str
    line: int
    name: str


def floors(page: str) -> list[dict[str, int]]:
    """The tables of the page: for each, room -> floor, from 1 at the bottom."""
    tables: list[dict[str, int]] = []
    for line in page.splitlines():
        if re.fullmatch(r"\| floor \| rooms \|.*", line):
            tables.append({})
        elif tables and (row := re.match(r"\| (\d+) \| ([^|]+) \|", line)):
            tables[-1].update(dict.fromkeys(re.findall(r"`([\w.]+)`", row[2]), int(row[1])))
    return tables


def modules(root: Path) -> Iterator[tuple[str, Path]]:
    """Each module of the product below ``root``: its dotted name and its file."""
    for package, folder in PACKAGES.items():
        for path in sorted((root / folder / package).rglob("*.py")):
            parts = path.relative_to(root / folder).with_suffix("").parts
            yield ".".join(parts).removesuffix(".__init__"), path


def imports(module: str, path: Path) -> Iterator[Import]:
    """Everything that a module imports, wherever in it, relative names resolved."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = parts[: len(parts) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield Import(module, node.lineno, f"{start}.{alias.name}")


def room_of(name: str, rooms: dict[str, int]) -> str | None:
    """The room that a dotted name lies in: the longest one that it begins with."""
    found = [room for room in rooms if name == room or name.startswith(f"{room}.")]
    return max(found, key=len, default=None)


def unplaced(root: Path, page: str) -> list[str]:
    """Modules that no table has a room for."""
    rooms = {room: 0 for table in floors(page) for room in table}
    # A package's own file only names what it hands on.
    there = {name for name, path in modules(root) if path.name != "__init__.py"}
    return sorted(name for name in there if room_of(name, rooms) is None)


def violations(root: Path, page: str) -> list[str]:
    """Imports that go up, across, or to a package that is none of the importer's business."""
    tables, found = floors(page), []
    for module, path in modules(root):
        for each in imports(module, path):
            if each.name.partition(".")[0] not in PACKAGES:
                continue
            if not any(_allowed(each, rooms) for rooms in tables):
                found.append(f"{path.relative_to(root)} line {each.line} imports {each.name}")
    return found


def _allowed(each: Import, rooms: dict[str, int]) -> bool:
    package, _, inner = each.module.partition(".")
    if not inner:  # the package's own file: it hands on what lies within
        return each.name.partition(".")[0] in (package, "mx_log")
    here, there = room_of(each.module, rooms), room_of(each.name, rooms)
    if here is None or there is None:
        return False
    return here == there or rooms[here] > rooms[there]


def impurities(root: Path) -> list[str]:
    """Imports of the rooms that are pure, which such a one does without."""
    found = []
    for module, path in modules(root):
        if module.startswith(PURE):
            for each in imports(module, path):
                if each.name.partition(".")[0] in NOT_IN_CORE:
                    found.append(f"{path.relative_to(root)} line {each.line} imports {each.name}")
    return found
