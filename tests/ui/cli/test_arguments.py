"""Words of the command line become what their field holds: texts stay as they were written."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from refusals import refuses
from remuda.config import Config, load_config
from remuda.errors import ConfigError
from remuda.ui.cli.arguments import parse_flags
from remuda.ui.cli.commands.one_run import EvaluateOptions, WatchOptions
from remuda.ui.cli.commands.several_runs import CompareOptions, TournamentOptions
from remuda.ui.cli.commands.train import TrainOptions, read_arguments

TEXTS = ["runs/seed #3", "2026-11-23", "my: run", "1", "1e-3", "true", "[a]", "- a", "None", "no"]


def config_of(*words):
    return load_config(parse_flags(words, Config, positional="game"))


@pytest.mark.parametrize("text", [text for text in TEXTS if text != "None"])
def test_a_path_is_as_it_is_written(text):
    assert config_of("--run.directory", text).run.directory == Path(text)
    assert config_of(f"--trace={text}").trace == Path(text)


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_as_it_is_written(text):
    assert config_of("--policy.experience.group", text).policy.experience.group == text
    assert config_of("--env.scripted.agent_0", text).env.scripted == {"agent_0": text}
    assert config_of("--learners.devices", text, "cpu").learners.devices == (text, "cpu")
    words = ("--policies.a.experience.group", text)
    assert config_of(*words).policy_of("a").experience.group == text


def test_none_is_none_where_that_may_be_and_a_name_where_it_is_one():
    config = config_of("--run.directory", "None", "--policy.init_from", "none", "--trace=none")
    assert (config.run.directory, config.policy.init_from, config.trace) == (None, None, None)
    config = config_of("--policy.algorithm", "ppo", "--policy.ppo.correction", "none")
    assert config.policy.ppo.correction == "none"
    assert (
        config_of("--policy.experience.replay_ratio", "none").policy.experience.replay_ratio is None
    )
    assert config_of("--env.options.goal", "None").env.options == {"goal": None}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        *(("1e-3", 1e-3), ("1E6", 1e6), ("-2.5e3", -2500.0), ("0.5", 0.5), ("3", 3)),
        *(("2026-11-23", "2026-11-23"), ("true", True), ("[1e-3, a]", [1e-3, "a"])),
        *(("e3", "e3"), ("nan-1", "nan-1"), ("a: b", {"a": "b"}), ("[", "[")),
    ],
)
def test_options_of_any_name_are_numbers_where_they_look_like_one(word, value):
    found = config_of("--env.options.gravity", word).env.options["gravity"]
    assert (found, type(found)) == (value, type(value))
    found = config_of("--env.options.deep.gravity", word).env.options["deep"]["gravity"]
    assert (found, type(found)) == (value, type(value))


def test_settings_of_an_algorithm_of_ones_own_are_numbers():
    own = "policies.own_algorithms:Vanilla"
    (name, default), *_ = load_config({"policy": {"algorithm": own}}).policy.entry.settings.items()
    assert isinstance(default, float)
    config = config_of("--policy.algorithm", own, f"--policy.settings.{name}", "1e-3")
    assert config.policy.settings == {name: 1e-3}


def test_counts_may_have_exponents():
    assert config_of("--run.turns", "1e6").run.turns == 1_000_000
    assert config_of("--policy.learning_rate", "1e-3").policy.learning_rate == 1e-3


def test_several_values_of_one_policy_may_be_a_single_one():
    config = config_of("--policies.agent_0.network.hidden", "64")
    assert config.policy_of("agent_0").network.hidden == (64,)
    config = config_of("--policies.agent_0.network.hidden", "64", "32")
    assert config.policy_of("agent_0").network.hidden == (64, 32)
    words = ("--policies.agent_0.network.convolutions", "[8,3,1]", "--policies.agent_0.n_steps=2")
    assert config_of(*words).policy_of("agent_0").network.convolutions == ((8, 3, 1),)


@pytest.mark.parametrize("words", [("[64,32]",), ("[64, 32]",), ("64", "32")])
def test_a_list_is_written_either_way(words):
    assert config_of("--policy.network.hidden", *words).policy.network.hidden == (64, 32)


@pytest.mark.parametrize("words", [("[[8,3,1],[16,3,2]]",), ("[8,3,1]", "[16,3,2]")])
def test_a_list_of_lists_is_written_either_way(words):
    found = config_of("--policy.network.convolutions", *words).policy.network.convolutions
    assert found == ((8, 3, 1), (16, 3, 2))


def test_texts_in_a_list_stay_as_they_are_written():
    words = ("--population.policies", "[on, 007, 1e3, null, 2026-01-01]")
    found = config_of(*words).population.policies
    assert found == ("on", "007", "1e3", "null", "2026-01-01")


@pytest.mark.parametrize("word", ["1e6", "1_000_000", "1000000", "1.0e+6"])
def test_a_number_of_turns_is_written_as_one_likes(word):
    assert config_of("--run.turns", word).run.turns == 1_000_000


def test_seats_and_members_of_teams_may_be_a_single_one():
    config = config_of("--population.seats.policy_0", "agent_0", "--population.policies", "hero")
    assert config.population.seats == {"policy_0": ("agent_0",)}
    assert config.population.policies == ("hero",)
    config = config_of("--population.teams.red.policies", "7", "--population.policies", "3")
    assert config.population.teams["red"].policies == ("7",)
    assert config.population.policies == 3
    assert config_of("--population.policies", "[a, b]").population.policies == ("a", "b")


@pytest.mark.parametrize("name", ["my-agent", "my_agent", "a-b_c", "Ä-1"])
def test_names_of_policies_agents_and_teams_are_as_they_are_written(name):
    config = config_of(f"--policies.{name}.learning-rate", "1e-3", f"--env.scripted.{name}=random")
    assert config.policies == {name: {"learning_rate": 1e-3}}
    assert config.policy_of(name).learning_rate == 1e-3
    assert config.env.scripted == {name: "random"}
    words = (f"--population.seats.{name}", "agent-0", "--population.policies", name)
    assert config_of(*words).population.seats == {name: ("agent-0",)}
    config = config_of(f"--population.teams.{name}.policies", name)
    assert config.population.teams[name].policies == (name,)
    config = config_of(f"--policies.{name}.network.options.two-words", "3")
    assert config.policies == {name: {"network": {"options": {"two_words": 3}}}}


def test_options_are_keywords_of_python_and_have_underscores():
    assert config_of("--env.options.num-agents", "3").env.options == {"num_agents": 3}
    assert config_of("--run.evaluate-episodes", "3").run.evaluate_episodes == 3


def test_an_unknown_key_of_one_policy_is_told():
    with refuses(ConfigError):
        config_of("--policies.a.batch_siz", "3")


def test_the_home_directory_is_found_in_every_path(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert config_of("--run.directory=~/x").run.directory == tmp_path / "x"
    found = parse_flags(["~/a", "--out=~/b"], WatchOptions, positional="run")
    assert WatchOptions.model_validate(found).run == tmp_path / "a"
    assert WatchOptions.model_validate(found).out == tmp_path / "b"
    found = parse_flags(["~/a", "b"], CompareOptions, positional="runs")
    assert CompareOptions.model_validate(found).runs == (tmp_path / "a", Path("b"))
    assert TrainOptions.read(["--resume=~/x"]).resume == str(tmp_path / "x")


@pytest.mark.parametrize(("word", "value"), [("best", "best"), ("7", 7)])
def test_a_checkpoint_is_a_number_or_a_name(word, value):
    found = parse_flags(["run", "--checkpoint", word], EvaluateOptions, positional="run")
    assert EvaluateOptions.model_validate(found).checkpoint == value


def test_a_switch_alone_is_on():
    assert parse_flags(["RUN", "--sampled"], TournamentOptions, positional="run")["sampled"] is True
    given = ["RUN", "--sampled", "false"]
    assert parse_flags(given, TournamentOptions, positional="run")["sampled"] is False
    with refuses(ConfigError):
        parse_flags(["RUN", "--episodes"], TournamentOptions, positional="run")


@pytest.mark.parametrize(
    "words",
    [
        ["RUN", "OTHER", "--episodes", "3", "--sampled"],
        ["--episodes", "3", "RUN", "OTHER", "--sampled"],
        ["--episodes=3", "RUN", "--sampled", "OTHER"],
        ["--sampled", "true", "RUN", "--episodes", "3", "OTHER"],
        ["--episodes", "3", "--sampled", "--run", "RUN", "OTHER"],
    ],
    ids=" ".join,
)
def test_words_behind_the_value_of_a_flag_are_no_part_of_it(words):
    """Red before: they were read as more of its value, and refused as no number."""
    found = parse_flags(words, TournamentOptions, positional="run")
    assert found == {"run": ["RUN", "OTHER"], "episodes": 3, "sampled": True}


@pytest.mark.parametrize(
    ("words", "value"),
    [(["--sampled", "0"], "0"), (["--sampled=0"], "0"), (["--sampled", "n"], "n")],
    ids=str,
)
def test_a_switch_is_turned_off_in_every_way(words, value):
    found = parse_flags(["RUN", *words], TournamentOptions, positional="run")
    assert found["run"] == ["RUN"]
    assert not TournamentOptions.model_validate(found).sampled


@pytest.mark.parametrize("words", [["--sampled="], ["--sampled", "null"], ["--sampled=RUN"]])
def test_what_says_neither_on_nor_off_is_refused(words):
    with refuses(ValidationError):
        TournamentOptions.model_validate(parse_flags(words, TournamentOptions, positional="run"))


def test_a_word_too_many_is_told():
    with refuses(ConfigError):
        config_of("--seed", "1", "2", "tag")
    with refuses(ConfigError):
        config_of("tag", "--game", "cleanup")
    assert config_of("--policy.network.hidden", "64", "32", "--seed", "1", "tag").game == "tag"
    with refuses(ConfigError):
        config_of("tag", "--env.options.sizes", "3", "4")
    assert config_of("--env.options.sizes", "[3, 4]").env.options == {"sizes": [3, 4]}


@pytest.mark.parametrize(
    ("words", "policies"),
    [
        (["--population.policies", "4", "tag"], 4),
        (["--population.policies=4", "tag"], 4),
        (["--population.policies=4", "--seed", "1", "tag"], 4),
        (["--population.policies=[a, b]", "tag"], ["a", "b"]),
        (["--population.policies", "[a, b]", "tag"], ["a", "b"]),
    ],
    ids=str,
)
def test_a_game_behind_a_value_that_is_whole_is_no_part_of_it(words, policies):
    """Red before: `4` and `tag` were two policies, in the game that is played by default."""
    found = parse_flags(words, Config, positional="game")
    assert found["game"] == "tag"
    assert found["population"]["policies"] == policies


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["--run.callbacks", "a:b", "tag"], "--run.callbacks"),
        (["--population.seats.one", "agent_0", "tag"], "--population.seats.one"),
        (["--actor.nodes", "one", "gymnasium:CartPole-v1"], "--actor.nodes"),
        (["--population.seats.one", "hunter", "mine.py:Game"], "--population.seats.one"),
    ],
    ids=str,
)
def test_a_game_that_became_the_value_of_an_option_is_told(words, key):
    with pytest.raises(ConfigError) as error:
        read_arguments(words)
    assert f"{words[-1]!r} is read as a value of {key}, so the" in str(error.value)
    assert "the game would be treasure_hunt: name the game before" in str(error.value)


def test_a_game_of_a_file_does_not_hide_one_that_became_the_value_of_an_option(tmp_path):
    """Red before: that of the file was trained, on a node called `cleanup`."""
    (tmp_path / "my.yaml").write_text("game: tag\n")
    words = ["--config", str(tmp_path / "my.yaml"), "--actor.nodes", "1", "cleanup"]
    with refuses(ConfigError, "--actor.nodes"):
        read_arguments(words)
    assert read_arguments([*words[:2], "--population.policies", "a", "tag"]).game == "tag"


@pytest.mark.parametrize(
    "words",
    [
        ["--population.policies=tag"],
        ["--population.policies=[a, tag]"],
        ["--env.options.kinds", "[a, tag]"],
        ["--env.options", "{kinds: [a, tag]}"],
    ],
    ids=str,
)
def test_what_is_no_word_of_its_own_may_be_called_as_a_game(words):
    assert read_arguments(words).game == "treasure_hunt"


def test_names_may_be_numbers_where_there_are_several():
    assert config_of("tag", "--population.policies", "[1, 2]").population.policies == ("1", "2")
    assert config_of("tag", "--population.policies", "08").population.policies == ("08",)
    words = ("--population.policies", "2", "--population.policies", "3")
    assert config_of("tag", *words).population.policies == 3


def test_what_is_behind_an_equals_sign_ends_with_it():
    hidden = "--policy.network.hidden"
    for words in (("tag", f"{hidden}=64", "32"), (f"{hidden}=64", "32")):
        with refuses(ConfigError):
            config_of(*words)
    with refuses(ConfigError):
        config_of("--seed=3", "4")
    with refuses(ConfigError):
        parse_flags(["--run=a", "b"], TournamentOptions, positional="run")


def test_several_texts_are_written_behind_one_flag():
    """Red before: the second flag won, and what the first said was lost."""
    for words in (["--run", "a", "--run", "b"], ["--run=a", "--run=b"]):
        with refuses(ConfigError):
            parse_flags(words, TournamentOptions, positional="run")
    with refuses(ConfigError):
        parse_flags(["--runs", "a", "--runs", "b"], CompareOptions, positional="runs")
    hidden = ("--policy.network.hidden", "64", "64", "--policy.network.hidden", "32")
    assert config_of("tag", *hidden).policy.network.hidden == (32,)  # as make's ARGS do it


@pytest.mark.parametrize("words", [[], ["tag"], ["true", "tag"]], ids=" ".join)
def test_a_switch_that_may_be_none_is_one(words):
    words = ["--checkpoint.replay", *words, *([] if "tag" in words else ["--game", "tag"])]
    config = config_of(*words)
    assert config.game == "tag"
    assert config.checkpoint.replay is True


@pytest.mark.parametrize(
    ("word", "seed"), [("010", 10), ("008", 8), ("0", 0), ("00", 0), ("1_000", 1000), ("0x1F", 31)]
)
def test_leading_zeros_change_nothing(word, seed):
    """Red before: `010` was eight, as once in YAML, so that `seq -w` named a seed twice."""
    assert config_of("tag", "--seed", word).seed == seed


def test_times_are_no_numbers():
    for words in (("--seed", "1:30"), ("--run.seconds", "1:30"), ("--run.seconds", "1:30.5")):
        with refuses(ConfigError):
            config_of("tag", *words)


def test_names_may_stand_in_a_list():
    words = ("tag", "--population.policies", "[a, 7]", "--population.matchmaker", "random")
    assert config_of(*words).population.policies == ("a", "7")


@pytest.mark.parametrize("words", [("[return,team_return]",), ("[return, team_return]",)])
def test_objectives_of_evolution_may_be_one_or_several(words):
    key = "--population.evolution.fitness"
    evolution = config_of(key, *words).population.evolution
    assert evolution.objectives == ("return", "team_return")
    assert config_of(key, "rating").population.evolution.objectives == ("rating",)
    assert config_of(key, "[rating]").population.evolution.objectives == ("rating",)
