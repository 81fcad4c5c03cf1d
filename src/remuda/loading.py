"""What users bring along, found by its name: `module:Name`."""

from __future__ import annotations

import importlib
from typing import Any

from remuda.errors import ConfigError


def load(path: str, key: str) -> Any:
    """Find what `module:Name` names.

    Args:
        path: the module, and the name in it; a name may have dots.
        key: the setting that names it, for the message.

    Raises:
        ConfigError: there is none.
    """
    module, _, name = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{key}: {error}; name yours as module:Class") from None
    return found
