"""What the user's code raises is told as the user's, with type, file and line."""

import json
import sys

import gymnasium
import pytest

from refusals import refuses
from remuda.errors import ConfigError, UserCodeError
from remuda.system.user_errors import LONGEST, naming_user_code, where_raised


def raised(function, *words):
    """What a call raises, without the line of this file that made the call."""
    try:
        function(*words)
    except Exception as error:
        error.__traceback__ = error.__traceback__.tb_next
        return error
    raise AssertionError("nothing was raised")


def step():
    eat()


def eat():
    raise ValueError("no\n food")


def test_the_innermost_line_of_the_user_is_told_and_who_called_it():
    told = where_raised(raised(step))
    line = eat.__code__.co_firstlineno + 1
    called = step.__code__.co_firstlineno + 1
    assert told.startswith("ValueError in your code (")
    assert told.endswith(
        f"test_user_errors.py, line {line}, in eat, called from line {called}, in step): no food"
    )


def reads_nonsense():
    json.loads("{")


def test_the_users_line_is_told_where_a_library_raised():
    told = where_raised(raised(reads_nonsense))
    assert f"line {reads_nonsense.__code__.co_firstlineno + 1}, in reads_nonsense)" in told
    assert told.startswith("JSONDecodeError in your code")


def test_what_remuda_and_its_libraries_raise_is_not_the_users():
    from remuda.envs.games.options import require_whole
    from remuda.policies.spec import PolicySpec

    assert where_raised(raised(require_whole, "height", 1, 3)) is None
    assert where_raised(raised(PolicySpec)) is None  # raised by the call itself


def test_a_library_that_a_game_is_of_is_named():
    error = raised(gymnasium.make, "NoSuch-v0")
    told = where_raised(error)
    assert told.startswith("NameNotFound in gymnasium (")
    assert where_raised(error, libraries=False) is None


def test_the_exception_that_another_was_raised_from_counts():
    def wraps():
        try:
            step()
        except ValueError as error:
            raise RuntimeError("in a library") from error

    error = raised(wraps)
    error.__traceback__ = None
    assert "ValueError in your code" in where_raised(error)


def asserts():
    assert eat is None


def test_an_assertion_without_words_is_told_by_its_line():
    error = raised(asserts)
    error.args = ()
    assert where_raised(error).endswith("): assert eat is None")


def test_long_words_are_cut():
    def talks():
        raise ValueError("x" * 10_000)

    told = where_raised(raised(talks))
    assert told.endswith("xxx...")
    assert len(told) < LONGEST + 300


def test_a_file_that_is_no_python_is_told_with_its_line(tmp_path, monkeypatch):
    (tmp_path / "is_broken.py").write_text("x = 1\ndef f(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    told = where_raised(raised(__import__, "is_broken"))
    assert told.startswith("SyntaxError in your code (")
    assert "is_broken.py, line 2)" in told
    assert "is_broken" not in sys.modules


def test_code_without_a_file_is_told_as_it_was_typed_in():
    scope = {"__name__": "__main__"}
    exec(compile("def act():\n    raise KeyError('x')", "<stdin>", "exec"), scope)
    assert where_raised(raised(scope["act"])) == (
        "KeyError in your code (<stdin>, line 2, in act): 'x'"
    )


def test_a_file_below_the_current_directory_is_named_from_there(tmp_path, monkeypatch):
    (tmp_path / "near_game.py").write_text("raise OSError('no screen')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    told = where_raised(raised(__import__, "near_game"))
    assert told == "OSError in your code (near_game.py, line 1): no screen"


def test_only_what_the_user_raised_is_renamed(caplog):
    with refuses(UserCodeError) as found:
        naming_user_code()(step)()
    assert isinstance(found.value.__cause__, ValueError)
    with pytest.raises(ConfigError), naming_user_code():
        raise ConfigError("as it is")
    with pytest.raises(KeyboardInterrupt), naming_user_code():
        raise KeyboardInterrupt
