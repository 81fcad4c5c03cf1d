"""A run may be another person's: resumed, it writes inside itself and connects to no machine."""

from refusals import refuses
from remuda.config import load_config
from remuda.errors import ConfigError
from remuda.training.resume import confirmed


def config_of(tmp_path, **tree):
    return load_config({"game": "kuhn_poker", "run": {"directory": tmp_path / "run"}} | tree)


def test_a_trace_elsewhere_is_written_inside_the_run(tmp_path):
    """Red before: it overwrote any file of the user's."""
    said, elsewhere = [], config_of(tmp_path, trace=tmp_path / "mine.json")
    found = confirmed(elsewhere, (), said.append)
    assert found.trace == tmp_path / "run" / "trace.json"
    assert "--trace" in said[0]
    assert confirmed(elsewhere, ("trace",), said.append) is elsewhere
    around = config_of(tmp_path, trace=tmp_path / "run" / ".." / "mine.json")
    assert confirmed(around, (), said.append).trace == tmp_path / "run" / "trace.json"
    inside = config_of(tmp_path, trace=tmp_path / "run" / "spans.json")
    assert confirmed(inside, (), said.append) is inside
    assert len(said) == 2


def test_a_link_does_not_lead_a_trace_out_of_the_run(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "trace.json").symlink_to(tmp_path / "mine.json")
    inside = config_of(tmp_path, trace=tmp_path / "run" / "trace.json")
    with refuses(ConfigError):
        confirmed(inside, (), print)


def test_an_address_is_given_again(tmp_path):
    """Red before: the run connected to whatever its file names."""
    config = config_of(tmp_path, cluster={"address": "10.0.0.1:6379"})
    with refuses(ConfigError):
        confirmed(config, (), print)
    assert confirmed(config, ("cluster.address",), print) is config
