"""Names of code in a stranger's config.yaml are used only if the user allows it."""

import json
import sys

import pytest

import remuda
from refusals import refuses
from remuda.errors import ForeignCodeError
from remuda.runs.run_directory import RunDirectory
from remuda.system import loading, trust

GAME = "game: kuhn_poker"


@pytest.fixture
def made(tmp_path, monkeypatch):
    remuda.train(
        "kuhn_poker",
        env={"num_envs": 2},
        policy={"algorithm": "ppo", "network": {"hidden": [4]}},
        schedule="sequential",
        run={"turns": 20, "evaluate_episodes": 0, "directory": tmp_path / "run"},
        view="quiet",
    )
    for name, empty in (("_allowed", set()), ("_own_names", set())):
        monkeypatch.setattr(trust, name, empty)
    monkeypatch.setattr(trust, "_foreign", trust.Foreign({}, {}))
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path / "run"


def changed(made, before, after):
    config = made / "config.yaml"
    text = config.read_text()
    assert before in text
    config.write_text(text.replace(before, after))


CALLS = {  # names whose call runs what the options say
    "python": ("subprocess:getoutput", "cmd: touch {}"),
    "builtin": ("os:system", "command: touch {}"),
    "through_remuda": ("remuda.system.loading:os.system", "command: touch {}"),
    "of_remuda": ("remuda.system.checkpoint.state:write_whole", "path: {}\n    data: x"),
    "library": ("gymnasium.utils.seeding:np.save", "file: {}\n    arr: 1"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_game_of_a_stranger_calls_no_function_of_a_library(call, made):
    name, options = CALLS[call]
    victim = made.parent / "victim"
    changed(made, GAME, f"game: {name}")
    changed(
        made, "  options: {}\n  wrappers", f"  options:\n    {options.format(victim)}\n  wrappers"
    )
    (made / "environment.json").unlink()
    with refuses(ForeignCodeError, trust.ALLOW):
        remuda.evaluate(made, episodes=1)
    assert not any(made.parent.glob("victim*"))


def test_resuming_and_reporting_ask_too(made):
    victim = made.parent / "victim"
    changed(made, GAME, "game: subprocess:getoutput")
    options = f"  options:\n    cmd: touch {victim}\n  wrappers"
    changed(made, "  options: {}\n  wrappers", options)
    with refuses(ForeignCodeError, trust.ALLOW):
        remuda.train(resume=made, run={"turns": 40}, view="quiet")
    assert not victim.exists()


@pytest.mark.parametrize("game", ["{}:Game", "gymnasium:{}:Game-v0", "pettingzoo:{}"])
def test_a_module_in_a_strangers_run_is_not_imported(game, made, monkeypatch):
    """The current directory is that of the run."""
    module = f"module_in_a_run_{sum(map(ord, game))}"
    (made / f"{module}.py").write_text("open('victim', 'w')")
    changed(made, GAME, f"game: {game.format(module)}")
    (made / "environment.json").unlink()
    monkeypatch.chdir(made)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    with refuses(ForeignCodeError, trust.ALLOW):
        remuda.evaluate(".", episodes=1)
    assert not (made / "victim").exists()


def test_other_processes_know_which_names_are_strange(made, monkeypatch):
    changed(made, GAME, "game: refusals:os.system")  # a module of the user's
    config = RunDirectory.open(made).read_config()
    code = loading.code_of(config.model_dump())
    monkeypatch.setattr(trust, "_foreign", trust.Foreign({}, {}))
    loading.add_code(code)
    with refuses(ForeignCodeError, trust.ALLOW):
        loading.load("refusals:os.system", "game")


def test_a_wrapper_of_a_stranger_is_not_called_however_it_is_written(made):
    before = "  wrappers: []"
    for text in ("copy:copy", " copy : copy()", "copy:copy . __call__()"):
        config = (made / "config.yaml").read_text()
        changed(made, before, f"  wrappers: ['{text}']")
        changed(made, GAME, "game: pettingzoo:classic/tictactoe-v3")
        (made / "environment.json").unlink(missing_ok=True)
        with pytest.raises(ForeignCodeError, match="opening it calls"):
            remuda.evaluate(made, episodes=1)
        (made / "config.yaml").write_text(config)


def test_own_names_need_no_question(tmp_path, monkeypatch):
    """Also if a setting was edited by hand."""
    monkeypatch.setattr(trust, "_foreign", trust.Foreign({}, {}))
    remuda.train(
        "pettingzoo:classic/tictactoe-v3",
        env={"num_envs": 2, "wrappers": ["copy:copy"]},
        policy={"algorithm": "ppo", "network": {"hidden": [4]}},
        schedule="sequential",
        run={"turns": 20, "evaluate_episodes": 0, "directory": tmp_path / "run"},
        view="quiet",
    )
    changed(tmp_path / "run", "seed: 0", "seed: 1")
    (tmp_path / "run" / "environment.json").unlink()
    remuda.evaluate(tmp_path / "run", episodes=1)


def test_names_of_the_users_own_modules_need_no_question(made):
    changed(made, GAME, "game: support:Tape")
    RunDirectory.open(made).read_config()
    assert loading.load("support:Tape", "game").__name__ == "Tape"


def test_signatures_cover_names(made):
    assert "config.yaml" in json.loads((made / trust.SIGNATURES).read_text())
