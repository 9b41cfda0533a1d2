"""Requests to the route ``/run_code`` of a sandbox."""

from __future__ import annotations

from typing import Any

import httpx

from coding_gym.sandbox import Sandbox
from tests.support.timing import eventually

__all__ = ["client_of", "post_program"]


class _PatientTransport(httpx.HTTPTransport):
    """Transport that repeats requests, as verl does, while the first processes start on a busy machine."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        while True:
            response = super().handle_request(request)
            if response.status_code != 504 or b"no process was ready" not in response.read():
                return response


def client_of(sandbox: Sandbox, *, is_patient: bool = True) -> httpx.Client:
    """Return an HTTP client that talks to the server of a sandbox.

    Args:
        sandbox: The sandbox.
        is_patient: Whether it repeats requests while the first processes start.
    """
    address = sandbox.address
    transport = (_PatientTransport if is_patient else httpx.HTTPTransport)(uds=address.socket_path)
    headers = {"Authorization": f"Bearer {address.token}"}
    return httpx.Client(transport=transport, base_url=address.url, headers=headers, timeout=150)


def post_program(http: httpx.Client, body: dict[str, Any]) -> httpx.Response:
    """Return the answer to a program, repeating the request while the places of earlier programs become free."""

    def answer_unless_overloaded() -> httpx.Response | None:
        response = http.post("/run_code", json=body)
        return None if b"The sandbox is overloaded" in response.content else response

    answer = eventually(answer_unless_overloaded)
    assert answer is not None, "the sandbox stays overloaded"
    return answer
