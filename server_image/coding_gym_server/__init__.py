"""The server that runs inside a coding_gym sandbox.

It never imports ``coding_gym``: the image installs only this package. ``protocol`` is the one module that both sides share.
"""

from __future__ import annotations

__version__ = "0.1.0"
