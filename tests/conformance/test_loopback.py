"""Programs with a server and a client on the loopback interface, in every form.

A program prints ``served``, or ``lacks NAME`` if the sandbox does not have what it needs.
"""

from __future__ import annotations

import textwrap

import pytest

from tests.conformance.forms import Observed, observe_programs

_TOOLS = """\
import contextlib, socket, sys, threading

@contextlib.contextmanager
def serving(server):
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

def fetch(url):
    import urllib.request
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=30).read()

"""

_PROGRAMS = {
    "http.server": """
        from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"served")
            def log_message(self, *arguments):
                pass
        with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
            print(fetch(f"http://localhost:{server.server_port}/").decode())
    """,
    "http.server as a program": """
        import subprocess, time
        command = [sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            port = server.stdout.readline().split(" port ")[1].split()[0]
            assert b"Directory listing" in fetch(f"http://127.0.0.1:{port}/")
            server.terminate()
        print("served")
    """,
    "asyncio": """
        import asyncio
        async def echo(reader, writer):
            writer.write((await reader.readline()).upper())
            await writer.drain()
            writer.close()
        async def talk():
            async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
                port = server.sockets[0].getsockname()[1]
                async def ask(number):
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.write(b"question %d\\n" % number)
                    answer = await reader.readline()
                    writer.close()
                    await writer.wait_closed()
                    return answer
                assert await asyncio.gather(*map(ask, range(20))) == [b"QUESTION %d\\n" % number for number in range(20)]
        asyncio.run(talk())
        print("served")
    """,
    "socketserver": """
        import socketserver
        class Echo(socketserver.StreamRequestHandler):
            def handle(self):
                self.wfile.write(self.rfile.readline())
        with serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo)) as server:
            with socket.create_connection(server.server_address, 30) as client:
                client.sendall(b"served\\n")
                print(client.makefile().readline(), end="")
    """,
    "UDP": """
        import socketserver
        class Echo(socketserver.BaseRequestHandler):
            def handle(self):
                self.request[1].sendto(self.request[0], self.client_address)
        with serving(socketserver.ThreadingUDPServer(("127.0.0.1", 0), Echo)) as server:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.settimeout(30)
                client.sendto(b"served", server.server_address)
                print(client.recv(100).decode())
    """,
    "IPv6": """
        with open("/proc/net/if_inet6") as addresses:
            there = any(line.startswith("0" * 31 + "1 ") for line in addresses)
        if not there:
            print("lacks IPv6")
        else:
            with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
                with socket.create_connection(server.getsockname()[:2], 30) as client, server.accept()[0] as accepted:
                    accepted.sendall(b"served")
                    print(client.recv(100).decode())
    """,
    "managers of multiprocessing": """
        from multiprocessing.managers import BaseManager
        class Counter:
            def __init__(self):
                self.count = 0
            def add(self, number):
                self.count += number
                return self.count
        counter = Counter()
        class Manager(BaseManager):
            pass
        Manager.register("counter", callable=lambda: counter)
        with Manager(address=("127.0.0.1", 0), authkey=b"key") as manager:
            other = Manager(address=manager.address, authkey=b"key")
            other.connect()
            manager.counter().add(40)
            assert other.counter().add(2) == 42
        print("served")
    """,
    "xmlrpc": """
        from xmlrpc.client import ServerProxy
        from xmlrpc.server import SimpleXMLRPCServer
        with serving(SimpleXMLRPCServer(("127.0.0.1", 0), logRequests=False)) as server:
            server.register_function(lambda text: text[::-1], "reverse")
            with ServerProxy(f"http://127.0.0.1:{server.server_address[1]}/") as proxy:
                print(proxy.reverse("devres"))
    """,
    "Flask": """
        try:
            from flask import Flask
            from werkzeug.serving import WSGIRequestHandler, make_server
        except ImportError:
            print("lacks flask")
        else:
            app = Flask("app")
            app.add_url_rule("/<name>", view_func=lambda name: name)
            class Handler(WSGIRequestHandler):
                def log(self, *arguments):
                    pass
            with serving(make_server("127.0.0.1", 0, app, request_handler=Handler)) as server:
                print(fetch(f"http://127.0.0.1:{server.server_port}/served").decode())
    """,
    "Redis": """
        import os, shutil, subprocess, time
        try:
            import redis
        except ImportError:
            redis = None
        if redis is None or shutil.which("redis-server") is None:
            print("lacks redis")
        else:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", ""]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server, redis.Redis(port=port) as client:
                while True:
                    with contextlib.suppress(redis.exceptions.ConnectionError):
                        client.set("key", "served")
                        break
                    time.sleep(0.05)
                print(client.get("key").decode())
                server.terminate()
    """,
    "gRPC": """
        try:
            import grpc
        except ImportError:
            print("lacks grpc")
        else:
            from concurrent.futures import ThreadPoolExecutor
            class Echo(grpc.GenericRpcHandler):
                def service(self, details):
                    return grpc.unary_unary_rpc_method_handler(lambda request, context: request)
            server = grpc.server(ThreadPoolExecutor(1), handlers=[Echo()])
            port = server.add_insecure_port("127.0.0.1:0")
            server.start()
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                print(channel.unary_unary("/test/Echo")(b"served", timeout=30).decode())
            server.stop(None).wait()
    """,
}


@pytest.fixture(scope="module")
def observed(provider: str) -> Observed:
    programs = {name: _TOOLS + textwrap.dedent(program) for name, program in _PROGRAMS.items()}
    return observe_programs(programs, provider=provider, preload=())


@pytest.mark.every_provider
@pytest.mark.timeout(600)
@pytest.mark.parametrize("program", _PROGRAMS)
def test_programs_talk_over_loopback(observed, program):
    seen = {form: of_programs[program] for form, of_programs in observed.items()}
    outputs = {output.stdout for outputs in seen.values() for output in outputs}
    if len(outputs) == 1 and "lacks " in str(outputs):
        pytest.skip(f"the sandbox {outputs.pop().strip()}")
    assert {output.stdout.strip() for outputs in seen.values() for output in outputs} == {"served"}, seen
    assert {output.exit_code for outputs in seen.values() for output in outputs} == {0}, seen
