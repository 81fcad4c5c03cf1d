"""The documentation: its programs run, what it names exists, its figures are recorded."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import remuda

with pytest.MonkeyPatch.context() as patch:
    # For these lines only: another program there is called `population`, as tests of ours are.
    patch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    import figures
    import recording
    import worlds_summary

from refusals import refuses
from remuda.config import Config, fields_of, load_config
from remuda.envs.contract import check_env
from remuda.population.ledger.ledger import BIRTH, read_records
from remuda.training.run import train
from remuda.ui.cli import reference
from remuda.ui.cli.arguments import parse_flags
from remuda.ui.cli.commands.train import TrainOptions, read_arguments
from remuda.ui.cli.main import COMMANDS
from remuda.ui.terminal.live import PlainView

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (ROOT / "README.md", ROOT / "ARCHITECTURE.md", *DOCS.glob("*.md"))
} | {f"docs/{name}": page() for name, page in reference.PAGES.items()}
GENERATED = ("figures.md", *reference.PAGES)
"""Pages that only the site has: `make site` makes them, and checks links to them."""
KEYS = fields_of(Config)
FLAG = re.compile(r"(?<![\w-])--([a-z][\w-]*(?:\.\w+)*)")
SECTIONS = "policy|env|run|population|checkpoint|learners|actor|supervision|cluster"


def programs(page):
    """The Python programs of a page that begin with the name of their file."""
    found = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    return dict(found)


def test_the_example_of_games_made_of_arrays(capsys):
    exec(programs("analysis.md")["games_of_arrays.py"], {})
    printed = capsys.readouterr().out
    assert "0% of the differences is skill" in printed
    assert "attackers plays siege 75%, rush 25% and earns 1.5" in " ".join(printed.split())


@pytest.fixture
def cake(tmp_path, monkeypatch):
    """The module of the example, as a user would have it in the directory he works in."""
    page = programs("bring_your_own_game.md")
    assert "class TestCake(VectorEnvContract)" in page["test_cake.py"]
    (tmp_path / "cake.py").write_text(page["cake.py"])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("cake", None)


def test_the_example_of_a_game_keeps_the_contract(cake):
    from cake import Cake

    check_env(Cake)
    assert len(programs("bring_your_own_game.md")["cake.py"].splitlines()) < 50


@pytest.mark.process
@pytest.mark.slow
def test_the_example_of_a_game_is_trained_by_its_command(cake, tmp_path):
    page = (DOCS / "bring_your_own_game.md").read_text()
    words = re.search(r"remuda (train cake:Cake .*--run.turns) 300000", page).group(1).split()
    more = ["3000", "--run.directory", str(tmp_path / "run"), "--run.live", "false"]
    program = Path(sys.executable).with_name("remuda")
    said = subprocess.run(
        [program, *words, *more], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    assert "eaten" in said.stdout


@pytest.mark.slow
def test_the_example_of_an_environment_overgrazes_unless_rewards_are_shared(tmp_path, monkeypatch):
    """As the page shows it: independent herders leave no grass."""
    (tmp_path / "commons.py").write_text(programs("bring_your_own_game.md")["commons.py"])
    monkeypatch.syspath_prepend(tmp_path)
    page = (DOCS / "bring_your_own_game.md").read_text().replace("\\\n", " ")
    words = re.search(r"remuda train (commons:Commons .*) --run.directory runs/first", page).group(
        1
    )
    earned = {}
    for share in ("0", "1"):
        more = ["--policy.share_rewards", share, "--run.directory", str(tmp_path / share)]
        config = read_arguments([*words.split(), "--schedule", "sequential", *more])
        result = train(config, PlainView())
        earned[share] = result.evaluation.returns.sum(axis=1).mean()
    assert earned["0"] < 12  # both together; what was there at first
    assert earned["1"] > 2 * earned["0"]


@pytest.mark.slow
def test_the_example_of_a_director_lets_policies_be_born(tmp_path, monkeypatch):
    (tmp_path / "curious.py").write_text(programs("populations.md")["curious.py"])
    monkeypatch.syspath_prepend(tmp_path)
    tree = {
        "game": "rock_paper_scissors",
        "schedule": "sequential",
        "env": {"num_envs": 64},
        "policy": {"algorithm": "ppo", "experience": {"segment_length": 1}},
        "population": {
            "matchmaker": "random",
            "policies": 3,
            "births": {"slots": 1},
            "director": "curious:Curious",
        },
        "run": {"turns": 8_000, "evaluate_episodes": 0, "directory": tmp_path / "run"},
        "checkpoint": {"evaluate_episodes": 0},
    }
    result = train(load_config(tree), PlainView())
    assert "born_0" in result.record.members
    records = read_records(tmp_path / "run" / "ledger.bin")[1]
    assert (records["kind"] == BIRTH).sum() == 1


@pytest.mark.slow
def test_the_example_of_a_callback_ends_a_run(tmp_path, monkeypatch):
    (tmp_path / "my_callbacks.py").write_text(programs("callbacks.md")["my_callbacks.py"])
    monkeypatch.syspath_prepend(tmp_path)
    from my_callbacks import StopWhenSolved

    monkeypatch.setattr(StopWhenSolved, "goal", 8.0)  # of what random play earns half
    halved = []

    class Looks(remuda.Callback):
        def on_end(self, run, result):
            halved.append(run.hyperparameters("agent_0")["learning_rate"])

    result = remuda.train(
        "gymnasium:CartPole-v1",
        schedule="sequential",
        policy={"algorithm": "ppo"},
        run={"turns": 10**9, "evaluate_episodes": 0, "directory": tmp_path / "run"},
        checkpoint={"evaluate_episodes": 0},
        view=PlainView(),
        callbacks=[StopWhenSolved(), Looks()],
    )
    assert result.ended == "stopped by a callback: every policy earns 8"
    assert halved == [1e-3]  # it earned enough at once
    sys.modules.pop("my_callbacks")


def commands(page):
    """Every command line of `remuda` in a page: in blocks, and between backticks."""
    text = PAGES[page].replace("\\\n", " ")
    blocks = "\n".join(re.findall(r"```\w*\n(.*?)```", text, re.DOTALL))
    inline = re.findall(r"`(remuda [^`]*)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    lines = [line.strip() for line in blocks.splitlines()] + [" ".join(i.split()) for i in inline]
    lines = [line.split("#")[0].strip().removesuffix(" &") for line in lines]
    return [line for line in lines if line.startswith("remuda ")]


def flags_of_options(model):
    keys = fields_of(model)
    return keys.keys() | {"help", "json", "version", "config", "preset", "resume", "seeds", "jobs"}


def is_flag(name, keys):
    """Whether a flag is one of these keys, or lies under one that is open to any name."""
    name = name.replace("-", "_")
    open_ended = ("env.options.", "env.scripted.", "policies.", "scripted.", "population.seats.")
    open_ended += ("policy.settings.", "policy.network.options.", "population.scripted.")
    open_ended += ("population.shares.", "population.policy_shares.", "env.episode_metrics.")
    if name in keys:
        return True
    if name.startswith("policies.") and name.count(".") > 1:
        return f"policy.{name.split('.', 2)[2]}" in keys
    return any(
        name.startswith(prefix) and prefix.split(".")[0] in {key.split(".")[0] for key in keys}
        for prefix in open_ended
        if prefix != "policies."
    )


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_are_commands(page):
    for line in commands(page):
        words = [w for w in shlex.split(line)[1:] if w not in ("[OPTIONS]", "...")]
        assert words[0] in COMMANDS or words[0].startswith("--"), line
        if words[0] not in COMMANDS:
            continue
        options = COMMANDS[words[0]].options
        for name in FLAG.findall(line):
            assert is_flag(name, flags_of_options(options)), f"{page}: {line}: --{name}"


@pytest.mark.parametrize("page", PAGES)
def test_a_training_command_of_a_page_is_accepted(page, tmp_path, monkeypatch):
    """Its flags have values that are allowed; of games that can be had here."""
    for line in commands(page):
        words = shlex.split(line)[1:]
        named = [word for word in words[1:2] if not word.startswith("--")]
        elsewhere = any(":" in word or word.isupper() for word in named)
        if words[0] != "train" or elsewhere or any(x in line for x in ("…", "NAME", "--help")):
            continue
        config = read_arguments(TrainOptions.read(words[1:]).flags)
        for name in (*config.env.scripted, *config.policies):
            assert re.fullmatch(r"(agent|policy|born|player|red|blue)_\d+", name), line


def of_others(text):
    """A page without the commands of Ray and of SLURM, whose flags Remuda does not know."""
    text = re.sub(r"\\\n", " ", text)
    text = re.sub(r"^#SBATCH.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^.*\b(?:ray start|srun) --.*$", "", text, flags=re.MULTILINE)
    return re.sub(r"`--[a-z-]+-port`", "", text)


@pytest.mark.parametrize("page", PAGES)
def test_the_flags_that_a_page_names_exist(page):
    """Those of benchmarks stand beside their programs' names."""
    known = set(KEYS)
    for command in COMMANDS.values():
        known |= flags_of_options(command.options)
    text = re.sub(r"benchmarks/\S+\.py[^`\n]*", "", PAGES[page])
    if page in ("docs/cluster.md", "docs/two_nodes.md"):
        text = of_others(text)
    programs = "\n".join(path.read_text() for path in (ROOT / "benchmarks").glob("*.py"))
    for name in FLAG.findall(text):
        assert is_flag(name, known) or f'"--{name}"' in programs, f"{page}: --{name}"


def is_attribute(name, page):
    """Whether `run.metrics` or `policy.act` is what a run or a policy of a page has."""
    thing, attribute, *_ = name.split(".")
    of_callbacks = page in ("docs/callbacks.md", "docs/curriculum.md")
    run = remuda.ActiveRun if of_callbacks else remuda.Run
    kind = {"run": run, "policy": remuda.Policy}.get(thing)
    return kind is not None and (hasattr(kind, attribute) or attribute in kind.__annotations__)


OF_PROGRAMS = (
    "docs/api.md",
    "docs/callbacks.md",
    "docs/curriculum.md",
    "docs/deploy.md",
    "docs/evolution.md",
    "docs/from_ml_agents.md",
    "docs/from_rllib.md",
    "docs/from_sb3.md",
    "docs/glossary.md",
    "docs/populations.md",
)
"""Pages that name attributes of a run as well as settings."""


@pytest.mark.parametrize("page", PAGES)
def test_the_settings_that_a_page_names_exist(page):
    for name in re.findall(rf"`((?:{SECTIONS})(?:\.\w+)+)", PAGES[page]):
        if name.startswith("env.") and name not in KEYS:
            continue  # the object of a program
        if name.endswith(".py"):
            continue
        if page in OF_PROGRAMS and is_attribute(name, page):
            continue
        assert is_flag(name, set(KEYS)), f"{page}: {name}"


@pytest.mark.parametrize("page", PAGES)
def test_the_files_and_targets_that_a_page_names_exist(page):
    for name in re.findall(r"\b((?:benchmarks|tests|examples)/[\w/]+\.(?:py|yaml))", PAGES[page]):
        assert (ROOT / name).exists(), f"{page}: {name}"
    for name in re.findall(r"\]\(([\w/.-]+\.(?:md|png|gif))", PAGES[page]):
        is_generated = page.startswith("docs/") and name in GENERATED
        assert is_generated or ((ROOT / page).parent / name).exists(), f"{page}: {name}"
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for name in re.findall(r"(?:^|`)make ([a-z][\w-]*)", PAGES[page], re.MULTILINE):
        assert name in targets, f"{page}: make {name}"


def test_seats_that_are_named_in_general_are_those_of_the_games():
    """`--env.scripted.player_2` named the agent of no game here."""
    from remuda.envs.registry import GAMES, make_env

    agents = {agent.name for game in GAMES for agent in make_env(game, 1).agents}
    for page, text in PAGES.items():
        for name in re.findall(r"--(?:env\.)?scripted\.(\w+)", text):
            assert name in agents, f"{page}: {name}"


def test_what_make_train_runs_is_a_training_command():
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    (line,) = re.findall(r"remuda train (.*) \$\(ARGS\)", makefile)
    config = read_arguments(shlex.split(line))
    assert config.game == "treasure_hunt"
    assert parse_flags(shlex.split(line), Config, positional="game")


@pytest.mark.parametrize("page", PAGES)
def test_the_figures_of_a_page_are_those_that_benchmarks_recorded(page):
    """`make figures` writes them; a page that differs, or names a file that is not there, fails."""
    assert figures.rendered(PAGES[page]) == PAGES[page]


@pytest.mark.parametrize("page", PAGES)
def test_no_figure_inside_a_sentence_begins_a_line(page):
    """Markdown takes a comment at the start of a line for a block, which splits the sentence."""
    found = re.findall(r"^ *<!-- figures: .*<!-- /figures -->.*", PAGES[page], re.MULTILINE)
    assert not found, "move a word of the line before to its start"


def test_the_table_of_worlds_is_that_of_their_rows():
    """Those that were recorded since, too: `python benchmarks/worlds_summary.py --record`."""
    found = json.loads((recording.FIGURES / "worlds_summary.json").read_text())
    assert found["figures"] == worlds_summary.summary().figures()
    names = {file.name.split(".")[1] for file in recording.FIGURES.glob("worlds.*.json")}
    assert names <= set(worlds_summary.ORDER)


@pytest.mark.parametrize("file", sorted(recording.FIGURES.glob("*.json")), ids=lambda f: f.stem)
def test_a_recorded_file_says_how_its_figures_came_about(file):
    record = json.loads(file.read_text())
    assert record.keys() >= {"command", "date", "machine", "commit", "python", "torch", "numpy"}
    figures = record["figures"]
    assert figures["rows"] or figures["bars"] or (record.get("so_far") and record["runs"])
    program = record["command"].split()[1]
    assert (ROOT / program).exists()
    assert not re.search(r"[\s\"']/\w", file.read_text()), "a path of the machine"


MEASURED = re.compile(
    r"\d[\d,.]*( million)?( trained)? (agent-)?(steps|games|updates|turns)(/s| a second)"
    r"|\d\s?(ms|us|MiB|GiB|GFLOP|%)(?!\w)|\d(\.\d+)?(x\b| times)"
)


@pytest.mark.parametrize("page", ["README.md", "docs/performance.md"])
def test_a_figure_outside_the_marks_is_told_as_an_earlier_measurement(page):
    text = PAGES[page].split("\n## Earlier measurements")[0]
    text = figures.BLOCK.sub("", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    for item in re.split(r"\n\n|\n- ", text):
        told = "#earlier-measurements" in item
        assert told or not MEASURED.search(item), f"{page}: {item}"


def recorded(folder, **cells):
    """A file of figures as a benchmark writes it."""
    results = recording.Results("trial")
    results.row({"policies": 8, "trained/s": 388_123.4, **cells})
    results.row({"policies": 64, "trained/s": 352_000.0})
    results.bar("trained/s", 388_123.4, least=150_000)
    results.bar("cost", 1.5, most=1.25)
    (folder / "trial.json").write_text(json.dumps(results.record()))


def test_figures_stand_between_their_marks(tmp_path):
    recorded(tmp_path)
    page = (
        "Some <!-- figures: trial | 64 | trained/s -->0<!-- /figures --> steps.\n\n"
        "<!-- figures: trial -->\nold\n<!-- /figures -->\nThe end."
    )
    text = figures.rendered(page, tmp_path)
    assert "Some <!-- figures: trial | 64 | trained/s -->352,000<!-- /figures --> steps." in text
    second = "<!-- figures: trial | 8; 388,120 | policies -->0<!-- /figures -->"
    assert ">8<" in figures.rendered(second, tmp_path)
    assert "| policies | trained/s |\n| --- | --- |\n| 8 | 388,120 |\n| 64 | 352,000 |" in text
    assert "| trained/s | 388,120 | at least 150,000 | met |" in text
    assert "| cost | 1.5 | at most 1.25 | **missed** |" in text
    assert "old" not in text
    assert text.endswith("<!-- /figures -->\nThe end.")
    assert figures.rendered(text, tmp_path) == text


def test_a_page_that_says_something_else_than_the_file_is_found(tmp_path):
    recorded(tmp_path)
    page = figures.rendered("<!-- figures: trial -->\n<!-- /figures -->", tmp_path)
    recorded(tmp_path, more=1.0)
    assert figures.rendered(page, tmp_path) != page


def test_a_part_of_a_table_has_the_rows_that_match(tmp_path):
    recorded(tmp_path, peer=None)
    mark = "<!-- figures: trial | {} | trained/s; policies -->\n<!-- /figures -->"
    assert "\n| 388,120 | 8 |\n| 352,000 | 64 |\n" in figures.rendered(mark.format("*"), tmp_path)
    (one,) = re.findall(r"^\| \d.*", figures.rendered(mark.format("*; 352*"), tmp_path), re.M)
    assert one == "| 352,000 | 64 |"
    cell = "<!-- figures: trial | *4 | trained/s -->0<!-- /figures -->"
    assert ">352,000<" in figures.rendered(cell, tmp_path)


def test_missed_bars_are_counted(tmp_path):
    recorded(tmp_path)
    of_one, of_all = (f"<!-- figures: {n} | missed --><!-- /figures -->" for n in ("trial", "*"))
    assert ">1 of 2<" in figures.rendered(of_one, tmp_path)
    (tmp_path / "other.json").write_text((tmp_path / "trial.json").read_text())
    assert ">2 of 4<" in figures.rendered(of_all, tmp_path)


def test_the_page_of_all_figures_begins_with_the_missed_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(ROOT / "benchmarks" / "stacks.py")])
    recorded(tmp_path)
    page = figures.all_of(tmp_path)
    missed, section = page.split("## trial {#trial}")
    assert "Missed bars: 1 of 2." in missed
    assert "| [trial](#trial) | cost | 1.5 | at most 1.25 |" in missed
    assert "| 8 | 388,120 |" in section
    assert "`python benchmarks/stacks.py`" in section
    names = set(re.findall(r"^## (\S+)", figures.all_of(), re.MULTILINE))
    assert names == {file.stem for file in recording.FIGURES.glob("*.json")}


@pytest.mark.parametrize(
    "mark",
    ["nothing", "trial | 9 | trained/s", "trial | 8 | played/s", "trial | * | policies; played/s"],
)
def test_figures_that_nobody_recorded_are_refused(tmp_path, mark):
    recorded(tmp_path)
    with refuses(figures.FiguresError):
        figures.rendered(f"<!-- figures: {mark} -->1<!-- /figures -->", tmp_path)


def test_what_is_recorded_names_no_host_and_no_path(tmp_path, monkeypatch):
    words = [str(tmp_path / "benchmarks" / "stacks.py"), "floor", "--out", str(tmp_path / "a.json")]
    monkeypatch.setattr(sys, "argv", words)
    recorded(tmp_path)
    record = json.loads((tmp_path / "trial.json").read_text())
    assert record["command"] == "python benchmarks/stacks.py floor --out a.json"
    assert record["machine"].keys() == {"cores", "cpu", "memory_gib"}
    assert str(tmp_path) not in json.dumps(record)


@pytest.mark.parametrize(
    "program", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda p: p.stem
)
def test_every_benchmark_records(program):
    text = program.read_text()
    is_program = '__name__ == "__main__"' in text  # and no part of one
    if is_program and program.name not in (
        "figures.py",
        "worlds_picture.py",
        "brigade_map_picture.py",
        "dashboard_picture.py",
    ):
        told = "a benchmark takes recording.options_of and ends with Results.finish"
        assert "options_of(parser)" in text, told
        assert re.search(r"results\.finish\((options|words)\)", text), told
