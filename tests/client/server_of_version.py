"""``python server_of_version.py VERSION ARGUMENT...``: a server with another wire protocol version; 0 for none."""

from __future__ import annotations

import json
import sys

from coding_gym_server import protocol


def without_version(app):
    """Return an ASGI application that responds like servers that predate protocol versions."""

    async def answer(scope, receive, send):
        async def send_unversioned(message):
            if message["type"] == "websocket.accept":
                message["headers"] = []
            elif message["type"] == "http.response.start" and scope["path"] == "/health":
                message["headers"] = [header for header in message["headers"] if header[0] != b"content-length"]
            elif message["type"] == "http.response.body" and scope["path"] == "/health":
                health = json.loads(message["body"])
                del health["protocol_version"]
                message["body"] = json.dumps(health).encode()
            await send(message)

        await app(scope, receive, send_unversioned)

    return answer


if __name__ == "__main__":
    version = int(sys.argv.pop(1))
    if version:
        protocol.PROTOCOL_VERSION = version
    from coding_gym_server import __main__
    from coding_gym_server.server import app

    if not version:
        create_app = app.create_app
        app.create_app = lambda *arguments, **options: without_version(create_app(*arguments, **options))
    __main__.main()
