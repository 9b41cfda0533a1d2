"""Requests to a server of this machine: of programs, of its own pages, and of pages of other sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping

__all__ = ["OF_OTHER_SITES", "refused_requests"]

_OF_OWN_PAGES = {
    "a program": ("POST", {}),
    "a program, by a name with dots": ("POST", {"host": "box.example"}),
    "its page": ("POST", {"origin": "{url}", "sec-fetch-site": "same-origin"}),
    "its page, in an old browser": ("POST", {"origin": "{url}"}),
    "its page, opened from another site": ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}),
}
_OF_STRANGERS = {
    "another site": ("POST", {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}),
    "another site, in an old browser": ("POST", {"origin": "https://evil.example"}),
    "a form of another site": ("POST", {"origin": "null", "sec-fetch-site": "cross-site"}),
    "another port": ("POST", {"origin": "http://127.0.0.1:1", "sec-fetch-site": "same-site"}),
    "a frame without an origin": ("POST", {"origin": "null"}),
}
_BY_REBOUND_NAMES = {
    "a rebound name": ("POST", {"host": "evil.example", "origin": "http://evil.example"}),
    "a rebound name, reading": ("GET", {"host": "evil.example", "user-agent": "Mozilla/5.0 (X11; Linux x86_64)"}),
    "a rebound name, reading in disguise": ("GET", {"host": "evil.example", "user-agent": "x", "accept-language": "x"}),
}

OF_OTHER_SITES = _OF_STRANGERS.keys() | _BY_REBOUND_NAMES.keys()
"""The requests that no server may admit."""


def refused_requests(
    url: str, send: Callable[[str, Mapping[str, str | bytes]], int], token: Mapping[str, str | bytes] | None = None
) -> set[str]:
    """Return what a server refuses, whatever it answers to the rest.

    Args:
        url: Address of the server.
        send: Makes a request with a method and headers, and returns the status.
        token: Headers with the token, if the server has one. Pages by rebound names cannot know it.
    """
    refused = set()
    for requests, known in ((_OF_OWN_PAGES, token), (_OF_STRANGERS, token), (_BY_REBOUND_NAMES, None)):
        for name, (method, headers) in requests.items():
            given = {name: value.format(url=url) for name, value in headers.items()}
            if send(method, {**given, **(known or {})}) in (401, 403):
                refused.add(name)
    return refused
