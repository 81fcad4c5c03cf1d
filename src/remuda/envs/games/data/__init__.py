"""Tables of the games, as JSON files next to this module."""

import json
from pathlib import Path
from typing import Any


def load(name: str) -> dict[str, Any]:
    """Read `name`.json."""
    found: dict[str, Any] = json.loads(Path(__file__).with_name(f"{name}.json").read_text("utf-8"))
    return found
