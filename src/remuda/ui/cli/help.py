"""Help of a command: its usage, and its options or a part of them."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from remuda.config import Config, Section
from remuda.errors import ConfigError
from remuda.ui.cli.arguments import is_tuple
from remuda.ui.cli.option_entries import Entry, entries_of, own_entries, sections_of

FIRST = (
    "game",
    "seed",
    "schedule",
    "env.num_envs",
    "env.options",
    "env.agent_id",
    "policy.algorithm",
    "policy.learning_rate",
    "policy.discount",
    "policy.network.hidden",
    "policy.network.recurrent",
    "policy.network.module",
    "policy.value.input",
    "population.sharing",
    "population.matchmaker",
    "population.policies",
    "run.turns",
    "run.seconds",
    "run.directory",
    "run.evaluate_episodes",
)
"""The keys of a run that people need first."""
ASKS, ALL = ("-h", "--help"), "--help-all"


def is_help(words: Iterable[str]) -> bool:
    """Return whether the words of a command ask for its help."""
    return any(word in (*ASKS, ALL) for word in words)


def help_of(
    words: Sequence[str], model: type[Section], program: str, positional: str, summary: str
) -> str:
    """Return the help that the words after a command ask for.

    `--help` lists the options that are needed first, `--help TOPIC` those of a section or with
    that part in their names, and `--help-all` all.
    """
    everything = {
        key: entry
        for section, kind in sections_of(model).items()
        for key, entry in entries_of(kind, section).items()
    }
    topic = _topic(words)
    if topic:
        shown = _about(topic, everything)
        return "\n\n".join(_option(key, entry) for key, entry in shown.items())
    chosen = everything
    if ALL not in words:
        chosen = own_entries(model)
        if model is Config:
            chosen = {key: everything[key] for key in FIRST}
    field, name = model.model_fields[positional], positional.upper()
    word = name + (" ..." if is_tuple(field.annotation) else "")
    word = word if field.is_required() else f"[{word}]"
    text = (
        f"{summary} {name} is short for --{positional} {name}; it may come first, or after an "
        "option with a single value."
    )
    if len(chosen) < len(everything):
        text += (
            f" These are the options that most runs need: --help-all lists all {len(everything)}, "
            "--help policy.ppo those of a section, and --help entropy those with that word in "
            "their names."
        )
    options = "\n\n".join(_option(key, entry) for key, entry in chosen.items())
    return f"usage: {program} {word} [OPTIONS]\n\n{wrapped(text)}\n\n{options}"


def _topic(words: Sequence[str]) -> str:
    at = next(i for i, word in enumerate(words) if word in (*ASKS, ALL))
    after = words[at + 1 : at + 2]
    return after[0].lstrip("-").replace("-", "_") if after and words[at] != ALL else ""


def _about(topic: str, entries: Mapping[str, Entry]) -> dict[str, Entry]:
    inside = {key: each for key, each in entries.items() if f"{key}.".startswith(f"{topic}.")}
    found = inside or {key: each for key, each in entries.items() if topic in key}
    if found:
        return found
    sections = dict.fromkeys(key.rpartition(".")[0] for key in entries if "." in key)
    raise ConfigError(
        f"--help {topic}: no option has {topic!r} in its name; sections: {', '.join(sections)}"
    )


def _option(key: str, entry: Entry) -> str:
    text = f"{entry.meaning} ({entry.facts})".lstrip().replace("`", "")
    return f"  --{key}\n{8 * ' '}{wrapped(text, 8 * ' ', 8)}"


def wrapped(text: str, indent: str = "", begun: int = 0) -> str:
    """Wrap paragraphs to the terminal's width; indent all lines but the first, which is begun."""
    width = shutil.get_terminal_size().columns
    fill = textwrap.TextWrapper(width, begun * "-", indent, break_long_words=False).fill
    return "\n\n".join(fill(part)[begun:] for part in text.split("\n\n"))
