"""The hook of a build backend that `pip download` calls, from PKG-INFO alone."""

from __future__ import annotations

import sys
from email.parser import Parser
from pathlib import Path
from typing import Any

__legacy__ = sys.modules[__name__]  # the backend of a package without pyproject.toml


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any = None) -> str:
    """Copies PKG-INFO of the working directory to NAME-VERSION.dist-info/METADATA; returns the folder's name."""
    text = Path("PKG-INFO").read_text(encoding="utf-8")
    fields = Parser().parsestr(text, headersonly=True)
    name = f"{fields['Name'].replace('-', '_')}-{fields['Version']}.dist-info"
    folder = Path(metadata_directory, name)
    folder.mkdir()
    folder.joinpath("METADATA").write_text(text, encoding="utf-8")
    return name
