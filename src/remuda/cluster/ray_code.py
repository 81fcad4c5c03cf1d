"""Find, compare and send user code for other nodes.

A user's module (an environment, a network, a matchmaker) is sent to nodes on other machines, with
everything that was loaded from the same folder. Installed packages are not sent: each node needs
them with the same source.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from remuda.errors import RemudaError
from remuda.system.loading import is_pickled, texts_in
from remuda.system.user_errors import is_installed
from remuda.system.version import __version__

OWN = "remuda"  # the package whose source must be the same on all nodes
NAMED = re.compile(r"([A-Za-z_]\w*)(\.\w+)*:[A-Za-z_][\w.-]*")  # `module:Name`
LARGEST = 50_000_000  # maximum bytes of a sent module or package, including data files


def versions() -> dict[str, str]:
    """Return the versions that must be the same on all nodes."""
    found = {"Python": f"{sys.version_info.major}.{sys.version_info.minor}", "Remuda": __version__}
    try:
        # The part after a plus sign, such as `+cpu` or `+cu128`, may differ between nodes.
        found["torch"] = version("torch").partition("+")[0]
    except PackageNotFoundError:
        found["torch"] = "none"
    return found


def named_modules(tree: object) -> list[str]:
    """Return the top-level modules in the configuration that this process can find."""
    matches = (NAMED.fullmatch(text) for text in texts_in(tree) if not is_pickled(text))
    modules = dict.fromkeys(match[1] for match in matches if match is not None)
    return [module for module in modules if module != OWN and _root(module) is not None]


def own_code(modules: Iterable[str], with_pickles: bool) -> list[str]:
    """Return the files and folders to send: `modules`, and modules loaded from the same folders."""
    roots = _own_roots(modules)
    folders = {root.parent for root in roots}
    if with_pickles:
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        folders.add(Path(main).resolve().parent if main else Path.cwd())
    loaded = [name for name in sys.modules if "." not in name and name != "__main__"]
    roots += [root for root in _own_roots(loaded) if root.parent in folders]
    roots = [root for root in dict.fromkeys(roots) if root.name not in (OWN, "ray")]
    for root in roots:
        size = sum(file.stat().st_size for file in _files(root, "*"))
        if size > LARGEST:
            raise RemudaError(
                f"{root} has {size / 1e6:.0f} MB; at most {LARGEST / 1e6:.0f} MB of your code are "
                "sent to nodes: put the data elsewhere, or install the package on all nodes"
            )
    return [str(root) for root in roots]


def _own_roots(modules: Iterable[str]) -> list[Path]:
    roots = (_root(module) for module in modules)
    return [root for root in roots if root is not None and not is_installed(str(root))]


def digests(modules: Sequence[str]) -> dict[str, str]:
    """Return a digest of each module's source, empty for a module that is not found."""
    return {module: _digest(_root(module)) for module in modules}


def difference(here: Mapping[str, Any], there: Mapping[str, Any], node: str) -> str | None:
    """Describe how a node differs from this machine; None if the difference does not matter."""
    same = "install the same version on all nodes"
    for what, own in here["versions"].items():
        other = there["versions"].get(what)
        if other != own:
            return f"node {node} has {what} {other}, and this machine has {own}: {same}"
    for module, own in here["digests"].items():
        other = there["digests"].get(module)
        if not other:
            return f"node {node} has no module {module}, which the run needs: install it there"
        if other != own:
            return f"the source of {module} on node {node} differs from this machine's: {same}"
    return None


def _root(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None or not spec.has_location or not spec.origin:
        return None
    file = Path(spec.origin).resolve()
    if file.suffix != ".py":
        return None
    return file.parent if spec.submodule_search_locations else file


def _files(root: Path, pattern: str) -> list[Path]:
    """Return the files of a package, or a single file, in a fixed order."""
    if root.is_file():
        return [root]
    files = [file for file in root.rglob(pattern) if file.is_file()]
    return sorted(file for file in files if "__pycache__" not in file.parts)


def _digest(root: Path | None) -> str:
    if root is None:
        return ""
    digest = hashlib.sha256()
    for file in _files(root, "*.py"):
        digest.update(f"{file.relative_to(root.parent).as_posix()}\0".encode())
        digest.update(file.read_bytes() + b"\0")
    return digest.hexdigest()
