"""`remuda games --all`: what is installed, and what would bring more."""

import io

import pytest
from rich.console import Console

from remuda.envs.adapters import libraries
from remuda.envs.adapters.libraries import LIBRARIES
from remuda.envs.registry import find_game
from remuda.ui.play.games import print_libraries


def told(width=100):
    page = io.StringIO()
    print_libraries(Console(file=page, width=width))
    return page.getvalue()


def test_games_of_what_is_installed_are_listed():
    pytest.importorskip("pyspiel")
    page = told()
    assert "leduc_poker" in page
    assert "simple_spread_v3" in page
    assert "CartPole-v1" in page


def test_what_is_missing_is_told_with_how_to_install_it(monkeypatch):
    monkeypatch.setattr(libraries, "find_spec", lambda package: None)
    page = told()
    for name, library in LIBRARIES.items():
        assert f"{name}:NAME" in page
        if library.extra:
            assert f"pip install -e '.[{library.extra}]'" in page


def test_of_many_games_some_are_listed():
    pytest.importorskip("lbforaging")
    page = told()
    assert "1,920 games" in page
    assert "... and 1,912 more" in page


@pytest.mark.slow_cases("open_spiel", "jaxmarl")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.process) if name == "jaxmarl" else name
        for name in LIBRARIES
    ],
)
def test_each_library_s_example_is_one_of_its_games(name):
    library = LIBRARIES[name]
    if not library.is_installed:
        pytest.skip(f"{library.package} is not installed")
    assert library.example in library.names()
    env = find_game(library.example).make(1)
    assert env.num_agents >= 1
    env.close()


def test_a_library_that_is_broken_does_not_hide_the_others(monkeypatch, caplog):
    """Red before: the list ended there."""
    library = LIBRARIES["open_spiel"]

    def broken():
        raise OSError("its file is damaged")

    monkeypatch.setattr(libraries, "find_spec", lambda package: True)
    for each in LIBRARIES.values():
        monkeypatch.setitem(vars(each), "listing", broken if each is library else lambda: ["one"])
    page = told()
    assert "open_spiel:NAME  installed; cannot list its games" in page
    assert "its file is damaged" in caplog.text
    assert "rware:NAME  1 games" in page
