"""The hub of models is asked once and briefly whether it answers; if not, only its local cache is used."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from nearfar.io.hub_access import answers, hub_cache_if_offline


class Refusing(BaseHTTPRequestHandler):
    """A server that answers every request with 404."""

    def do_HEAD(self):
        self.send_error(404)

    def log_message(self, *words):
        """Print nothing."""


@pytest.fixture
def refusing():
    server = HTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def silent():
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def constants(monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return constants


def test_a_refusal_is_an_answer(refusing):
    assert answers(refusing)


def test_an_answer_that_is_not_http_is_an_answer(capfd):
    def greet(server):
        connection, _ = server.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(b"220 mail.example.org ESMTP\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=greet, args=(server,), daemon=True)
        thread.start()
        assert answers(f"http://127.0.0.1:{server.getsockname()[1]}")
        thread.join()
    assert capfd.readouterr().err == ""


def test_a_server_that_is_silent_or_not_there_does_not_answer(silent):
    with socket.create_server(("127.0.0.1", 0)) as server:
        gone = f"http://127.0.0.1:{server.getsockname()[1]}"
    assert not answers(gone)
    assert not answers(silent, wait=0.1)


def test_the_libraries_of_the_hub_are_offline_only_for_the_block(constants, monkeypatch, refusing):
    with socket.create_server(("127.0.0.1", 0)) as server:
        gone = f"http://127.0.0.1:{server.getsockname()[1]}"
    for address, offline in ((gone, True), (refusing, False)):
        monkeypatch.setattr(constants, "ENDPOINT", address)
        with hub_cache_if_offline():
            assert constants.HF_HUB_OFFLINE is offline
        assert constants.HF_HUB_OFFLINE is False


def test_an_environment_without_network_is_not_asked(constants, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("nearfar.io.hub_access.answers", lambda *_: pytest.fail("was asked"))
    with hub_cache_if_offline():
        assert constants.HF_HUB_OFFLINE is True
    assert constants.HF_HUB_OFFLINE is True
