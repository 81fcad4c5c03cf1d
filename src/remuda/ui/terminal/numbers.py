"""Numbers as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

NOTHING = "–"  # shown for a missing number
LARGE = 1e7  # larger numbers have an exponent, since their digits would fill a table


def number(value: float | None) -> str:
    """Format a measured number with a useful number of digits."""
    if value is None or not math.isfinite(value):
        return NOTHING
    size = abs(value)
    if size >= LARGE:
        return f"{value:.3g}"
    if size == 0 or size >= 1000:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 0.1:
        return f"{value:.2f}"
    return f"{value:.4f}" if size >= 0.001 else f"{value:.0e}"


def decimal(value: float, decimals: int) -> str:
    """Format a number with so many decimals, or with an exponent if it is large."""
    return f"{value:.{decimals}f}" if abs(value) < LARGE else f"{value:.3g}"


def in_width(value: float | None, width: int) -> str:
    """Format a measured number in `width` characters, at least six."""
    words = number(value)
    return words if value is None or len(words) <= width else f"{value:.0e}"


def with_error(mean: float | None, error: float | None) -> str:
    """Format a mean and its standard error."""
    if mean is None:
        return NOTHING
    return number(mean) if error is None else f"{number(mean)} ± {number(error)}"


def to_width(values: Sequence[float], width: float) -> tuple[str, ...]:
    """Format numbers with enough digits to show an interval of this width to two digits."""
    known = [abs(value) for value in values if math.isfinite(value)]
    if not known or not math.isfinite(width) or width <= 0.0:
        return tuple(number(value) for value in values)
    size, decimals = max(known), max(1 - math.floor(math.log10(width)), 0)
    if size >= 1e6 or decimals > 6:  # too wide for a column
        digits = math.floor(math.log10(max(size, width))) - math.floor(math.log10(width)) + 2
        kind = f".{min(digits, 15)}g"
    else:
        kind = f",.{decimals}f"
    return tuple(f"{value:{kind}}" if math.isfinite(value) else NOTHING for value in values)


def between(low: float, high: float) -> str:
    """Format an interval with as many digits as its width needs: `152 to 168`."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return NOTHING
    return " to ".join(to_width((low, high), high - low))


def rate(value: float | None) -> str:
    """Format a rate with three digits, since more would flicker in a live view."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if abs(value) < 100:
        return f"{value:.1f}"
    step = 10.0 ** (math.floor(math.log10(abs(value))) - 2)
    return f"{round(value / step) * step:,.0f}"


def percent(share: float | None) -> str:
    """Format a fraction as a percentage."""
    return NOTHING if share is None or not math.isfinite(share) else f"{share:.0%}"


def clock(seconds: float | None) -> str:
    """Format a duration: `0:07`, `12:30`, `1:02:03`."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def restarted(restarts: Mapping[str, int]) -> str:
    """Describe how often roles were restarted."""
    if not restarts:
        return "no restarts"
    total = sum(restarts.values())
    roles = ", ".join(f"{role} {count}" for role, count in restarts.items())
    return f"{total} {'restart' if total == 1 else 'restarts'}: {roles}"


def waited(count: int) -> str:
    """Describe how often the actor waited for a learner."""
    return {0: "never waited", 1: "waited once"}.get(count, f"waited {count:,} times")


def distinct(names: Iterable[str], form: str = "{} ({})") -> list[str]:
    """Return the names; repeated ones get a number, from 2 on."""
    found: list[str] = []
    for base in names:
        name, count = base, 1
        while name in found:
            count += 1
            name = form.format(base, count)
        found.append(name)
    return found
