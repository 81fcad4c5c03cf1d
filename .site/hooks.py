"""Adds the generated pages to the site, and lets it open without a network."""

import re
from typing import Any

from figures_page import figures_page
from mkdocs.structure.files import File

from remuda.ui.cli.reference import PAGES

SHIM = re.compile(r'src="https://unpkg\.com/iframe-worker/shim"')
"""What lets a page that was opened as a file search; Material loads it from elsewhere."""
LOCAL = "assets/iframe-worker-shim.js"
BOOSTS = {
    "configuration.md": 0.5,
    "commands.md": 0.2,
    "glossary.md": 0.1,
    "metrics.md": 0.1,
    "python.md": 0.02,
}
"""Factors of ranks in a search: these pages name everything, other pages explain it."""
WORD = re.compile(r"<code>(?=[^\s<]{1,40}</code>)")
"""Code of one word, such as a key or a flag; a longer one does not fit on the line of a phone."""


def on_files(files: Any, *, config: Any) -> Any:
    """Add the reference, which is generated from the declarations of keys, options and columns."""
    for name, page in PAGES.items():
        files.append(File.generated(config, name, content=page()))
    files.append(figures_page(config))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:  # noqa: ARG001
    """Let the search find explanations before names."""
    if page.file.src_uri in BOOSTS:
        page.meta["search"] = {"boost": BOOSTS[page.file.src_uri]}
    return markdown


def on_page_content(html: str, *, page: Any, config: Any, files: Any) -> str:  # noqa: ARG001
    """Mark keys and flags, which assets/site.css keeps on one line each.

    The table of contents of a generated page has no room for its hundreds of keys.
    """
    if page.file.src_uri in PAGES and page.file.src_uri != "python.md":
        for item in page.toc.items[0].children:
            item.children = []
    return WORD.sub('<code class="word">', html)


def on_post_page(output: str, *, page: Any, config: Any) -> str:  # noqa: ARG001
    """Take the local one; pages lie beside each other, so it is at the same place for all."""
    return SHIM.sub(f'src="{LOCAL}"', output)


def on_post_template(output: str, *, template_name: str, config: Any) -> str:  # noqa: ARG001
    """The same in the page for what is not there."""
    return SHIM.sub(f'src="{LOCAL}"', output)
