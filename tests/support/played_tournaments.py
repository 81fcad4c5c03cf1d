"""Tournaments that are set up and played in one call."""

from assembled import spec_of
from remuda.evaluation.tournaments.engine import play
from remuda.evaluation.tournaments.entrants import setup_of_entrants, setup_of_snapshots


def play_tournament(config, entrants, episodes, seed=0, sampled=False):
    """All against all, themselves included, without a record."""
    return play(setup_of_snapshots(spec_of(config), entrants, seed, sampled), episodes)


def play_across(game, options, entrants, episodes, seed=0, sampled=False, directory=None):
    """Policies of any runs, each alone and in all pairs."""
    return play(setup_of_entrants(game, options, entrants, seed, sampled), episodes, directory)
