"""Code of runs that another person made is not executed unless the user allows it."""

import io
import json
import shutil
import sys

import pytest

import remuda
from refusals import refuses
from remuda.errors import ForeignCodeError
from remuda.system import loading, trust
from remuda.ui.cli.main import run

MODULE = """
from support import Tape

class Game(Tape):
    def __init__(self, num_envs=1):
        super().__init__(num_envs, num_agents=2)
"""


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A run whose game was defined in a notebook cell, to be opened as another process would."""
    scope = {"__name__": "__main__"}
    exec(compile(MODULE, "<cell>", "exec"), scope)
    remuda.train(
        scope["Game"],
        env={"num_envs": 2},
        policy={"algorithm": "ppo", "network": {"hidden": [4]}},
        schedule="sequential",
        run={"turns": 20, "evaluate_episodes": 0, "directory": tmp_path / "run"},
        view="quiet",
    )
    monkeypatch.setattr(loading, "PICKLES", {})
    monkeypatch.setattr(loading, "OBJECTS", {})
    monkeypatch.setattr(trust, "_allowed", set())
    return tmp_path / "run"


def from_elsewhere(made, monkeypatch):
    """Let the run be another user's: their key is not ours."""
    monkeypatch.setenv("XDG_STATE_HOME", str(made.parent / "mine"))


def play(made):
    return remuda.evaluate(made, episodes=2)


def test_own_code_is_executed_wherever_the_run_is(made):
    elsewhere = shutil.move(made, made.parent / "moved")
    assert play(elsewhere).mean(0) is not None


def test_code_of_others_is_refused_where_nobody_can_answer(made, monkeypatch):
    from_elsewhere(made, monkeypatch)
    with refuses(ForeignCodeError, trust.ALLOW):
        play(made)


def test_code_with_another_signature_is_refused(made):
    signed = json.loads((made / trust.SIGNATURES).read_text())
    changed = dict.fromkeys(signed, "0" * 64)
    (made / trust.SIGNATURES).write_text(json.dumps(changed))
    with refuses(ForeignCodeError, trust.ALLOW):
        play(made)


def test_a_variable_allows_it(made, monkeypatch):
    from_elsewhere(made, monkeypatch)
    monkeypatch.setenv(trust.ALLOW, "1")
    play(made)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("answer", ["y\n", "n\n", "\n"])
def test_a_terminal_asks_once(answer, made, monkeypatch):
    from_elsewhere(made, monkeypatch)
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    if answer != "y\n":
        with pytest.raises(ForeignCodeError, match="was not run"):
            play(made)
        return
    play(made)
    assert "Run it? [y/N]" in shown.getvalue()
    for name in ("PICKLES", "OBJECTS"):
        monkeypatch.setattr(loading, name, {})
    monkeypatch.setattr(trust, "_allowed", set())
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    play(made)


def test_status_needs_no_code(made, monkeypatch, capsys):
    from_elsewhere(made, monkeypatch)
    assert run(["status", str(made)]) == 0
    assert run(["runs", str(made.parent)]) == 0


def test_directories_of_others_are_not_searched(tmp_path, monkeypatch):
    (tmp_path / "theirs").mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "theirs" / "a_game_of_theirs.py").write_text("raise SystemExit('it ran')")
    paths = {"directories": [str(tmp_path / "theirs")], "modules": {}}
    (tmp_path / loading.PATHS).write_text(json.dumps(paths))
    for name in ("_directories", "_foreign_directories", "_files"):
        monkeypatch.setattr(loading, name, {})
    loading.read_beside(tmp_path / "config.yaml", {"game": "a_game_of_theirs:Game"})
    for _ in range(2):  # a refusal is no permission for the next attempt
        with refuses(ForeignCodeError, trust.ALLOW):
            loading.import_module("a_game_of_theirs")
        loading.read_beside(tmp_path / "config.yaml", {"game": "a_game_of_theirs:Game"})
    # A run that this process saves meanwhile does not vouch for the directory.
    assert str(tmp_path / "theirs") not in loading.found_here({})["directories"]
    # A run of the user's own that lists the same directory makes it theirs.
    trust.sign({tmp_path / loading.PATHS: (tmp_path / loading.PATHS).read_bytes()})
    loading.read_beside(tmp_path / "config.yaml", {"game": "a_game_of_theirs:Game"})
    with pytest.raises(SystemExit):
        loading.import_module("a_game_of_theirs")


def test_only_what_was_read_is_signed(tmp_path, monkeypatch):
    """The file may be replaced while the user thinks about the question."""
    code = tmp_path / "code-1.pkl"
    code.write_bytes(b"replaced")
    monkeypatch.setattr(trust, "_allowed", set())
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    monkeypatch.setattr(sys, "stderr", Terminal())
    trust.allow(code, b"read")
    assert trust.is_own(code, b"read")
    assert not trust.is_own(code, b"replaced")


def test_two_processes_make_one_key(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    first = trust._key()
    assert first == trust._key()
    assert (tmp_path / "remuda" / "code-key").stat().st_mode & 0o077 == 0


def test_without_a_place_for_the_key_code_is_asked_for_each_time(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    code = tmp_path / "code-1.pkl"
    code.write_bytes(b"code")
    trust.sign({code: b"code"})
    assert not trust.is_own(code, b"code")


@pytest.mark.parametrize("length", [0, 7])
def test_a_damaged_key_is_made_anew(length, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "remuda").mkdir()
    (tmp_path / "remuda" / "code-key").write_bytes(b"k" * length)
    key = trust._key()
    assert key is not None
    assert len(key) == trust.BYTES
    assert trust._key() == key
    assert sorted(each.name for each in (tmp_path / "remuda").iterdir()) == ["code-key"]


def test_without_a_home_no_key_is_written_to_the_current_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # a user without an entry
    assert trust._key() is None
    monkeypatch.setenv("XDG_STATE_HOME", "state")  # relative: to be ignored, by its specification
    assert trust._key() is None
    assert list(tmp_path.iterdir()) == []
