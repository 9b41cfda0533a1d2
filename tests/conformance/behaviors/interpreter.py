"""Programs that print what they observe of the interpreter: modules, classes, exits, interrupts, memory and random numbers."""

from __future__ import annotations

__all__ = ["INTERPRETER"]

INTERPRETER = {
    "own packages": r"""
        import importlib, importlib.resources
        with scratch():
            os.makedirs("own_package/below")
            write("own_package/__init__.py", "from . import below\nfrom .below.part import value\n")
            write("own_package/below/__init__.py")
            write("own_package/below/part.py", "value = __name__, __package__\n")
            write("own_package/data.txt", "data")
            importlib.invalidate_caches()
            import own_package
            print(own_package.value, own_package.below.__spec__.name, own_package.__path__ == [os.path.abspath("own_package")])
            print(importlib.resources.files("own_package").joinpath("data.txt").read_text())
            for name in ("own_package", "own_package.below", "own_package.below.part"):
                del sys.modules[name]
    """,
    "changed modules": r"""
        import importlib
        with scratch():
            for number in range(2):
                write("own_module.py", f"value = {number}\n" + "\n" * number)
                importlib.invalidate_caches()
                own_module = importlib.reload(own_module) if number else importlib.import_module("own_module")
                print(own_module.value)
            del sys.modules["own_module"]
            try:
                importlib.import_module("missing_module")
            except ImportError as error:
                print(repr(error), error.name)
    """,
    "modules in archives": r"""
        import runpy, zipfile
        with scratch():
            with zipfile.ZipFile("app.zip", "w") as archive:
                archive.writestr("archived.py", "value = __file__\n")
                archive.writestr("__main__.py", "import archived\nprint(__name__, archived.value)\n")
            runpy.run_path("app.zip", run_name="own_name")
            del sys.modules["archived"]
    """,
    "scripts in the interpreter": r"""
        import runpy
        with scratch():
            write("script.py", "import sys\nprint(__name__, __file__, sys.argv, vars(sys.modules['__main__']) is globals())\n")
            print(sorted(name for name in runpy.run_path("script.py", run_name="__main__") if name[0] != "_"))
        print(sys.modules["__main__"].__dict__ is globals())
    """,
    "namespaces": """
        import __main__
        value: int = 1
        print(globals() is locals() is __main__.__dict__, __main__.value, __main__.__annotations__["value"])
        exec("made = value + 1")
        print(made, eval("made + value"), [value * number for number in range(2)])
        class Scope:
            inner = [value for _ in range(2)]
        print(Scope.inner, __debug__)
    """,
    "attributes of main": """
        print(repr(__doc__), __package__, __spec__, type(__builtins__).__name__)
    """,
    "built-in names": """
        import builtins
        print([name for name in ("exit", "quit", "help", "_", "get_ipython", "display") if hasattr(builtins, name)])
        print(builtins.print is print, builtins.input is input, builtins.open is open)
    """,
    "flags": """
        names = ("inspect", "optimize", "no_user_site", "no_site", "ignore_environment", "hash_randomization", "isolated")
        print([getattr(sys.flags, name) for name in names], sys.pycache_prefix, sys.warnoptions, sys._xoptions)
        print(sys.dont_write_bytecode, sys.flags.safe_path, sys.get_int_max_str_digits(), sys.float_repr_style)
    """,
    "pickles of own classes": """
        import collections, dataclasses, enum, pickle, typing
        @dataclasses.dataclass(order=True)
        class Point:
            x: int
            others: "list[Point]" = dataclasses.field(default_factory=list)
        Pair = collections.namedtuple("Pair", "one two")
        Color = enum.Enum("Color", "RED GREEN")
        kept = [Point(1, [Point(2)]), Pair(1, 2), Color.GREEN, attempt]
        print(pickle.loads(pickle.dumps(kept)) == kept, kept[:3])
        print(Point.__module__, Pair.__module__, Color.__module__, Point.__qualname__, typing.get_type_hints(Point))
    """,
    "own functions in other processes": """
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor
        class Own:
            def __init__(self, number):
                self.number = number
        def double(own):
            return Own(2 * own.number)
        def fail(own):
            raise ValueError(own.number)
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
            print(pool.submit(double, Own(2)).result().number, repr(pool.submit(fail, Own(3)).exception()))
    """,
    "source of own functions": """
        import inspect
        def own(x):
            return x  # kept
        try:
            print(inspect.getsource(own))
        except OSError as error:
            print(error)
    """,
    "source of own modules": r"""
        import importlib, inspect, linecache
        with scratch():
            write("own_module.py", "def f():\n    return 1\n\nclass A:\n    def g(self): pass\n")
            importlib.invalidate_caches()
            import own_module
            print(inspect.getsource(own_module.f), inspect.getsource(own_module.A.g), inspect.getsourcelines(own_module.A)[1])
            print(repr(linecache.getline("own_module.py", 2)), repr(linecache.getline("own_module.py", 99)))
            linecache.checkcache()
            del sys.modules["own_module"]
    """,
    "doctests and unit tests": r"""
        import doctest, io, unittest
        def own():
            '''
            >>> own()
            1
            '''
            return 1
        print(doctest.testmod(sys.modules["__main__"]))
        class Case(unittest.TestCase):
            def test_right(self):
                self.assertEqual(own(), 1)
            def test_wrong(self):
                with self.subTest(number=2):
                    self.assertEqual(own(), 2)
        found = unittest.TextTestRunner(io.StringIO()).run(unittest.defaultTestLoader.loadTestsFromTestCase(Case))
        print(found, found.failures[0][0].id())
        del own, Case
    """,
    "exit through finally": """
        def leave():
            try:
                sys.exit(5)
            finally:
                print("finally")
        with contextlib.suppress(ValueError):
            leave()
        print("not reached")
    """,
    "exit code beyond a byte": """
        raise SystemExit(300)
    """,
    "exit of threads": """
        import threading
        thread = threading.Thread(target=sys.exit, args=(3,))
        thread.start()
        thread.join()
        print(thread.is_alive(), threading.active_count(), threading.current_thread().name)
    """,
    "exit of forked children": """
        def status(action):
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                sys.stderr = open(os.devnull, "w")
                action()
                sys.exit(7)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(status(lambda: None), status(lambda: 1 / 0), status(lambda: exit("message")), status(os.abort))
    """,
    "exit handlers of forked children": """
        import atexit
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            atexit.register(print, "handler", flush=True)
            sys.exit()
        print(os.waitpid(pid, 0)[1])
    """,
    "keyboard interrupts": """
        import signal, threading
        for wait in (lambda: time.sleep(60), threading.Event().wait, lambda: os.read(reader, 1)):
            reader, writer = os.pipe()
            try:
                threading.Timer(0.005, os.kill, (os.getpid(), signal.SIGINT)).start()
                wait()
            except KeyboardInterrupt:
                print("interrupted")
            os.close(reader)
            os.close(writer)
    """,
    "interrupted system calls": """
        import signal
        reader, writer = os.pipe()
        before = signal.signal(signal.SIGALRM, lambda *_: os.write(writer, b"late"))
        signal.setitimer(signal.ITIMER_REAL, 0.005)
        print(os.read(reader, 9))
        signal.signal(signal.SIGALRM, before)
        os.close(reader)
        os.close(writer)
    """,
    "signals of event loops": """
        import asyncio, signal
        async def wait():
            received = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, received.set)
            os.kill(os.getpid(), signal.SIGUSR1)
            await asyncio.wait_for(received.wait(), 30)
            return asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR1)
        print(asyncio.run(wait()), signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL, signal.set_wakeup_fd(-1))
    """,
    "tasks": """
        import asyncio
        async def numbers():
            try:
                yield 1
                yield 2
            finally:
                print("closed")
        async def work():
            async for number in numbers():
                break
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(asyncio.to_thread(abs, -number)) for number in range(3)]
            try:
                async with asyncio.timeout(0.001):
                    await asyncio.Event().wait()
            except TimeoutError:
                print("late")
            return [task.result() for task in tasks], type(asyncio.get_running_loop()).__name__
        print(asyncio.run(work()))
        try:
            asyncio.get_running_loop()
        except RuntimeError as error:
            print(error)
    """,
    "crash reports": """
        import faulthandler
        with scratch(), open("report", "w+") as report:
            faulthandler.dump_traceback(report)
            report.seek(0)
            print(report.readline().partition(" 0x")[0], faulthandler.is_enabled())
    """,
    "recursion": """
        import json
        def depth(number=0):
            try:
                return depth(number + 1)
            except RecursionError:
                return number
        print(depth() > 900, depth() == depth())
        for action in (lambda: json.loads("[" * 100_000), lambda: eval("-" * 100_000 + "1"), lambda: int("9" * 5000)):
            try:
                action()
            except (RecursionError, MemoryError, ValueError) as error:
                print(type(error).__name__)
    """,
    "garbage collection": """
        import gc, weakref
        class Node:
            pass
        node = Node()
        node.itself = node
        gone = []
        reference = weakref.ref(node, gone.append)
        del node
        print(gc.collect() > 0, len(gone), reference() is None)
        print(gc.isenabled(), gc.get_threshold()[0] > 0, gc.get_debug(), gc.callbacks, gc.garbage)
    """,
    "finalizers": """
        import gc, weakref
        def numbers():
            try:
                yield 1
            finally:
                print("closed")
        generator = numbers()
        next(generator)
        del generator
        class Owner:
            pass
        owner = Owner()
        ending = weakref.finalize(owner, print, "finalized")
        owner.itself = owner
        del owner
        gc.collect()
        print(ending.alive, ending.atexit)
    """,
    "random numbers": """
        import random, secrets, uuid
        kept = random.getstate()
        random.seed(5)
        print(random.random(), random.sample(range(99), 3), random.Random("text").gauss(), kept[0], len(kept[1]))
        print(in_child(random.random) == in_child(random.random), in_child(random.random) == f"{random.random()}")
        print(os.urandom(8) == os.urandom(8), in_child(secrets.token_hex) == in_child(secrets.token_hex), uuid.uuid4().version)
        random.setstate(kept)
    """,
    "resource usage": """
        import resource
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        def work():
            while time.process_time() < 0.01:
                sum(range(1000))
            return sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) >= 0.01
        print(1000 < own.ru_maxrss < 1 << 20, own.ru_utime + own.ru_stime > 0, in_child(work))
        later = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(later.ru_utime + later.ru_stime > children.ru_utime + children.ru_stime, os.times().elapsed > 0)
        print(os.getloadavg()[0] >= 0, resource.getpagesize())
    """,
    "changed environment": r"""
        import subprocess
        os.environ["OWN"] = "\u00e4 \udcff"
        print(ascii(os.getenvb(b"OWN")), subprocess.run('printf "$OWN"', shell=True, capture_output=True).stdout)
        os.unsetenv("OWN")
        print("OWN" in os.environ, subprocess.run('printf "$OWN"', shell=True, capture_output=True).stdout)
        del os.environ["OWN"]
        print(subprocess.run("env", env={"ONLY": "this"}, executable="/usr/bin/env", capture_output=True).stdout)
    """,
    "sockets between parent and child": """
        import socket
        ours, theirs = socket.socketpair()
        def answer():
            ours.close()
            with theirs:
                while data := theirs.recv(99):
                    theirs.sendall(data.upper())
        pid = os.fork()
        if pid == 0:
            answer()
            os._exit(0)
        theirs.close()
        with ours:
            for data in (b"one", b"x" * 70_000):
                ours.sendall(data)
                print(len(ours.recv(len(data), socket.MSG_WAITALL)))
            ours.shutdown(socket.SHUT_WR)
            print(ours.recv(1), os.waitpid(pid, 0)[1])
    """,
    "connections of multiprocessing": """
        import multiprocessing
        from multiprocessing.connection import Client, Listener, wait
        context = multiprocessing.get_context("fork")
        with scratch(), Listener(os.path.abspath("socket"), authkey=b"key") as listener:
            def talk():
                with Client(listener.address, authkey=b"key") as client:
                    client.send({"one": [1]})
                    client.send_bytes(client.recv_bytes()[::-1])
            process = context.Process(target=talk)
            process.start()
            with listener.accept() as connection:
                print(connection.recv(), connection.send_bytes(b"abc"), wait([connection]) == [connection])
                print(connection.recv_bytes())
            process.join()
            print(process.exitcode, multiprocessing.active_children(), multiprocessing.current_process().name)
    """,
    "descriptors of child processes": """
        import subprocess
        names = "ls /proc/self/fd | wc -l"
        reader, writer = os.pipe()
        print(os.get_inheritable(reader), subprocess.run(names, shell=True, capture_output=True).stdout)
        print(subprocess.run(names, shell=True, capture_output=True, close_fds=False).stdout)
        print(subprocess.run(names, shell=True, capture_output=True, pass_fds=[reader]).stdout)
        os.close(reader)
        os.close(writer)
    """,
    "directories of child processes": """
        import subprocess
        with scratch():
            os.mkdir("below")
            found = subprocess.check_output("pwd; cd ..; pwd; echo ~", shell=True, cwd="below", text=True).split()
            print([os.path.relpath(path) for path in found[:2]], found[2] == os.environ["HOME"])
            print(attempt(lambda: subprocess.run(["true"], cwd="missing")), attempt(lambda: subprocess.run(["below"])))
    """,
    "paths": """
        import glob, pathlib
        with scratch():
            os.makedirs("a/b")
            write("a/b/file.txt")
            os.symlink("a", "link")
            print(sorted(glob.glob("**/*.txt", recursive=True)), [str(path) for path in pathlib.Path().rglob("b")])
            print(list(os.walk("a")), pathlib.Path("link").resolve() == pathlib.Path.cwd() / "a", os.path.realpath("link"))
            print(pathlib.Path.home() == pathlib.Path("~").expanduser(), os.path.ismount("."))
    """,
    "kinds of temporary files": """
        import tempfile
        file, path = tempfile.mkstemp(suffix=".end")
        os.close(file)
        print(oct(os.stat(path).st_mode), path.startswith(tempfile.gettempdir() + "/tmp"), os.path.isabs(path))
        os.unlink(path)
        with tempfile.TemporaryFile() as unnamed, tempfile.SpooledTemporaryFile(9) as spooled:
            spooled.write(b"more than nine")
            print(os.fstat(unnamed.fileno()).st_nlink, spooled._rolled, spooled.tell())
        with tempfile.TemporaryDirectory() as directory:
            write(f"{directory}/file")
            os.chmod(directory, 0o500)
        print(os.path.exists(directory))
    """,
    "locked databases": """
        import sqlite3
        with scratch(), contextlib.closing(sqlite3.connect("data", timeout=0)) as one:
            one.execute("create table numbers(number)")
            one.execute("begin immediate")
            with contextlib.closing(sqlite3.connect("data", timeout=0)) as two:
                try:
                    two.execute("insert into numbers values (1)")
                except sqlite3.OperationalError as error:
                    print(error)
            one.rollback()
            one.executemany("insert into numbers values (?)", [(number,) for number in range(9)])
            print(one.execute("select sum(number) from numbers").fetchall(), one.total_changes)
    """,
    "variables of contexts and threads": """
        import contextvars, threading
        variable, local, seen = contextvars.ContextVar("variable", default=0), threading.local(), []
        variable.set(1)
        local.value = 1
        thread = threading.Thread(target=lambda: seen.append((variable.get(), hasattr(local, "value"))))
        thread.start()
        thread.join()
        print(seen, variable.get(), contextvars.copy_context().run(variable.get), threading.stack_size())
    """,
    "zones": """
        import datetime, zoneinfo
        summer = datetime.datetime(2024, 7, 1, 12, tzinfo=zoneinfo.ZoneInfo("America/New_York"))
        print(summer.isoformat(), summer.tzname(), datetime.datetime(2024, 1, 1, tzinfo=summer.tzinfo).utcoffset())
        print(datetime.datetime.fromtimestamp(0, datetime.UTC).isoformat(), time.mktime(time.localtime(0)))
    """,
}
