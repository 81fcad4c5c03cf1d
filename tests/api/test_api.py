"""The front door."""

import json
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

import remuda
from refusals import refuses
from remuda.config import overlay
from remuda.runs.run_directory import RunDirectory
from remuda.runs.saved_weights import load_snapshots
from remuda.ui.cli.main import run as command
from remuda.ui.terminal.live import PlainView
from support import Tape

SMALL = {
    "schedule": "sequential",
    "env": {"num_envs": 1},
    "policy": {"algorithm": "ppo", "network": {"hidden": (16,)}, "ppo": {"rollout_length": 20}},
    "run": {"turns": 300, "evaluate_episodes": 2, "log_every": 0.05},
    "checkpoint": {"evaluate_episodes": 0},
}
POPULATION = {
    "matchmaker": "self_play",
    "policies": 1,
    "snapshots": {"every": 2, "keep": 3},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("api") / "run"
    result = remuda.train(
        "support:Tape", config=SMALL, run={"directory": directory}, view=PlainView()
    )
    assert result.finished
    return remuda.load(result)


def test_everything_at_the_door_is_there():
    assert remuda.__version__
    assert set(remuda.__all__) == set(dir(remuda))
    for name in remuda.__all__:
        assert getattr(remuda, name) is not None
    with refuses(AttributeError):
        remuda.trian  # noqa: B018


@pytest.mark.process
def test_importing_it_loads_nothing_else():
    code = "import sys, remuda; print(*(m for m in sys.modules if m.startswith('remuda')))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lazy = {"remuda.system.public_names", "remuda.system.version"}
    assert set(out.stdout.split()) == {"remuda", "remuda.system"} | lazy


@pytest.mark.slow
def test_a_run_is_a_mapping_of_its_policies(run):
    assert list(run) == ["agent_0", "agent_1"]
    assert len(run) == 2
    assert "agent_1" in run
    assert run["agent_1"].name == "agent_1"
    assert run["agent_1"].version > 1
    assert run.game == "support:Tape"
    assert run.agents == ("agent_0", "agent_1")
    with refuses(KeyError):
        run["agent_7"]


@pytest.mark.slow
def test_a_policy_of_a_checkpoint(run):
    (*_, number) = run.checkpoints
    saved, final = run.policy("agent_0", checkpoint=number), run["agent_0"]
    assert 1 < saved.version <= final.version
    assert run.policy("agent_0", checkpoint="best").version
    with refuses(remuda.RemudaError):
        run.policy("agent_0", checkpoint=77)


def test_metrics_are_columns(run):
    metrics = run.metrics()
    assert metrics["turns"][-1] == 300
    assert (np.diff(metrics["seconds"]) >= 0).all()
    assert metrics["agent_0/updates"].shape == (metrics.num_rows,)
    assert metrics["agent_0/updates"].dtype == np.float64
    with refuses(KeyError):
        metrics["agent_0/update"]


def test_a_run_is_evaluated_again(run):
    found = run.evaluate(episodes=4, seed=3)
    assert found.returns.shape == (4, 2)
    again = run.evaluate(episodes=4, seed=3)
    assert (found.returns == again.returns).all()
    against = run.evaluate(episodes=4, scripted={"agent_1": "random"})
    assert against.returns.shape == (4, 2)


def test_results_are_printed_as_short_tables(run):
    found = run.evaluate(episodes=4)
    lines = str(found).splitlines()
    assert lines[0] == "Evaluation: 4 episodes, greedy"
    assert [line.split()[0] for line in lines[1:]] == ["agent", "agent_0", "agent_1"]
    assert "<td>agent_0</td>" in found._repr_html_()


@pytest.mark.slow
def test_the_result_of_a_run_is_printed_as_a_short_table(tmp_path):
    directory = tmp_path / "run"
    result = remuda.train("support:Tape", config=SMALL, run={"directory": directory}, view="quiet")
    first, second, *_ = str(result).splitlines()
    assert first.startswith(f"Result of {directory}: ")
    assert "300 turns" in first
    assert second.startswith("Evaluation: 2 episodes")
    assert "<table>" in result._repr_html_()


def test_a_report_is_made(run):
    page = run.report()
    assert page == run.path / "report.html"
    assert "support:Tape" in page.read_text()


@pytest.mark.slow
def test_a_run_goes_on_where_it_stopped(tmp_path):
    first = remuda.train(
        "support:Tape", config=SMALL, run={"directory": tmp_path / "run"}, view=PlainView()
    )
    result = remuda.train(resume=remuda.load(first), run={"turns": 500}, view=PlainView())
    assert result.record.turns == 500
    assert result.directory == first.directory


@pytest.mark.slow
def test_a_run_that_is_over_says_what_would_go_on_with_it(tmp_path, capsys):
    first = remuda.train(
        "support:Tape", config=SMALL, run={"directory": tmp_path / "run"}, view=PlainView()
    )
    capsys.readouterr()
    remuda.train(resume=first, view=PlainView())
    output = capsys.readouterr().out
    assert "all turns were played: nothing was left to do" in output
    assert "to extend it, add --run.turns" in output
    remuda.train(resume=first, run={"turns": 500}, view=PlainView())
    assert "nothing more" not in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["sequential", "async"])
def test_a_run_that_is_over_has_the_weights_that_it_ended_with(tmp_path, schedule):
    """Learners train on for a moment after the last checkpoint; that was lost."""
    run = {"directory": tmp_path / "run", "turns": 2000}
    first = remuda.train("support:Tape", config=SMALL, schedule=schedule, run=run, view=PlainView())
    files = sorted((tmp_path / "run" / "weights").iterdir())
    before = [path.read_bytes() for path in files]
    if schedule == "sequential":  # as if it had trained on
        before = [before[-1]] * len(files)
        for path, data in zip(files, before, strict=True):
            path.write_bytes(data)
    remuda.train(resume=first, view=PlainView())
    assert [path.read_bytes() for path in files] == before
    remuda.train(resume=first, run={"turns": 2300}, view=PlainView())
    assert [path.read_bytes() for path in files] != before
    superseded = sorted((tmp_path / "run" / "earlier" / "2" / "weights").iterdir())
    assert [path.read_bytes() for path in superseded] == before


@pytest.mark.slow
def test_a_policy_is_trained_on_a_device_of_its_own(tmp_path, run):
    """Here two names of the same device, so that the weights are the same."""
    other = remuda.train(
        "support:Tape",
        config=SMALL,
        policies={"agent_1": {"device": "cpu:0"}},
        run={"directory": tmp_path / "run"},
        view=PlainView(),
    )
    assert remuda.load(other).summary()["layout"].endswith("on cpu, cpu:0")
    for name in run:
        before, after = run[name].weights(), remuda.load(other)[name].weights()
        assert all((before[key] == after[key]).all() for key in before)


def test_frozen_copies_are_policies_too(tmp_path):
    result = remuda.train(
        "kuhn_poker",
        config=SMALL,
        population=POPULATION,
        run={"directory": tmp_path / "run"},
        view=PlainView(),
    )
    run = remuda.load(str(result.directory))
    assert len(run.frozen) == 3
    name = run.frozen[0]
    assert run[name].learner_step > 0
    assert run.policy(name, checkpoint=run.checkpoints[-1]).version == run[name].version
    with refuses(remuda.RemudaError):
        run.policy(name, checkpoint=77)
    with refuses(remuda.UsageError):
        run.policy(name, checkpoint="best")
    copy, live = run[name], run["policy_0"]
    assert name in run
    assert copy.name == name == f"policy_0@{copy.version}"
    assert copy.version < live.version
    assert (copy.player.snapshot.weights != live.player.snapshot.weights).any()
    with refuses(KeyError):
        run["policy_0@999"]


def trained(directory, seed, algorithm="ppo", **tree):
    policy = {"algorithm": algorithm, "network": {"hidden": (8,)}}
    return remuda.load(
        remuda.train(
            "rock_paper_scissors",
            schedule="sequential",
            seed=seed,
            policy=policy,
            run={"turns": 64, "evaluate_episodes": 0, "directory": directory},
            checkpoint={"evaluate_episodes": 0},
            view=PlainView(),
            **tree,
        )
    )


@pytest.mark.slow
def test_policies_of_unlike_runs_play_a_tournament(tmp_path):
    one, two = trained(tmp_path / "one", 1), trained(tmp_path / "two", 2, "dqn")
    entrants = [one["agent_0"], two["agent_0"], one["agent_1"], "random"]
    found = remuda.tournament(entrants, game="rock_paper_scissors", episodes=30)
    assert found.entrants == ("agent_0", "agent_0 (2)", "agent_1", "random")
    # What one wins the other loses; greedy policies do the same thing always.
    for i in range(3):
        assert found.means[i, i] == 0.0
        for j in range(3):
            assert found.means[i, j] == -found.means[j, i]
            assert found.errors[i, j] == 0.0
    seen = one["agent_0"].observation_space.low.copy()
    seen[0] = 1.0  # as in the game's only round
    acts = [int(who.act(seen)) for who in entrants[:3]]
    for i, mine in enumerate(acts):
        for j, theirs in enumerate(acts):
            won = {0: 0.0, 1: 1.0, 2: -1.0}[(mine - theirs) % 3]  # paper beats rock, and so on
            assert np.sign(found.means[i, j]) == won
    assert abs(found.means[0, 3]) < 1.0
    assert found.errors[0, 3] > 0.0
    again = remuda.tournament(entrants, game="rock_paper_scissors", episodes=30)
    assert (again.means == found.means).all()


class FirstMover(Tape):
    """One agent earns in each turn what the other loses, whatever they do; lengths are drawn."""

    def reset(self, seeds, mask):
        super().reset(seeds, mask)
        self._lengths[mask] = np.where(seeds[mask] % 2, 3, 5)

    def act(self, agent, actions):
        self.acts += 1
        self._rewards[:, agent] = 1 - 2 * agent


def test_what_a_seat_earns_more_than_another_is_no_error(tmp_path):
    result = remuda.train(
        "api.test_api:FirstMover",
        config=SMALL,
        run={"directory": tmp_path / "run"},
        view=PlainView(),
    )
    run = remuda.load(result)
    found = remuda.tournament(dict(run), game="api.test_api:FirstMover", episodes=20)
    lengths = {3.0, -3.0, 5.0, -5.0}
    assert (np.abs(found.means) <= 5 * found.errors).all()
    assert (np.abs(found.means) < 1.0).all()
    returns = run.evaluate(episodes=20).returns
    assert set(returns.ravel().tolist()) == lengths
    of_seat = returns.std(0, ddof=1) / np.sqrt(20)
    apart = ~np.eye(len(found.entrants), dtype=bool)
    assert found.errors[apart] == pytest.approx(np.sqrt((of_seat**2).sum()) / 2, rel=0.3)
    # Where both seats are one's own, they earn nothing together in every match.
    assert (found.errors[~apart] == 0.0).all()


def test_who_cannot_play_a_game_is_told(tmp_path):
    policy = trained(tmp_path / "one", 1)["agent_0"]
    with refuses(remuda.UsageError):
        remuda.tournament({"us": policy}, game="tag")
    with refuses(remuda.ConfigError):
        remuda.tournament([policy, "tactician"], game="rock_paper_scissors")
    with refuses(remuda.UsageError):
        remuda.tournament([policy], game="rock_paper_scissors", episodes=0)


@pytest.mark.parametrize(
    "asked",
    [
        lambda run: remuda.tournament([3], game="tag"),
        lambda run: remuda.tournament([], game="tag"),
        lambda run: remuda.tournament("random", game="tag"),
        lambda run: remuda.tournament(["random"], game="tag", episodes="many"),
        lambda run: run.evaluate(episodes="many"),
        lambda run: run.evaluate(episodes=2.5),
        lambda run: run.evaluate(seed=None),
        lambda run: run.evaluate(checkpoint="7"),
        lambda run: run.evaluate(checkpoint=True),
        lambda run: run.evaluate(scripted=["random"]),
        lambda run: run.evaluate(scripted={"agent_1": 3}),
        lambda run: remuda.load(None),
        lambda run: remuda.load(3),
        lambda run: remuda.train(resume=True),
        lambda run: remuda.train(resume=run, run=None),
        lambda run: remuda.train(resume=run, run={"directory": "elsewhere"}),
        lambda run: run["agent_0"].act(run["agent_0"].observation_space.sample(), state=3),
    ],
)
def test_arguments_that_are_none_are_told_in_one_line(run, asked):
    with refuses(remuda.UsageError):
        asked(run)


def test_a_column_that_is_misspelled_is_told_with_those_near_it(run):
    with pytest.raises(KeyError) as told:
        run.metrics()["agent_0/retrun"]
    assert len(str(told.value)) < 200


def test_one_episode_leaves_a_summary_that_any_program_reads(tmp_path):
    tree = {"turns": 50, "evaluate_episodes": 1, "directory": tmp_path / "run"}
    remuda.train("support:Tape", config=SMALL, run=tree, view=PlainView())

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    text = (tmp_path / "run" / "summary.json").read_text()
    summary = json.loads(text, parse_constant=refuse)
    found = next(iter(summary["evaluation"]["agents"].values()))
    assert found["standard_error"] is None
    assert remuda.load(tmp_path / "run").metrics()["turns"].size


def test_what_is_no_run_is_told(tmp_path):
    with refuses(remuda.RemudaError):
        remuda.load(tmp_path)


def test_a_run_is_itself(run):
    assert run == run  # noqa: PLR0124
    assert run != remuda.load(run.path)
    assert {run: 1}[run] == 1
    metrics = run.metrics()
    assert metrics == metrics  # noqa: PLR0124
    assert 3 not in run
    with refuses(KeyError):
        run[3]
    assert {name: policy.name for name, policy in run.items()} == {n: n for n in run}
    for wrong in (True, 1.5, "first"):
        with refuses(remuda.UsageError):
            run.policy("agent_0", checkpoint=wrong)
    for wrong in ({"episodes": 0}, {"seed": -1}):
        with refuses(remuda.UsageError):
            run.evaluate(**wrong)


def test_the_policies_of_a_run_are_read_once(run, monkeypatch):
    reads = []
    monkeypatch.setattr(
        "remuda.training.saved.policies.load_snapshots",
        lambda *words: reads.append(1) or load_snapshots(*words),
    )
    assert len(dict(run.items())) == len(list(run.values())) == 2
    assert len(reads) == 2


def test_a_run_that_has_saved_nothing_has_no_policies(tmp_path):
    RunDirectory.create(
        remuda.config.load_config({"game": "tag", "run": {"directory": tmp_path / "run"}})
    ).unlock()
    young = remuda.load(tmp_path / "run")
    assert list(young) == list(young.items()) == []
    assert "agent_0" not in young
    with refuses(remuda.RemudaError):
        young["agent_0"]


def test_a_run_is_found_from_elsewhere(run, tmp_path, monkeypatch):
    monkeypatch.chdir(run.path.parent)
    near = remuda.load("run")
    monkeypatch.chdir(tmp_path)
    assert near["agent_0"].version == run["agent_0"].version
    assert near.checkpoints == run.checkpoints


def test_what_needs_no_game_is_there_without_it(tmp_path, run):
    shutil.copytree(run.path, tmp_path / "run")
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text().replace("support:Tape", "gone_module:Tape"))
    left = remuda.load(tmp_path / "run")
    assert left.metrics()["turns"][-1] == 300
    assert left.summary()["turns"] == 300
    assert left.checkpoints == run.checkpoints
    with refuses(remuda.RemudaError):
        left["agent_0"]


def test_the_settings_of_another_run_may_be_used_again(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = remuda.train(config=run.config, seed=7, run={"turns": 60}, view=PlainView())
    assert result.directory != run.path
    again = remuda.load(result).config
    assert (again.seed, again.run.turns, again.policy) == (7, 60, run.config.policy)
    with refuses(remuda.UsageError):
        remuda.train(config=[1])


def test_what_no_file_can_hold_is_told_and_leaves_nothing(tmp_path):
    words = {"config": SMALL, "run": {"directory": tmp_path / "run"}, "view": PlainView()}
    with refuses(remuda.ConfigError, "env.options.lengths", "numpy.ndarray"):
        remuda.train("support:Tape", env={"options": {"lengths": np.array([3, 5])}}, **words)
    assert remuda.train("support:Tape", env={"options": {"lengths": [3, 5]}}, **words).finished


def test_a_run_may_be_trained_by_any_thread(tmp_path):
    results = []

    def work():
        results.append(
            remuda.train(
                "support:Tape", config=SMALL, run={"directory": tmp_path / "run"}, view=PlainView()
            )
        )

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results[0].finished


def test_settings_that_are_wrong_are_told_as_on_the_command_line(tmp_path):
    with refuses(remuda.ConfigError, "policy.lr"):
        remuda.train("tag", policy={"lr": 1.0})
    with refuses(remuda.ConfigError):
        remuda.train("tagg")


def test_a_number_of_numpys_is_a_checkpoint(run):
    number = np.int64(run.checkpoints[-1])
    saved = run.policy("agent_0", checkpoint=number)
    assert saved.reference == f"{run.path}:agent_0@checkpoint-{number}"
    assert run.evaluate(episodes=2, checkpoint=number).returns.shape == (2, 2)


@pytest.mark.slow
def test_a_section_of_another_run_is_laid_over(tmp_path):
    """It replaced all of the section: the rest of it had its defaults again."""
    first = remuda.train(
        "support:Tape", config=SMALL, run={"directory": tmp_path / "run"}, view=PlainView()
    )
    before = remuda.load(first).config
    longer = before.run.model_copy(update={"turns": 400})
    result = remuda.train(resume=first, run=longer, view=PlainView())
    assert result.record.turns == 400
    assert remuda.load(result).config.run == longer
    tree = overlay(SMALL, {"run": {"directory": tmp_path / "other", "callbacks": []}})
    section = remuda.config.RunConfig(turns=40, evaluate_episodes=0)
    policy = before.policy.model_copy(update={"learning_rate": 0.02})
    other = remuda.train("support:Tape", config=tree, run=section, policy=policy, view=PlainView())
    found = remuda.load(other).config
    assert found.policy == policy
    assert (found.run.turns, found.run.log_every) == (40, SMALL["run"]["log_every"])


def always_two(env, agent, observations, random):
    return np.full(len(observations), 2)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"options": {"num_agents": 3}}, ["env.options.num_agents", "agent_0, agent_1, agent_2"]),
        ({"options": {"lenghts": [7]}}, ["env.options.lenghts", "lengths"]),
        ({"lengths": [7]}, ["env.lengths", "options"]),
        ({"options": 3}, ["env.options"]),
    ],
)
def test_options_that_policies_cannot_play_are_refused(run, env, words):
    with refuses(remuda.RemudaError, *words):
        run.evaluate(episodes=2, env=env)


def test_functions_may_play_without_having_learned(run, tmp_path):
    twos = run.evaluate(episodes=4, scripted={"agent_1": always_two})
    assert twos.returns[:, 1].tolist() == [2.0 * 3] * 4  # one copy, as in training: of 3 turns
    longer = {"options": {"lengths": [7]}}
    twos = run.evaluate(episodes=4, scripted={"agent_1": always_two}, env=longer)
    assert twos.returns[:, 1].tolist() == [2.0 * 7] * 4
    assert run.config.env.options == {}


def test_the_command_evaluates_with_other_options(run, capsys):
    policy = f"{__name__}:always_two"
    words = ["--episodes", "2", "--scripted.agent_1", policy, "--env.options.lengths", "[7]"]
    assert command(["evaluate", str(run.path), *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["agents"]["agent_1"]["mean"] == 14.0


def test_scripted_functions_may_play_in_training(tmp_path):
    def always_three(env, agent, observations, random):
        return np.full(len(observations), 3)

    result = remuda.train(
        "support:Tape",
        config=SMALL,
        env={"scripted": {"agent_1": always_three}},
        run={"directory": tmp_path / "run", "turns": 40},
        view=PlainView(),
    )
    assert set(result.evaluation.returns[:, 1].tolist()) <= {3.0 * 3, 3.0 * 5}
    assert remuda.load(result).config.env.scripted["agent_1"].startswith("pickled:always_three-")


@pytest.mark.parametrize("view", [5, "silent", object()])
def test_what_is_no_view_is_refused(view, tmp_path):
    run = {"turns": 10, "directory": tmp_path / "run"}
    with refuses(remuda.UsageError):
        remuda.train("rock_paper_scissors", view=view, run=run)
    assert not (tmp_path / "run").exists()
