"""Options of any name are plain data from the first session on: what every later one reads."""

import datetime
import enum
from pathlib import Path

import numpy as np
import pytest

from refusals import refuses
from remuda.config import config_text, load_config, read_config
from remuda.errors import ConfigError

WHERE = {
    "env.options": lambda options: {"env": {"options": options}},
    "policy.network.options": lambda options: {
        "policy": {"network": {"module": "a:B", "options": options}}
    },
    "population.options": lambda options: {"population": {"options": options}},
    "policies.a.network.options": lambda options: {
        "policies": {"a": {"network": {"module": "a:B", "options": options}}}
    },
}


class Mode(enum.Enum):
    FAST = 1


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


def options_of(config, key):
    tree = config.model_dump()
    for part in key.split("."):
        tree = tree[part]
    return tree


GIVEN = {
    "size": (5, 7),
    "walls": [(0, 1), (2, 3)],
    "file": Path("maps/a.txt"),
    "deep": {"size": (np.int64(3), np.float32(0.5)), "on": np.True_},
    "colour": Colour.RED,
    "level": Level.HIGH,
    "day": datetime.date(2026, 11, 23),
    "nothing": None,
    "text": "1e-3",
}


@pytest.mark.parametrize("key", WHERE)
def test_the_first_session_gets_what_later_ones_get(key, tmp_path):
    first = load_config(WHERE[key](GIVEN))
    path = tmp_path / "config.yaml"
    path.write_text(config_text(first))
    later = options_of(load_config(read_config(path)), key)
    assert options_of(first, key) == later
    assert (later["size"], later["file"], later["level"]) == ([5, 7], "maps/a.txt", 3)
    assert (later["day"], later["text"]) == ("2026-11-23", "1e-3")
    plain = [options_of(first, key)]
    for value in plain:  # and their types are those of plain data, not of something equal
        assert type(value) in (dict, list, str, int, float, bool, type(None))
        plain += value.values() if isinstance(value, dict) else value if type(value) is list else []


def test_what_was_given_stays_as_it_is():
    given = {"size": (5, 7)}
    load_config({"env": {"options": given}})
    assert given == {"size": (5, 7)}


@pytest.mark.parametrize("key", WHERE)
@pytest.mark.parametrize(
    "options",
    [
        {"mode": Mode.FAST},
        {"tiles": {1, 2}},
        {"deep": [{"map": np.zeros(2)}]},
        {"rewards": {0: 1.0}},
    ],
)
def test_what_would_be_something_else_in_later_sessions_is_refused(key, options):
    with refuses(ConfigError) as error:
        load_config(WHERE[key](options))
    assert "\n" not in str(error.value)


def test_numbers_with_exponents_and_days_in_files_are_what_they_look_like(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "env: {options: {gravity: 1e-3, most: -1.5E3, day: 2026-11-23, name: e3, hex: 1e}}\n"
        "run: {directory: 2026-11-23}\npolicy: {experience: {group: '1e3'}}\n"
    )
    config = load_config(read_config(path))
    found = {"gravity": 1e-3, "most": -1500.0, "day": "2026-11-23", "name": "e3", "hex": "1e"}
    assert config.env.options == found
    assert config.run.directory == Path("2026-11-23")
    path.write_text(config_text(config))
    assert load_config(read_config(path)) == config
