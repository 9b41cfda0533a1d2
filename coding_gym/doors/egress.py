"""Rules for what a session may reach beyond its loopback interface."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from coding_gym.errors import ConfigurationError

__all__ = ["Egress", "EgressError", "Endpoint", "proxy_variables"]

_DEFAULT_PORTS = (80, 443)
_MAX_PORT = 65_535
_MAX_NAME = 253
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class EgressError(Exception):
    """The rules refuse a connection, or the host does not exist."""


@dataclass(frozen=True)
class Endpoint:
    """A host and a port that a session wants to reach.

    Attributes:
        host: Name in lower case, without a final dot, or an address.
        port: The port.
    """

    host: str
    port: int

    @classmethod
    def parse(cls, authority: str, default_port: int | None = None) -> Endpoint:
        """Return the endpoint of ``HOST``, ``HOST:PORT`` or ``[ADDRESS]:PORT``.

        Raises:
            EgressError: If it is something else: there are many ways to write one that others read differently.
        """
        found = re.fullmatch(r"(\[[0-9a-f:.]+\]|[^\[\]:]+)(?::([0-9]{1,5}))?", authority.lower(), flags=re.ASCII)
        port = default_port if found is None or found.group(2) is None else int(found.group(2))
        if found is None or port is None or not 0 < port <= _MAX_PORT:
            message = f"{authority!r:.300} is not a host and port"
            raise EgressError(message)
        host = found.group(1).strip("[]") if authority.startswith("[") else found.group(1).removesuffix(".")
        endpoint = cls(host, port)
        if endpoint.address is None and not (_NAME.fullmatch(host) and len(host) <= _MAX_NAME and not _is_number(host)):
            message = f"{authority!r:.300} is not a host name"
            raise EgressError(message)
        return endpoint

    @cached_property
    def address(self) -> _Address | None:
        """The address if the host is one, in its usual form."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _is_number(host: str) -> bool:
    """Return whether the C library reads a name as an address: ``127.1``, ``0x7f000001``, ``2130706433``, ``0177.0.0.1``."""
    try:
        socket.inet_aton(host)
    except OSError:
        return host.rpartition(".")[2].isdecimal()
    return True


@dataclass(frozen=True)
class _Rule:
    """An entry of an allow-list or a deny-list.

    Attributes:
        text: As it was written.
        name: A name; the end of one, after ``*``; empty for all names, None for addresses.
        has_subdomains: Whether it is that of the subdomains.
        network: Addresses, None for a name.
        ports: The ports; None for all.
        is_raw: Whether any protocol may be spoken, instead of HTTP and TLS.
    """

    text: str
    name: str | None
    has_subdomains: bool
    network: _Network | None
    ports: tuple[int, ...] | None
    is_raw: bool

    @classmethod
    def parse(cls, text: Any, default_ports: tuple[int, ...] | None) -> _Rule:
        if not isinstance(text, str):
            raise _bad_rule(text)
        rest = text.lower().strip()
        is_raw = rest.startswith("tcp://")
        rest = rest.removeprefix("tcp://")
        ports = default_ports
        host, colon, port = rest.rpartition(":")
        if colon and port.isdecimal() and (":" not in host or host.endswith("]")):
            rest, ports = host, (int(port),)
        rest = rest.removeprefix("[").removesuffix("]")
        if (is_raw and ports == default_ports) or (ports and not 0 < ports[0] <= _MAX_PORT):
            raise _bad_rule(text)
        if rest == "*":
            return cls(text, "", True, None, ports, is_raw)
        try:
            return cls(text, None, False, ipaddress.ip_network(rest), ports, is_raw)
        except ValueError:
            pass
        has_subdomains = rest.startswith("*.")
        try:
            name = rest.removeprefix("*.").removesuffix(".").encode("idna").decode("ascii")
        except UnicodeError:
            raise _bad_rule(text) from None
        if not _NAME.fullmatch(name) or _is_number(name):
            raise _bad_rule(text)
        return cls(text, name, has_subdomains, None, ports, is_raw)

    def has(self, endpoint: Endpoint) -> bool:
        """Return whether it is about an endpoint, given by a name or an address."""
        if self.ports is not None and endpoint.port not in self.ports:
            return False
        if self.network is not None:
            return endpoint.address is not None and _plain(endpoint.address) in self.network
        if self.name == "":
            return True
        return endpoint.host.endswith(f".{self.name}") if self.has_subdomains else endpoint.host == self.name


def _bad_rule(text: Any) -> ConfigurationError:
    return ConfigurationError(
        "Expected a rule of an Egress such as 'example.org', '*.example.org:443', '10.0.0.0/8', '*' or 'tcp://example.org:22', "
        f"got {text!r:.200}"
    )


def _plain(address: _Address) -> _Address:
    """Return the IPv4 address that an IPv6 address stands for, else the address."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_public(address: _Address) -> bool:
    """Return whether an address is one of the Internet, and not one of a network of the trainer's side."""
    plain = _plain(address)
    if isinstance(plain, ipaddress.IPv6Address) and (plain.sixtofour is not None or plain.teredo is not None):
        return False
    return plain.is_global and not (plain.is_multicast or plain.is_reserved or plain.is_unspecified)


@dataclass(frozen=True)
class Egress:
    """What a session may reach, through a proxy on the trainer's side; everything else is unreachable.

    A rule is a name (``example.org``), the subdomains of one (``*.example.org``), an address or a network (``10.0.0.0/8``), or
    ``*`` for all public hosts; with a port, or for ports 80 and 443. Programs speak HTTP or TLS to them, and TLS only to the
    host that they have asked the proxy for. With ``tcp://`` and a port, they speak any protocol. Names are resolved on the
    trainer's side. A name that leads to a private address is refused unless ``addresses`` has it.

    Attributes:
        allow: Rules for what may be reached.
        deny: Rules for what may not, unless ``allow`` has the name or the address itself; for all ports if they name none.
        addresses: Where names lead to, instead of what a resolver says: an address, maybe with a port.
        port: Port of the proxy on the session's loopback interface.

    Raises:
        ConfigurationError: If a rule, an address or the port is invalid.

    Example:
        >>> env = gym.make("CodingEnv-v0", network=Egress(allow=["pypi.org", "files.pythonhosted.org"]))
    """

    allow: Sequence[str]
    deny: Sequence[str] = ()
    addresses: Mapping[str, str] = field(default_factory=dict)
    port: int = 3128

    def __post_init__(self) -> None:
        for name, rules in (("allow", self.allow), ("deny", self.deny)):
            if isinstance(rules, str) or not isinstance(rules, Sequence):
                message = f"Expected {name}= to be a sequence of rules, got {rules!r:.200}"
                raise ConfigurationError(message)
        assert self._allowed is not None
        assert self._denied is not None
        for name, address in self.addresses.items():
            try:
                is_valid = Endpoint.parse(address, 1).address is not None
            except (EgressError, AttributeError):
                is_valid = False
            if not is_valid:
                message = f"Expected addresses= to map names to addresses such as '127.0.0.1:8080', got {name!r}: {address!r}"
                raise ConfigurationError(message)

    @cached_property
    def _allowed(self) -> list[_Rule]:
        return [_Rule.parse(text, _DEFAULT_PORTS) for text in self.allow]

    @cached_property
    def _denied(self) -> list[_Rule]:
        return [_Rule.parse(text, None) for text in self.deny]

    @cached_property
    def _fixed(self) -> dict[str, str]:
        return {name.lower().removesuffix("."): address for name, address in self.addresses.items()}

    def check(self, endpoint: Endpoint) -> bool:
        """Check that a session may reach an endpoint, as far as its name or address says.

        Returns:
            Whether it may speak any protocol.

        Raises:
            EgressError: If it may not.
        """
        allowing = [rule for rule in self._allowed if rule.has(endpoint)]
        if not allowing:
            message = f"{endpoint} is not in the allow-list"
            raise EgressError(message)
        if any(rule.has(endpoint) for rule in self._denied) and all(rule.name == "" for rule in allowing):
            message = f"{endpoint} is in the deny-list"
            raise EgressError(message)
        return any(rule.is_raw for rule in allowing)

    async def resolve(self, endpoint: Endpoint) -> list[Endpoint]:
        """Return the addresses of an endpoint that has passed ``check``, the preferred one first.

        Raises:
            EgressError: If it does not exist, or only at addresses that it may not have.
        """
        if (fixed := self._fixed.get(endpoint.host)) is not None:
            return [Endpoint.parse(fixed, endpoint.port)]
        if endpoint.address is not None:
            found: list[_Address] = [endpoint.address]
        else:
            found = await _look_up(endpoint)
        permitted = [each for each in (Endpoint(str(address), endpoint.port) for address in found) if self._permits(each)]
        if not permitted:
            message = f"{endpoint} leads to an address that is not public, and not in the allow-list: {found[0]}"
            raise EgressError(message)
        return permitted

    def _permits(self, endpoint: Endpoint) -> bool:
        """Return whether a name may lead to an address."""
        assert endpoint.address is not None
        if any(rule.network is not None and rule.has(endpoint) for rule in self._allowed):
            return True
        if any(rule.network is not None and rule.has(endpoint) for rule in self._denied):
            return False
        return _is_public(endpoint.address)


async def _look_up(endpoint: Endpoint) -> list[_Address]:
    try:
        # With a final dot: no suffix of the trainer's side is tried.
        results = await asyncio.get_running_loop().getaddrinfo(f"{endpoint.host}.", endpoint.port, type=socket.SOCK_STREAM)
    except OSError as error:
        message = f"{endpoint.host} cannot be resolved: {error.strerror or error}"
        raise EgressError(message) from error
    return [ipaddress.ip_address(str(address[0]).partition("%")[0]) for *_, address in results]


def proxy_variables(port: int) -> dict[str, str]:
    """Return the environment variables that let programs use a proxy on the loopback interface."""
    url, direct = f"http://127.0.0.1:{port}", "localhost,127.0.0.1,::1"
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    # Node.js has its own idea since 24.
    return {**dict.fromkeys(names, url), "no_proxy": direct, "NO_PROXY": direct, "NODE_USE_ENV_PROXY": "1"}
