"""A line about a population, for the live view and `remuda status`."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from remuda.ui.numbers import number, percent


def population_line(numbers: Mapping[str, float | None], width: int) -> Text:
    """Return as many known numbers of a `PopulationRecord` as fit into `width` characters."""
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
        if (number_ := numbers.get(name)) is not None:
            parts.append((word, words(number_)))
    line = Text()
    for name, value in parts:
        gap = "   " if line.cell_len else ""
        if line.cell_len + len(gap) + len(name) + 1 + len(value) > width:
            break
        line.append(f"{gap}{name} ", "dim")
        line.append(value, "bold")
    return line
