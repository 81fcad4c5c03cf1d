"""Logs of other nodes: asked for, written down when they come, and waited for by nothing."""

from types import SimpleNamespace

from remuda.cluster.member import FetchedLogs
from remuda.errors import NodeLostError


def call_of(answer):
    def result(timeout):
        if isinstance(answer, Exception):
            raise answer
        return answer

    return SimpleNamespace(done=lambda: answer is not None, result=result)


def test_logs_are_kept_when_they_come_and_those_of_a_lost_node_never(tmp_path):
    logs, late = FetchedLogs(tmp_path), call_of(None)
    logs.expect("one", call_of({"actor": "it died"}))
    logs.expect("two", late)
    logs.expect("three", call_of(NodeLostError("gone")))
    logs.hear()
    assert [path.name for path in tmp_path.iterdir()] == ["actor@one.log"]
    assert (tmp_path / "actor@one.log").read_text() == "it died"
    late.done, late.result = lambda: True, lambda timeout: {"learner": "so did I"}
    logs.hear()
    assert (tmp_path / "learner@two.log").read_text() == "so did I"
    logs.hear()
