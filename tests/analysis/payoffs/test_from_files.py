"""Payoffs from other programs are read, and what is wrong with a file is told by its line."""

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.payoffs.from_files import read_file
from remuda.errors import UsageError


def test_a_table_of_payoffs_is_a_symmetric_game_where_names_agree(tmp_path):
    path = tmp_path / "payoffs.csv"
    path.write_text("policy, b, a\na, 1, 0\nb, 0.5, -1\n")
    found = read_file(path).payoffs
    assert found.symmetric
    assert found.names == ("a", "b")
    assert found.matrix.tolist() == [[0.0, 1.0], [-1.0, 0.5]]
    assert found.errors.max() == 0.0


def test_a_table_of_two_roles_is_a_zero_sum_game(tmp_path):
    path = tmp_path / "payoffs.csv"
    path.write_text(",x,y,z\na,1,2,3\nb,4,5,6\n")
    found = read_file(path)
    assert [role.strategies for role in found.roles] == [("a", "b"), ("x", "y", "z")]
    assert found.is_whole
    assert found.tensor()[0].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert found.tensor()[1].tolist() == (-found.tensor()[0]).tolist()


def test_a_list_of_matches_has_its_uncertainty(tmp_path):
    path = tmp_path / "matches.csv"
    path.write_text(
        "row,seed,column,row_return,column_return\na,1,b,1,-1\nb,2,a,1,-1\na,3,b,1,-1\n"
    )
    found = read_file(path).payoffs
    assert found.names == ("a", "b")
    assert found.counts[0, 1] == 3
    assert found.matrix[0, 1] == pytest.approx(1 / 3)
    assert found.errors[0, 0, 1] > 0.0


def test_arrays_may_tell_their_errors(tmp_path):
    path = tmp_path / "payoffs.npz"
    matrix = np.array([[0.0, 0.4], [-0.4, 0.0]])
    counts = np.full((2, 2), 25)
    np.savez(path, matrix=matrix, errors=np.full((2, 2), 0.2), counts=counts, names=["a", "b"])
    found = read_file(path).payoffs
    assert found.names == ("a", "b")
    assert found.errors[0, 0, 1] == pytest.approx(0.2)
    assert found.is_zero_sum
    np.savez(path, matrix=matrix)
    assert read_file(path).payoffs.names == ("0", "1")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "policy,a,b\n",
        "policy,a,b\na,1\n",
        "policy,a,b\na,1,2\nb,1,x\n",
        "policy,a,b\na,1,\nb,1,2\n",
        "policy,a,b\na,1,nan\nb,1,2\n",
        "policy,a,a\na,1,2\na,1,2\n",
        "row,column,row_return,column_return\na,b,1,inf\n",
        "row,column,row_return,column_return\na,b,1\n",
    ],
)
def test_a_faulty_table_is_refused(tmp_path, text):
    path = tmp_path / "payoffs.csv"
    path.write_text(text)
    with refuses(UsageError):
        read_file(path)


def test_faulty_files_are_refused(tmp_path):
    with refuses(UsageError):
        read_file(tmp_path / "none.csv")
    other = tmp_path / "payoffs.txt"
    other.write_text("1")
    with refuses(UsageError):
        read_file(other)
    arrays = tmp_path / "payoffs.npz"
    arrays.write_bytes(b"no zip")
    with refuses(UsageError):
        read_file(arrays)
    np.savez(arrays, means=np.zeros((2, 2)))
    with refuses(UsageError):
        read_file(arrays)
    np.savez(arrays, matrix=np.zeros((2, 2)), names=["a"])
    with refuses(UsageError):
        read_file(arrays)
    np.savez(arrays, matrix=np.zeros((2, 2)), errors=np.zeros((2, 2)))
    with refuses(UsageError):
        read_file(arrays)
    table = tmp_path / "payoffs.csv"
    table.write_bytes(b"\xff\xfe\x00")
    with refuses(UsageError):
        read_file(table)
