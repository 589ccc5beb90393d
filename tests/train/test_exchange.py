"""Workers on several machines exchange values through rank 0."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from tuner.execution.assignment import Rank
from tuner.train.exchange import Star, own_address

pytestmark = pytest.mark.process


def ranks_of(size, address="127.0.0.1", port=1):
    return [Rank(rank, size, 0, 1, rank, address, port, "t00000-1") for rank in range(size)]


@pytest.fixture
def in_all_ranks():
    """Return a function that calls another one in three workers, each with its connections."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = listener.getsockname()
        ranks = ranks_of(3, *place)

        def call(function, before=None):
            if before:
                before(place)
            descriptors = [listener.detach(), None, None]
            with ThreadPoolExecutor(3) as pool:
                return list(pool.map(lambda a, b: function(Star(a, b)), ranks, descriptors))

        yield call


def test_all_have_the_values_of_all_by_rank(in_all_ranks):
    def exchange(star):
        rank = star._rank.world_rank
        return [star.gather({"of": rank}), star.gather(None), star.gather(f"{rank}\n")]

    expected = [[{"of": 0}, {"of": 1}, {"of": 2}], [None] * 3, ["0\n", "1\n", "2\n"]]
    assert in_all_ranks(exchange) == [expected] * 3


def test_strangers_that_connect_are_no_workers(in_all_ranks):
    strangers = []

    def intrude(place):
        for said in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"[1]\n",
            json.dumps({"run": "another", "rank": 1}).encode() + b"\n",
            json.dumps({"run": "t00000-1", "rank": 7}).encode() + b"\n",
            json.dumps({"run": "t00000-1", "rank": [1]}).encode() + b"\n",
        ):
            strangers.append(socket.create_connection(place))
            strangers[-1].sendall(said)

    assert in_all_ranks(lambda star: star.gather(1), intrude) == [[1, 1, 1]] * 3
    for stranger in strangers:
        stranger.close()


def test_a_worker_that_is_gone_is_named(in_all_ranks):
    def exchange(star):
        if star._rank.world_rank == 2:
            star._peers[0].close()
        else:
            gone = 2 if star._rank.world_rank == 0 else 0
            with pytest.raises(ConnectionError, match=f"rank {gone} of the group is gone"):
                star.gather(1)
            del star

    in_all_ranks(exchange)


def test_what_json_would_change_is_refused(in_all_ranks):
    def exchange(star):
        for value in (object(), (1, 2), {1: 2}):
            with pytest.raises(TypeError, match=r"JSON can represent.*; use the operations"):
                star.gather(value)

    in_all_ranks(exchange)


def test_without_its_socket_rank_0_says_so():
    with pytest.raises(RuntimeError, match=r"given away the socket.*; use"):
        Star(ranks_of(2)[0], None)


def test_a_worker_is_reached_at_the_address_of_its_way_to_rank_0(monkeypatch):
    assert own_address(ranks_of(2)[1]) == "127.0.0.1"

    class Routed(socket.socket):
        def connect(self, place):
            assert place[0] == "10.0.0.1"

        def getsockname(self):
            return ("10.0.0.7", 50000)

    monkeypatch.setattr(socket, "socket", Routed)
    assert own_address(ranks_of(2, "10.0.0.1")[1]) == "10.0.0.7"
