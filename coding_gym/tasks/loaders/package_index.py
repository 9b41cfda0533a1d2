"""Downloads of source distributions from the package index that pip uses."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from coding_gym.errors import ConfigurationError

__all__ = ["download", "replace_file"]

_PYPI = "https://pypi.org/simple"
_TIMEOUT = 60.0
_LINK = re.compile(r"""<a\s[^>]*?href\s*=\s*["']([^"'#]+)""", re.IGNORECASE)


def download(library: str, file: str, *, sha256: str, path: Path) -> None:
    """Download a source distribution, unless it is there already. Nothing of it is executed, as ``pip download`` would.

    Args:
        library: Name of the library.
        file: Name of the file in the index.
        sha256: Expected hash of its content.
        path: Where it is kept.

    Raises:
        ConfigurationError: If the index cannot be reached, does not have the file, or has another one of that name.
    """
    if path.exists() and _hash_of(path.read_bytes()) == sha256:
        return
    content = _fetch(library, file)
    if (found := _hash_of(content)) != sha256:
        message = (
            f"Expected {file} to have the SHA-256 {sha256}, got {found} from {_index()}. It is not what has been published "
            "on PyPI: use another index, with PIP_INDEX_URL"
        )
        raise ConfigurationError(_without_credentials(message))
    replace_file(path, content)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file at once, so that no other process sees a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside the directory, which may be the context of an image: all of its files would belong to it.
    with tempfile.NamedTemporaryFile(dir=path.parent.parent, delete=False) as unfinished:
        unfinished.write(content)
    os.chmod(unfinished.name, 0o644)
    os.replace(unfinished.name, path)


def _fetch(library: str, file: str) -> bytes:
    import requests

    page = f"{_index().rstrip('/')}/{re.sub('[-_.]+', '-', library).lower()}/"
    try:
        with requests.Session() as session:
            listing = session.get(page, timeout=_TIMEOUT)
            listing.raise_for_status()
            links = [urljoin(listing.url, unescape(link)) for link in _LINK.findall(listing.text)]
            link = next((link for link in links if unquote(urlsplit(link).path).endswith(f"/{file}")), None)
            if link is None:
                message = f"Expected {page} to list {file}, found {len(links)} other files: use PyPI, or a mirror of it"
                raise ConfigurationError(_without_credentials(message))
            answer = session.get(link, timeout=_TIMEOUT)
            answer.raise_for_status()
            return answer.content
    except requests.RequestException as error:
        message = (
            f"{file} cannot be downloaded from {_index()}, as is necessary once: {error}. "
            "Check that this machine reaches it, or name a mirror of PyPI with PIP_INDEX_URL"
        )
        # The reason has the credentials, too.
        raise ConfigurationError(_without_credentials(message)) from None


def _index() -> str:
    """Return the address of the package index: that of pip's environment or configuration, or PyPI's."""
    return os.environ.get("PIP_INDEX_URL") or _configured_index()


@functools.cache
def _configured_index() -> str:
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or _PYPI


def _without_credentials(text: str) -> str:
    """Return a text whose addresses lack the credentials that they may have."""
    return re.sub(r"(?<=://)[^/@\s]*@", "", text)


def _hash_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
