"""What `top` shows, and what its keys do. It knows no terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from mx_log.words import counted

from ..loads.parts import KINDS
from ..pages import shown

#: How kinds of parts look, beside their letters.
_STYLES = {
    "artifact_install": "magenta",
    "model_init": "blue",
    "peer": "green",
    "failed": "red",
    "alone": "yellow",
    "open": "bold red",
}

#: What loads are sorted by, and whether the largest comes first.
SORTS: Mapping[str, tuple[Callable[[dict[str, Any]], Any], bool]] = {
    "start": (lambda load: load["began"], True),
    "seconds": (lambda load: load["elapsed"], True),
    "pod": (lambda load: (place(load), -1 if load["rank"] is None else load["rank"]), False),
    "result": (lambda load: load["outcome"] == "success", False),
}

#: Fewest columns of a bar, most of a pod, and those of all but pod, bar and words.
_BAR, _POD, _OTHERS = 12, 24, 37


def place(load: Mapping[str, Any]) -> str:
    """The pod, else the process."""
    return str(load["pod"] or load["proc"])


class View:
    """The state of the screen.

    :param name: where the loads come from.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._listing: dict[str, Any] = {"running": [], "loads": []}
        self._trouble = "reading …"
        self.sort = "start"
        self._chosen = 0
        #: The load that is opened, and how far it was scrolled.
        self._opened: dict[str, Any] | None = None
        self._scrolled = 0
        self.done = False

    def show(self, listing: dict[str, Any]) -> None:
        """Take what there is now."""
        self._listing, self._trouble = listing, ""

    @property
    def opened(self) -> str | None:
        """The id of the load that is opened."""
        return None if self._opened is None else str(self._opened["load_id"])

    def show_load(self, found: dict[str, Any]) -> None:
        """Take a load with its steps, if it is the one that is opened."""
        for load in (*found["running"], *found["loads"]):
            if load["load_id"] == self.opened:
                self._opened = load
                return

    def fail(self, trouble: str) -> None:
        """There is nothing new to be had; what was there stays."""
        self._trouble = trouble

    # ----------------------------------------------------------------------------------
    # Keys

    def press(self, key: str) -> None:
        """A key: ``up``, ``down``, ``page-up``, ``page-down``, ``enter``, ``back``, or a letter."""
        moves = {"up": -1, "k": -1, "down": 1, "j": 1, "page-up": -10, "page-down": 10}
        if key == "q":
            self.done = True
        elif key in moves and self._opened is not None:
            self._scrolled = max(0, self._scrolled + moves[key])
        elif key in moves:
            last = max(0, len(self._ordered()) - 1)
            self._chosen = min(last, max(0, self._chosen + moves[key]))
        elif key == "s":
            names = list(SORTS)
            self.sort = names[(names.index(self.sort) + 1) % len(names)]
            self._chosen = 0
        elif key == "back":
            self._opened = None
        elif key == "enter" and self._opened is None:
            ordered = self._ordered()
            if ordered and ordered[self._chosen]["load_id"] is not None:
                self._opened = ordered[self._chosen]
                self._scrolled = 0

    # ----------------------------------------------------------------------------------
    # Lines

    def lines(self, width: int, height: int) -> list[Text]:
        """The screen: as many lines as it has, none longer than it is wide."""
        if self._opened is None:
            foot = f"q quit  s sort: {self.sort}  ↑↓ choose  Enter open"
            made = self._table(width, height - 2)
        else:
            foot = "q quit  ↑↓ scroll  Esc back"
            made = self._story(self._opened, height - 2)
        made = made[: height - 2]
        made += [Text("")] * (height - 2 - len(made))
        status = Text(self._trouble, style="bold red") if self._trouble else Text(foot, style="dim")
        lines = [self._head(), *made, status]
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        return lines

    def _ordered(self) -> list[dict[str, Any]]:
        """Loads in progress, the oldest first, then the others as they are sorted."""
        key, reverse = SORTS[self.sort]
        return [
            *self._listing["running"],
            *sorted(self._listing["loads"], key=key, reverse=reverse),
        ]

    def _head(self) -> Text:
        running, over = self._listing["running"], self._listing["loads"]
        bad = sum(load["outcome"] != "success" for load in over)
        stuck = sum(load["progress"]["stuck"] for load in running)
        head = Text(f"{len(running)} in progress", style="bold")
        if stuck:
            head.append(f", {stuck} stuck", style="bold red")
        head.append(f"  {counted(len(over), 'load')}", style="not bold")
        if bad:
            head.append(f", {bad} failed or killed", style="not bold red")
        head.append(f"  {shown.visible(self._name, 200)}", style="not bold dim")
        return head

    def _table(self, width: int, height: int) -> list[Text]:
        ordered = self._ordered()
        self._chosen = min(self._chosen, max(0, len(ordered) - 1))
        first = max(0, self._chosen - (height - 2))
        rows = ordered[first : first + height - 1]
        pods = max([cell_len(shown.visible(place(load), _POD)) for load in rows], default=3)
        pods = min(max(3, pods), _POD, max(8, width // 6))
        # The words have more room than the bar.
        bar = max(_BAR, (width - pods - _OTHERS) * 2 // 5)
        scale = max([load["elapsed"] for load in ordered], default=0.0)
        head = f"{'POD':{pods}} RANK {'LOAD':12} {'SECONDS':>7} {'RESULT':7} "
        title = Text(head + f"{'0':<{bar - 9}}{_scale(scale):>9} WHY", style="bold")
        lines = [title]
        for number, load in enumerate(rows, first):
            lines.append(self._row(load, pods, bar, scale, chosen=number == self._chosen))
        return lines

    def _row(
        self, load: dict[str, Any], pods: int, bar: int, scale: float, *, chosen: bool
    ) -> Text:
        rank = shown.NOTHING if load["rank"] is None else str(load["rank"])
        line = _cell(place(load), pods)
        line.append(f" {rank[:4]:>4} ")
        line.append_text(_cell(load["load_id"], 12))
        line.append(f" {_duration(load['elapsed']):>7} ")
        outcome = load["outcome"]
        if outcome == "running":
            stuck = load["progress"]["stuck"]
            line.append(f"{'stuck' if stuck else 'running':7} ", style="bold red" if stuck else "")
        else:
            said = "" if outcome == "success" else outcome
            line.append(f"{said:7} ", style="red")
        line.append_text(_bar(load["parts"], bar, scale))
        line.append(f" {shown.visible(load['why'], 300)}")
        if chosen:
            line.stylize("reverse")
        return line

    def _story(self, load: dict[str, Any], height: int) -> list[Text]:
        lines = [
            Text(f"Load {shown.visible(load['load_id'], 60)}: {load['outcome']} after "
                 f"{shown.seconds(load['elapsed'])} s", style="bold"),
            Text(f"{shown.visible(place(load), 60)} rank {load['rank']} · "
                 f"{shown.visible(load['model'], 60)} on {shown.visible(load['engine'], 30)}"),
            Text(shown.visible(load["why"])),
            Text(""),
            Text("    AT   TOOK", style="bold"),
        ]  # fmt: skip
        steps = load.get("steps", [])
        self._scrolled = min(self._scrolled, max(0, len(steps) + len(lines) - height))
        for step in steps[self._scrolled :]:
            took = "" if step["seconds"] is None else shown.seconds(step["seconds"])
            style = {"bad": "red", "open": "bold red", "alone": "yellow", "good": "green"}
            lines.append(
                Text(
                    f"{step['at']:6.1f} {took:>6}  {'  ' * step['depth']}"
                    f"{shown.visible(step['text'], 300)}",
                    style=style.get(step["kind"], ""),
                )
            )
        return lines


def _duration(seconds: float) -> str:
    """Seconds in seven columns; hours where they would need more."""
    return shown.seconds(seconds) if seconds < 100_000 else f"{seconds / 3600:.0f} h"


def _scale(seconds: float) -> str:
    shown_as = _duration(seconds)
    return shown_as if shown_as.endswith("h") else f"{shown_as} s"


def _cell(value: Any, width: int) -> Text:
    """A value in so many columns, which are not as many as characters."""
    text = Text(shown.visible(value, width * 2))
    text.truncate(width, overflow="ellipsis", pad=True)
    return text


def _bar(parts: Sequence[Mapping[str, Any]], width: int, scale: float) -> Text:
    """A bar of letters."""
    bar = Text()
    at = 0
    for part in parts:
        end = round(width * (part["at"] + part["seconds"]) / scale) if scale > 0 else 0
        kind = KINDS.get(part["kind"])
        letter = kind.letter if kind else "?"
        bar.append(letter * max(0, min(width, end) - at), style=_STYLES.get(part["kind"], ""))
        at = max(at, min(width, end))
    bar.append(" " * (width - at))
    return bar
