"""HTTP client: the reuse of connections."""

from __future__ import annotations

import gc
import warnings

from coding_gym.client.http import HttpClient


def test_connection_is_closed_after_request_in_progress(sandbox):
    """Another thread may close the client, such as that of an environment whose process is just being killed."""
    client = HttpClient(sandbox.address)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with client.request("GET", "/health") as response:
            client.close()
            assert client.json(response)["status"] == "healthy"
        del client, response
        gc.collect()
    assert not found


def test_closed_client_still_answers(sandbox):
    client = HttpClient(sandbox.address)
    client.close()
    with client.request("GET", "/health") as response:
        assert client.json(response)["status"] == "healthy"
