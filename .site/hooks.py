"""What the site has of its own instead of from elsewhere, so that it opens without a network."""

import re
from typing import Any

from figures_page import figures_page

SHIM = re.compile(r'src="https://unpkg\.com/iframe-worker/shim"')
"""What lets a page that was opened as a file search; Material loads it from elsewhere."""
LOCAL = "assets/iframe-worker-shim.js"


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages that are generated."""
    files.append(figures_page(config))
    return files


def on_post_page(output: str, *, page: Any, config: Any) -> str:  # noqa: ARG001
    """Take the local one; pages lie beside each other, so it is at the same place for all."""
    return SHIM.sub(f'src="{LOCAL}"', output)


def on_post_template(output: str, *, template_name: str, config: Any) -> str:  # noqa: ARG001
    """The same in the page for what is not there."""
    return SHIM.sub(f'src="{LOCAL}"', output)
