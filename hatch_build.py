"""The README as a package index shows it: there its links have no repository around them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


def absolute(text: str, base: str) -> str:
    """Links to files of the repository, and to headings of the README, as addresses."""

    def whole(link: re.Match[str]) -> str:
        target = link[1]
        return f"]({base}{'README.md' if target.startswith('#') else ''}{target})"

    return re.sub(r"\]\((?!\w+:)([^)\s]+)\)", whole, text)


class Readme(MetadataHookInterface):
    """Makes the field ``readme``, which pyproject.toml says is dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        base = f"{metadata['urls']['Source']}/blob/v{metadata['version']}/"
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, base)}
