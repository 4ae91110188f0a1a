"""Whether the Hugging Face hub answers, found out within seconds."""

from __future__ import annotations

import http.client
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from ssl import SSLError

ANSWER_WAIT = 5.0  # seconds for an answer; the libraries of the hub try for about a minute


@contextmanager
def hub_cache_if_offline() -> Iterator[None]:
    """Let the libraries of the hub look only into their local cache if the hub does not answer.

    They would otherwise try each file several times, with growing pauses and a line on the terminal for each.
    """
    from huggingface_hub import constants

    offline = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = offline or not answers(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline


def answers(address: str, wait: float = ANSWER_WAIT) -> bool:
    """Return whether a server answers a request, with whatever status, within `wait` seconds."""
    answered = threading.Event()
    finished = threading.Event()

    def ask() -> None:
        request = urllib.request.Request(address, method="HEAD")
        try:
            with urllib.request.urlopen(request, timeout=wait):
                answered.set()
        except (urllib.error.HTTPError, http.client.HTTPException):
            answered.set()
        except OSError as error:
            # a certificate that Python does not know may be one that the libraries of the hub are set to trust
            if isinstance(getattr(error, "reason", error), SSLError):
                answered.set()
        finally:
            finished.set()

    # in a thread because the timeout does not bound the lookup of the name
    threading.Thread(target=ask, daemon=True).start()
    finished.wait(wait)
    return answered.is_set()
