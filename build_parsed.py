"""Build hook: put what the YAML files of the databases say beside them in the wheel, see `rooflinellm/_parsed.py`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ParsedDatabases(BuildHookInterface):
    """Adds one file to a wheel; an editable installation reads the YAML."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        try:
            from rooflinellm import _parsed, _resources, _yaml
        finally:
            sys.path.remove(self.root)
        included = (Path(file.path) for file in self.build_config.builder.recurse_included_files())
        texts = [_yaml.read_text(file) for file in sorted(included) if file.suffix == ".yaml"]
        self._folder = tempfile.TemporaryDirectory()
        made = Path(self._folder.name, _resources.PARSED)
        made.write_bytes(_parsed.written((text, _yaml.parse(text)) for text in texts))
        build_data["force_include"][str(made)] = f"rooflinellm/_data/{_resources.PARSED}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._folder.cleanup()
