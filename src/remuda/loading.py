"""Load the user's classes and functions: `module:Name`, or a pickle's name."""

from __future__ import annotations

import importlib
from operator import attrgetter
from typing import Any

from remuda import pickled
from remuda.code_paths import add_directories, warn_of_other_file
from remuda.errors import ConfigError, MissingCodeError, RemudaError, UserCodeError
from remuda.user_code import where_raised


def load(path: str, key: str) -> Any:
    """Load `module:Name` (the name may have dots), or a pickle by its name."""
    if pickled.is_pickled(path):
        try:
            return pickled.load_named(path)
        except MissingCodeError as error:
            raise MissingCodeError(f"{key}: {error}") from error
    module, _, name = path.partition(":")
    try:
        return attrgetter(name)(import_module(module))
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{key}: {error}; name yours as module:Class") from None


def import_module(name: str) -> Any:
    """Import a module of the user's, from the directories of opened runs too."""
    try:
        try:
            found = importlib.import_module(name)
        except ModuleNotFoundError:
            if not add_directories():
                raise
            found = importlib.import_module(name)
        warn_of_other_file(name)
        return found
    except RemudaError:
        raise
    except Exception as error:
        message = where_raised(error, libraries=not isinstance(error, ImportError | ValueError))
        if message is None:
            raise
        raise UserCodeError(message) from error
