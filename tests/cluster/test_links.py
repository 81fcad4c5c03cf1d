"""A link: who may have one, and that what comes over it is whole or nothing at all."""

import socket
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refusals import refuses
from remuda.cluster.link import HELLO, Frame, Identity, Kind, Link, LinkLostError, sections
from remuda.errors import RemudaError

SECRET, OTHER = bytes(range(32)), bytes(32)


def pair(here=None, there=None, to=0):
    """Both ends of a connection: who is called, node 0, and who calls, node 1."""
    a, b = socket.socketpair()
    called = Link(a, here or Identity(SECRET, 3, 0))
    return called, Link(b, there or Identity(SECRET, 3, 1), to)


def greet(*links):
    for _ in range(3):
        for link in links:
            link.flush()
            assert list(link.frames_in()) == []


def opened():
    called, caller = pair()
    greet(called, caller)
    assert called.is_open
    assert caller.is_open
    assert (called.peer, caller.peer) == (1, 0)
    return called, caller


def frame_of(*numbers, data=b"abc"):
    frame = Frame()
    frame.add(Kind.WAKE, 7, np.array(numbers), [np.frombuffer(data, np.uint8)])
    return frame


def told(frame):
    return [(s.kind, s.key, s.numbers.tolist(), s.data.tobytes()) for s in sections(frame)]


def test_frames_cross_in_both_directions_whole_and_in_order():
    called, caller = opened()
    for link, other in ((called, caller), (caller, called)):
        for number in range(3):
            link.send(frame_of(number, data=bytes(number)))
        link.send(Frame())  # a beat: it is counted as heard, and nothing is told
        found = [told(frame) for frame in other.frames_in()]
        assert found == [[(Kind.WAKE, 7, [i], bytes(i))] for i in range(3)]


def test_a_frame_larger_than_all_buffers_comes_bit_by_bit():
    called, caller = opened()
    data = np.random.default_rng(0).integers(0, 256, 40 << 20, np.uint8)
    frame = Frame()
    frame.add(Kind.RING, 1, np.arange(5), [data])
    caller.send(frame)
    assert not caller.is_free, "the kernel took all of it at once"
    found = []
    while not found:
        caller.flush()
        found = list(called.frames_in())
    (section,) = sections(found[0])
    assert caller.is_free
    assert np.array_equal(section.data, data)


def test_a_stranger_without_the_secret_is_turned_away_and_told_nothing():
    called, caller = pair(there=Identity(OTHER, 3, 1))
    with refuses(LinkLostError):
        greet(caller, called)
    called.close()
    assert caller.connection.recv(1 << 16) == b""


def test_who_is_called_by_noise_says_nothing():
    a, b = socket.socketpair()
    called = Link(a, Identity(SECRET, 3, 0))
    b.sendall(b"GET / HTTP/1.1\r\n" + bytes(HELLO.size))
    with pytest.raises(LinkLostError):
        list(called.frames_in())
    assert called.is_free


def test_who_comes_to_have_the_port_of_a_node_that_is_gone_learns_no_secret():
    a, b = socket.socketpair()
    caller = Link(b, Identity(SECRET, 3, 1), 0)
    caller.flush()
    heard = a.recv(1 << 16)
    assert len(heard) == HELLO.size
    assert SECRET not in heard
    a.sendall(heard)  # what it said itself is no answer
    with pytest.raises(LinkLostError):
        list(caller.frames_in())
    # Nor is it of use against another node, or for another link.
    for called in (Identity(SECRET, 3, 2), Identity(SECRET, 4, 0)):
        c, d = socket.socketpair()
        c.sendall(heard)
        with pytest.raises(LinkLostError):
            list(Link(d, called).frames_in())


def test_an_answer_to_another_call_is_no_answer():
    called, caller = pair()
    caller.flush()
    list(called.frames_in())
    answer = caller.connection.recv(1 << 16)
    a, b = socket.socketpair()
    again = Link(b, Identity(SECRET, 3, 1), 0)
    a.sendall(answer)
    with pytest.raises(LinkLostError):
        list(again.frames_in())


def test_a_node_of_another_epoch_is_turned_away():
    called, caller = pair(there=Identity(SECRET, 2, 1))
    with refuses(LinkLostError):
        greet(caller, called)
    assert called.is_free


def test_who_answers_in_place_of_another_is_turned_away():
    called, caller = pair(here=Identity(SECRET, 3, 5))
    with pytest.raises(LinkLostError):
        greet(caller, called)


@pytest.mark.parametrize("end", ["closed", "reset"])
def test_an_end_that_is_gone_is_told(end):
    called, caller = opened()
    if end == "closed":
        caller.close()
        with refuses(LinkLostError):
            list(called.frames_in())
        return
    caller.close()

    def send():
        for _ in range(3):
            called.send(frame_of(1))

    with pytest.raises(LinkLostError):
        send()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 400), st.integers(0, 7))
def test_what_is_damaged_on_its_way_is_never_taken(at, bit):
    """Any bit: of the lengths, of the checks, of the sections."""
    called, caller = opened()
    sent = b"".join(bytes(b) for b in frame_of(*range(30), data=bytes(99)).finished())
    damaged = bytearray(sent)
    damaged[at % len(sent)] ^= 1 << bit
    caller.connection.sendall(bytes(damaged))
    with refuses(LinkLostError):
        list(called.frames_in())


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 400), st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_a_frame_that_is_cut_is_not_there(at, pieces):
    called, caller = opened()
    sent = b"".join(bytes(b) for b in frame_of(*range(30), data=bytes(99)).finished())
    begin, end = 0, at % len(sent)
    for size in pieces:
        caller.connection.sendall(sent[begin : min(begin + size, end)])
        begin = min(begin + size, end)
        assert list(called.frames_in()) == []
    caller.close()
    with refuses(LinkLostError):
        list(called.frames_in())


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=12))
def test_sections_of_any_words_are_refused_or_lie_within_them(words):
    frame = np.array(words, np.int64).view(np.uint8)
    try:
        found = list(sections(frame))
    except RemudaError:
        return
    assert sum(4 + s.numbers.size + -(-s.data.size // 8) for s in found) == len(words)


def test_nothing_here_waits():
    """The other end takes nothing: frames stay until it does."""
    called, caller = opened()
    frame = Frame()
    frame.add(Kind.RING, 1, np.arange(5), [np.zeros(64 << 20, np.uint8)])
    begin = time.monotonic()
    caller.send(frame)
    caller.flush()
    assert not caller.is_free
    assert list(called.frames_in()) == []
    assert time.monotonic() - begin < 5.0
