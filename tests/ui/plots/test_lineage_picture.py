"""The picture of evolution shows each birth where it was, of whom, and with what."""

import matplotlib as mpl
import pytest

from remuda.population.ledger.lineage import Born
from remuda.ui.plots.drawing import KINDS, LOOK, QUIET, Picture
from remuda.ui.plots.over_time import lineage_picture


def born(policy, generation, matches, parent=None, of=0, **numbers):
    values = {name.replace("__", "."): value for name, value in numbers.items()}
    return Born(policy, generation, matches, parent, of, 3 if parent else -1, values)


BIRTHS = (
    born("ant", 0, 0, learning_rate=1e-3, ppo__clip=0.2, discount=0.9),
    born("bee", 0, 0, learning_rate=1e-5, ppo__clip=0.3, discount=0.9),
    born("cow", 0, 0, learning_rate=1e-1, ppo__clip=0.1, discount=0.9),
    born("bee", 1, 40, "ant", 0, learning_rate=8e-4, ppo__clip=0.2, discount=0.9),
    born("ant", 1, 70, "bee", 1, learning_rate=1e-3, ppo__clip=0.25, discount=0.9),
)


def drawn(births, matches) -> Picture:
    with mpl.rc_context(LOOK):
        return lineage_picture(births, matches)


def lines_of(axes):
    """Lines as ((x, y), (x, y), colour), without single points."""
    found = set()
    for line in axes.lines:
        if len(line.get_xdata()) == 2:
            ends = zip(line.get_xdata(), line.get_ydata(), strict=True)
            found.add((*((float(x), float(y)) for x, y in ends), line.get_color()))
    return found


def test_each_life_has_a_line_in_the_row_of_its_place_and_one_to_its_parent():
    lives, *_ = drawn(BIRTHS, 100).figure.axes
    assert [label.get_text() for label in lives.get_yticklabels()] == ["ant", "bee", "cow"]
    first, second = KINDS[:2]
    assert lines_of(lives) == {
        ((0.0, 0.0), (70.0, 0.0), first),
        ((70.0, 0.0), (100.0, 0.0), first),
        ((0.0, 1.0), (40.0, 1.0), QUIET),  # its line died out
        ((40.0, 1.0), (100.0, 1.0), first),
        ((0.0, 2.0), (100.0, 2.0), second),
        ((40.0, 0.0), (40.0, 1.0), first),
        ((70.0, 1.0), (70.0, 0.0), first),
    }


def test_numbers_that_differ_are_drawn_while_a_policy_lives():
    _, rate, clip = drawn(BIRTHS, 100).figure.axes
    assert (rate.get_title(loc="left"), clip.get_title(loc="left")) == (
        "learning_rate",
        "ppo.clip",
    )
    assert (rate.get_yscale(), clip.get_yscale()) == ("log", "linear")
    flat = {line for line in lines_of(clip) if line[0][1] == line[1][1]}
    first, second = KINDS[:2]
    assert flat == {
        ((0.0, 0.2), (70.0, 0.2), first),
        ((70.0, 0.25), (100.0, 0.25), first),
        ((0.0, 0.3), (40.0, 0.3), QUIET),
        ((40.0, 0.2), (100.0, 0.2), first),
        ((0.0, 0.1), (100.0, 0.1), second),
    }


def test_the_caption_counts_births_and_lines_that_are_left():
    caption = drawn(BIRTHS, 1234).caption
    assert caption.startswith("2 births in 1,234 matches.")
    assert "2 lines survive" in caption
    one = (*BIRTHS, born("cow", 1, 80, "ant", 1))
    assert "one line survives" in drawn(one, 1234).caption


def test_numbers_beside_a_logarithmic_axis_are_no_formulas():
    picture = drawn(BIRTHS, 100)
    picture.encoded("png")
    _, rate, _ = picture.figure.axes
    told = [label.get_text() for label in rate.get_yticklabels()]
    assert "0.001" in told
    assert not any("$" in words for words in told)


def test_a_run_in_which_none_was_born_has_no_picture():
    picture = drawn(BIRTHS[:3], 100)
    assert picture.figure is None
    assert picture.caption == "No policy was born after the start of the run."


@pytest.mark.parametrize("places", [7, 30, 80])
def test_many_places_and_long_names_have_room(places):
    names = [f"population_of_the_north/policy_{at}" for at in range(places)]
    births = [born(name, 0, 0, learning_rate=10.0**-at) for at, name in enumerate(names)]
    births += [born(names[-1], 1, 50, names[0], learning_rate=0.5)]
    picture = drawn(births, 100)
    picture.figure.draw_without_rendering()
    lives, _ = picture.figure.axes
    told = [label.get_window_extent() for label in lives.get_yticklabels() if label.get_text()]
    assert min(box.x0 for box in told) >= 0.0
    if places == 80:
        assert "the 64 slots with most births, of 80." in picture.caption
        assert len({line[0][1] for line in lines_of(lives)}) == 64
    if places > len(KINDS):
        assert f"the {len(KINDS)} largest of {places - 1} surviving lines" in picture.caption
