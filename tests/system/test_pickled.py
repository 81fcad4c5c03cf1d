"""Games that no process can import cross as pickles, and lie beside the run's configuration."""

import hashlib
import pickle
import sys
import types

import pytest

from refusals import refuses
from remuda.envs.registry import find_game, make_env, name_game
from remuda.errors import MissingCodeError
from remuda.system import loading
from remuda.system.trust import sign
from support import Tape

SOURCE = """
from support import Tape

AGENTS = 3

def agents():
    return AGENTS

class Typed(Tape):
    def __init__(self, num_envs=1):
        super().__init__(num_envs, num_agents=agents())
"""


def typed_in(module="__main__"):
    """A class whose source is no file."""
    scope = {"__name__": module}
    exec(compile(SOURCE, "<cell>", "exec"), scope)
    return scope["Typed"]


@pytest.fixture
def fresh(monkeypatch):
    """What another process knows: nothing that this one was given."""

    def forget():
        monkeypatch.setattr(loading, "PICKLES", {})
        monkeypatch.setattr(loading, "OBJECTS", {})

    forget()
    return forget


def test_a_class_of_the_script_is_pickled_by_value(fresh):
    name = name_game(typed_in())
    assert name.startswith("pickled:Typed-")
    assert loading.without_digest(name) == "pickled:Typed"
    game = pickle.loads(pickle.dumps(find_game(name)))  # as it is sent to a process
    fresh()
    assert game.make(2).num_agents == 3
    with refuses(MissingCodeError):
        find_game(name)


def test_this_process_plays_the_class_itself(fresh):
    def game(num_envs):
        return Tape(num_envs)

    assert find_game(name_game(game)).load() is game


def test_a_class_of_a_module_that_is_no_file_is_pickled_with_what_it_uses(fresh, monkeypatch):
    module = types.ModuleType("made_here")
    monkeypatch.setitem(sys.modules, "made_here", module)
    exec(SOURCE, module.__dict__)
    name = name_game(module.Typed)
    assert name.startswith("pickled:")
    game = find_game(name)
    fresh()
    monkeypatch.delitem(sys.modules, "made_here")
    assert game.make(1).num_agents == 3


def test_other_code_has_another_name(fresh):
    one = typed_in()
    other = typed_in()
    other.extra = 1
    assert name_game(one) == name_game(one)
    assert name_game(one) != name_game(other)
    assert loading.without_digest(name_game(one)) == loading.without_digest(name_game(other))
    assert loading.without_digest(loading.without_digest(name_game(one))) == "pickled:Typed"
    assert loading.without_digest("my-games:A-B") == "my-games:A-B"


def test_a_class_within_a_function_is_pickled(fresh):
    class Within(Tape):
        pass

    assert name_game(Within).startswith("pickled:Within-")
    assert name_game(lambda num_envs: Within(num_envs)).startswith("pickled:lambda-")


def kept(tmp_path, data=None):
    """A pickled game's file beside a configuration; returns the name."""
    name = name_game(typed_in())
    path = tmp_path / loading.file_name(name)
    path.write_bytes(loading.pickle_of(name) if data is None else data)
    sign({path: path.read_bytes()})
    return name


def test_it_is_read_beside_the_configuration(fresh, tmp_path):
    name = kept(tmp_path)
    fresh()
    loading.read_beside(tmp_path / "config.yaml", {"game": name})
    assert make_env(name, 2).num_agents == 3
    loading.read_beside(tmp_path / "config.yaml", "pickled:Gone-12345678")
    with refuses(MissingCodeError, "code-12345678.pkl"):
        find_game("pickled:Gone-12345678")


def test_it_is_not_run_before_it_is_made(fresh, tmp_path):
    name = kept(tmp_path, b"no pickle at all")
    fresh()
    loading.read_beside(tmp_path / "config.yaml", {"game": name})
    game = find_game(name)
    with refuses(MissingCodeError):
        game.make(1)


def named_by(content):
    return f"pickled:X-{hashlib.sha256(content).hexdigest()[:8]}"


def test_code_of_another_python_is_refused(fresh):
    data = pickle.dumps(("2.7", b""))
    with refuses(MissingCodeError):
        loading.load_object(named_by(data), data)


def test_what_its_code_imports_must_be_there(fresh, tmp_path, monkeypatch):
    (tmp_path / "helps_a_game.py").write_text("from support import Tape\n")
    monkeypatch.syspath_prepend(tmp_path)
    import helps_a_game

    name = name_game(lambda num_envs: helps_a_game.Tape(num_envs))
    game = find_game(name)
    fresh()
    monkeypatch.delitem(sys.modules, "helps_a_game")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(tmp_path)])
    with refuses(MissingCodeError):
        game.make(1)
