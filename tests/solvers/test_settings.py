"""Settings of `psro`, `exploit` and `tournament`: one model for command and function."""

import inspect

import pytest

import remuda
from refusals import refuses
from remuda.config import Section, describe_fields
from remuda.errors import UsageError
from remuda.evaluation.tournaments.settings import TournamentSettings
from remuda.solvers.exploit.settings import ExploitSettings
from remuda.solvers.psro.settings import PsroSettings
from remuda.ui.cli import main
from remuda.ui.cli.commands.several_runs import TournamentOptions
from remuda.ui.cli.commands.solvers import ExploitOptions, PsroOptions

COMMANDS = {
    "psro": (PsroSettings, PsroOptions, remuda.psro),
    "exploit": (ExploitSettings, ExploitOptions, remuda.exploit),
    "tournament": (TournamentSettings, TournamentOptions, remuda.tournament),
}
FIELDS = [
    (command, name) for command, (model, *_) in COMMANDS.items() for name in model.model_fields
]


@pytest.mark.parametrize(("command", "name"), FIELDS)
def test_a_setting_is_a_flag_and_a_parameter_with_one_default(command, name):
    model, options, function = COMMANDS[command]
    describe_fields(model)
    describe_fields(options)
    parameter = inspect.signature(function).parameters[name]
    assert parameter.kind is parameter.KEYWORD_ONLY
    assert options.model_fields[name].description == model.model_fields[name].description
    default = options.model_fields[name].get_default(call_default_factory=True)
    if isinstance(default, Section):
        assert parameter.default == {}
        assert model() == model(**{name: {}})
    else:
        assert parameter.default == default


@pytest.mark.parametrize(
    ("command", "name"), [field for field in FIELDS if field[0] != "tournament"]
)
def test_a_wrong_value_is_refused_in_one_line(command, name, capsys, tmp_path, monkeypatch):
    """`x` is no number, choice, switch or section, and the name of no policy and no agent."""
    monkeypatch.chdir(tmp_path)
    arguments = ("random",) if command == "exploit" else ("kuhn_poker",)
    game = {"game": "kuhn_poker"} if command == "exploit" else {}
    with pytest.raises(UsageError) as raised:
        getattr(remuda, command)(*arguments, **game, **{name: "x"})
    flags = [word for key, value in game.items() for word in (f"--{key}", value)]
    assert main.run([command, *arguments, *flags, f"--{name}=x"]) in (1, 2)
    for message in (str(raised.value), capsys.readouterr().err.strip()):
        assert name in message.replace("-", "_")
        assert "\n" not in message
    assert not list(tmp_path.rglob("*.*"))


def test_an_unknown_argument_is_refused_with_the_nearest():
    for call in (remuda.psro, remuda.exploit):
        with refuses(UsageError):
            call("kuhn_poker", optoins={})
