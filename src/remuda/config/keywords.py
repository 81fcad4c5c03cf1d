"""Settings of a section as keyword arguments of a Python function."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_type_hints

from pydantic import ValidationError

from remuda.config.faults import explain
from remuda.config.sections import Section
from remuda.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound=Section)


def takes_settings(model: type[Section]) -> Callable[[F], F]:
    """List a model's fields in the signature of a function that takes them as `**settings`."""

    def listed(function: F) -> F:
        whole = inspect.signature(function)
        own = [each for each in whole.parameters.values() if each.kind is not each.VAR_KEYWORD]
        fields, kinds = [], get_type_hints(model)
        for name, info in model.model_fields.items():
            default = info.get_default(call_default_factory=True, validated_data={})
            kind = kinds[name]
            if isinstance(default, Section):
                default, kind = {}, Mapping[str, Any] | kind
            parameter = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
            fields.append(parameter.replace(default=default, annotation=kind))
        signature = whole.replace(parameters=[*own, *fields])
        function.__signature__ = signature  # type: ignore[attr-defined]
        return function

    return listed


def read_keywords(model: type[S], settings: Mapping[str, Any], function: Callable[..., Any]) -> S:
    """Validate keyword arguments; a `UsageError` names the first wrong one and what is allowed."""
    known = inspect.signature(function).parameters
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            instead = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise UsageError(f"{name} is no argument of {function.__name__}; {instead}")
    try:
        return model.model_validate(settings)
    except ValidationError as error:
        raise UsageError(explain(error, model)) from None
