"""Remuda trains many reinforcement-learning policies at once, in multi-agent environments.

    result = remuda.train("tag", policy={"algorithm": "ppo"}, run={"seconds": 60})
    run = remuda.load(result)
    action = run["agent_0"].act(observation)

The names in `__all__` and the modules in docs/api.md are public; all others are private.
`__init__.pyi` lists the names and their modules, for type checkers and for this file. Each name is
imported at its first use, so that `import remuda` takes milliseconds.
"""

import re
from typing import Any

from remuda.system.version import __version__ as __version__

with open(__file__ + "i", encoding="utf-8") as _stub:
    _HOMES = re.findall(r"^from (\S+) import \(?\s*(\w+)", _stub.read(), re.MULTILINE)
_HOME_OF = {name: home for home, name in _HOMES}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - the names are those of the stub


def __getattr__(name: str) -> Any:
    """Import a public name (PEP 562)."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'remuda' has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__
