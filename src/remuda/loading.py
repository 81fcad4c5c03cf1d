"""What users bring along, found by its name: `module:Name`, or that of a pickle."""

from __future__ import annotations

import importlib
from typing import Any

from remuda import pickled
from remuda.code_paths import add_directories, tell_of_other_file
from remuda.errors import ConfigError, MissingCodeError, RemudaError, UserCodeError
from remuda.user_code import where_raised


def load(path: str, key: str) -> Any:
    """Find what `module:Name` or the name of a pickle names.

    Args:
        path: the module, and the name in it; a name may have dots. Or what `remuda.train` called a
            class or function of a script or a notebook.
        key: the setting that names it, for the message.

    Raises:
        ConfigError: there is none.
        UserCodeError: the module raised as it was imported.
    """
    if pickled.is_pickled(path):
        try:
            return pickled.load_named(path)
        except MissingCodeError as error:
            raise MissingCodeError(f"{key}: {error}") from error
    module, _, name = path.partition(":")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{key}: {error}; name yours as module:Class") from None
    return found


def import_module(name: str) -> Any:
    """Import a module of the user's.

    Raises:
        ModuleNotFoundError: there is none of this name.
        UserCodeError: it raised as it was imported, or imports what is not there.
        ImportError, ValueError: as `importlib.import_module`, without code of the user's.
    """
    try:
        try:
            found = importlib.import_module(name)
        except ModuleNotFoundError:
            if not add_directories():
                raise
            found = importlib.import_module(name)
        tell_of_other_file(name)
        return found
    except RemudaError:
        raise
    except Exception as error:
        told = where_raised(error, libraries=not isinstance(error, ImportError | ValueError))
        if told is None:
            raise
        raise UserCodeError(told) from error
