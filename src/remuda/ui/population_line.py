"""A population in one line of words, for the live view and `remuda status`."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from remuda.ui.numbers import number, percent

GAP = "   "


def population_line(numbers: Mapping[str, float | None], width: int) -> Text:
    """What a record tells of a population, as much of it as there is room for; may be empty.

    Args:
        numbers: by the names of `PopulationRecord`; those that are missing or None are left out.
        width: characters that there are.
    """
    parts: list[tuple[str, str]] = []
    if (mean := numbers.get("fitness_mean")) is not None:
        spread = f" ± {number(numbers.get('fitness_spread'))}"
        parts.append(("return", number(mean) + spread))
        parts.append(("best", number(numbers.get("fitness_best"))))
    if (support := numbers.get("nash_support")) is not None:
        parts.append(("equilibrium", f"{support:.0f} of {numbers.get('analysed') or 0:.0f}"))
    for name, word, words in (
        ("diversity", "diversity", number),
        ("exploitability", "exploitability", number),
        ("transitive_share", "skill", percent),
    ):
        if (value := numbers.get(name)) is not None:
            parts.append((word, words(value)))
    line = Text()
    for name, told in parts:
        gap = GAP if line.cell_len else ""
        if line.cell_len + len(gap) + len(name) + 1 + len(told) > width:
            break
        line.append(f"{gap}{name} ", "dim")
        line.append(told, "bold")
    return line
