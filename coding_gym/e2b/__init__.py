"""E2B's control plane and envd, served from sandboxes of this package: ``coding-gym serve --e2b``."""

from coding_gym.e2b.gateway import Gateway
from coding_gym.e2b.settings import GatewaySettings

__all__ = ["Gateway", "GatewaySettings"]
