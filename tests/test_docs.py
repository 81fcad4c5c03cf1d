"""The programs in the documentation run as they are written."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.config import load_config
from remuda.envs.contract import check_env
from remuda.population.ledger import BIRTH, read_records
from remuda.train import train
from remuda.ui.live import PlainView

DOCS = Path(__file__).parent.parent / "docs"


def programs(page):
    """The Python programs of a page that begin with the name of their file."""
    found = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    return dict(found)


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


def test_the_example_of_a_game_is_trained_by_its_command(cake, tmp_path):
    page = (DOCS / "bring_your_own_game.md").read_text()
    words = re.search(r"remuda (train cake:Cake .*--run.turns) 300000", page).group(1).split()
    more = ["30000", "--run.directory", str(tmp_path / "run"), "--run.live", "false"]
    program = Path(sys.executable).with_name("remuda")
    said = subprocess.run(
        [program, *words, *more], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    assert "eaten" in said.stdout


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
            "births": {"places": 1},
            "director": "curious:Curious",
        },
        "run": {"turns": 8_000, "evaluate_episodes": 0, "directory": tmp_path / "run"},
        "checkpoint": {"evaluate_episodes": 0},
    }
    result = train(load_config(tree), PlainView())
    assert "born_0" in result.record.members
    records = read_records(tmp_path / "run" / "ledger.bin")[1]
    assert (records["kind"] == BIRTH).sum() == 1
