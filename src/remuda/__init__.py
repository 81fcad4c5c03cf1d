"""Remuda trains many reinforcement-learning policies at once, in multi-agent environments.

    result = remuda.train("tag", policy={"algorithm": "ppo"}, run={"seconds": 60})
    run = remuda.load(result)
    action = run["agent_0"].act(observation)

The names in `__all__` and the modules in docs/api.md are public; all others are private.
`__init__.pyi` lists the names and their modules, for type checkers and for this file. Each name is
imported at its first use, so that `import remuda` takes milliseconds.
"""

from remuda.system.public_names import public_names
from remuda.system.version import __version__ as __version__

__all__, __getattr__ = public_names(__name__, __file__)


def __dir__() -> list[str]:
    return __all__
