"""Templates to pages. Each value is escaped and made visible on its way, by the engine itself.

A page is one document: its style sheet stands in it, and a Content-Security-Policy names that by
its hash, so that nothing else on the page is run, fetched or styled.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from mx_log.words import counted

from . import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jinja2 import Environment


def page(template: str, between: Callable[[], object] = lambda: None, **values: Any) -> bytes:
    """The page that a template makes of values.

    :param between: called again and again while it is made.
    """
    made = []
    for piece in pieces(template, **values):
        made.append(piece)
        between()
    return "".join(made).encode("utf-8", "replace")


def pieces(template: str, **values: Any) -> Iterator[str]:
    """The same, piece by piece."""
    return _environment().get_template(template).generate(values)


@cache
def style() -> str:
    """The style sheet of all pages."""
    return (files(__package__) / "templates" / "style.css").read_text(encoding="utf-8")


def header_policy() -> str:
    """The same as `policy`, with what only a header may say."""
    return f"{policy()}; frame-ancestors 'none'"


@cache
def policy() -> str:
    """The Content-Security-Policy of all pages."""
    digest = base64.b64encode(hashlib.sha256(style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


@cache
def _environment() -> Environment:
    # Imported when a page is first asked for: it takes as long as all else that `serve` imports.
    import jinja2
    from markupsafe import Markup

    def finalize(value: Any) -> Any:
        return value if isinstance(value, Markup) else shown.visible(value)

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("mx_exporter.pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "seconds": shown.seconds,
        "size": shown.size,
        "clock": shown.clock,
        "percent": shown.percent,
        "counted": counted,
    }
    environment.globals |= {"style": lambda: Markup(style()), "policy": policy}
    return environment


def macro(template: str, name: str) -> Any:
    """A macro of a template, to make a part of a page with."""
    return getattr(_environment().get_template(template).module, name)
