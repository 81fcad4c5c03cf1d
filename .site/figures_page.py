"""The page of the site with all figures that benchmarks recorded."""

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import figures


def figures_page(config: Any) -> File:
    """Return the page `figures.md`, which is in no folder."""
    return File.generated(config, "figures.md", content=figures.all_of())
