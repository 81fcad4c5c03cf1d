"""Games with roles are read from lists of matches in files."""

import numpy as np
import pytest

import remuda
from refusals import refuses
from remuda.analysis.payoffs.from_files import read_file
from remuda.errors import UsageError

TEAMS = """match,red_0/policy,red_0/return,red_1/policy,red_1/return,blue/policy,blue/return
0,a,1,b,3,x,-2
1,b,5,a,7,x,-6
2,a,,b,1,y,1
3,b,2,a,0,y,-1
"""


def file_of(path, text):
    path.write_text(text)
    return path


def test_seats_with_the_same_policies_are_a_role(tmp_path):
    found = read_file(file_of(tmp_path / "x.csv", TEAMS))
    assert [(role.name, role.strategies, role.seats) for role in found.roles] == [
        ("red_0 and red_1", ("a", "b"), 2),
        ("blue", ("x", "y"), 1),
    ]
    assert found.counts.tolist() == [2, 1]  # without the match in which a seat took no part
    assert found.means[0].tolist()[:3] == [4.0, 4.0, -4.0]
    assert found.payoffs.names == ("a", "b", "x", "y")
    assert found.payoffs.matrix[0, 2] == 4.0
    assert np.isnan(found.payoffs.matrix[0, 1])


def test_an_absent_seat_has_no_policy(tmp_path):
    found = read_file(file_of(tmp_path / "x.csv", TEAMS.replace("2,a,,b", "2,,,b")))
    assert found.payoffs.names == ("a", "b", "x", "y")
    assert found.counts.tolist() == [2, 1]
    named = read_file(file_of(tmp_path / "x.csv", TEAMS))  # and does not count either
    np.testing.assert_array_equal(found.payoffs.matrix, named.payoffs.matrix)


def test_a_file_of_three_seats_is_analysed(tmp_path):
    rng, lines = np.random.default_rng(0), ["p/policy,q/policy,r/policy,p/return,q/return,r/return"]
    for _ in range(300):
        dealt = rng.integers(0, 2, 3)
        earned = 0.5 * (dealt == 0).sum() - (dealt == 0) + rng.normal(0.0, 0.1, 3)
        names = [("contribute", "keep")[each] for each in dealt]
        lines.append(",".join([*names, *map(str, earned)]))
    path = file_of(tmp_path / "goods.csv", "\n".join(lines))
    (found,) = remuda.analyse(path, samples=60).analyses
    assert found.equilibrium.kind == "role-symmetric"
    mixture = dict(zip(found.payoffs.names, found.equilibrium.answer.mixtures[0], strict=True))
    assert mixture["keep"] == pytest.approx(1.0, abs=1e-6)


def test_rows_and_columns_with_different_policies_are_two_roles(tmp_path):
    text = "row,column,row_return,column_return\na,x,1,2\nb,x,3,4\na,y,5,6\nb,y,7,8\na,x,3,2"
    found = read_file(file_of(tmp_path / "x.csv", text))
    assert [(role.name, role.strategies) for role in found.roles] == [
        ("rows", ("a", "b")),
        ("columns", ("x", "y")),
    ]
    assert found.tensor()[0].tolist() == [[2, 5], [3, 7]]


@pytest.mark.parametrize(
    "text",
    [
        "a/policy,b/policy,a/return\nx,y,1",
        "a/policy,a/return\nx,1",
        "a/policy,a/return,b/policy,b/return\nx,1,y",
        "a/policy,a/return,b/policy,b/return\nx,1,y,much",
        "a/policy,a/return,b/policy,b/return\nx,1,y,inf",
        "a/policy,a/return,b/policy,b/return",
        "a/policy,a/return,b/policy,b/return\nx,1,,2",
        "a/policy,a/return,b/policy,b/return\nx,1,,",
    ],
    ids=["no return", "one seat", "short", "word", "infinite", "empty", "no policy", "no seat"],
)
def test_what_is_no_list_of_matches_is_refused(tmp_path, text):
    with refuses(UsageError):
        read_file(file_of(tmp_path / "x.csv", text))
