"""Programs that print what they observe of output, input, text, warnings and tracebacks."""

from __future__ import annotations

__all__ = ["STREAMS"]

STREAMS = {
    "characters": r"""
        print("\u00e4\u00f1 \u6f22\u5b57 \U0001f600 e\u0301 \u2028\u0085", "tab\tbell\x07 \x1b[31mred\x1b[0m")
        print("one\rtwo\r\nthree")
        print(repr("\ud800"), ascii("\u00e4"), "no end of line", end="")
    """,
    "bytes that are not text": r"""
        print("text", flush=True)
        print(os.write(1, b"a\xffb\xc3(\xe6\xbc\n"), flush=True)
        print(os.write(1, "\u6f22".encode()[:2]), flush=True)
    """,
    "characters in parts": r"""
        for byte in "\u6f22\U0001f600\n".encode():
            os.write(1, bytes([byte]))
    """,
    "long output": """
        print(*range(2500))
        print("x" * 4000, sep="")
    """,
    "order of output": r"""
        import subprocess
        print("print", flush=True)
        os.write(1, b"descriptor\n")
        subprocess.run(["echo", "child"])
        sys.stdout.write("stream\n")
        sys.stdout.flush()
        sys.stdout.buffer.write(b"buffer\n")
        sys.stdout.buffer.flush()
        print("end")
    """,
    "output of forked children": """
        print("before", flush=True)
        pid = os.fork()
        if pid == 0:
            print("child", flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        print("parent")
    """,
    "output of C": """
        import ctypes
        libc = ctypes.CDLL(None)
        print(libc.puts(b"from C") > 0, libc.fflush(None))
        print(libc.getpid() == os.getpid())
    """,
    "redirected output": """
        import io
        with contextlib.redirect_stdout(io.StringIO()) as text:
            print("in text")
        with scratch(), open("file", "w+") as file:
            sys.stdout.flush()
            kept = os.dup(1)
            os.dup2(file.fileno(), 1)
            print("in file", flush=True)
            os.dup2(kept, 1)
            os.close(kept)
            print(repr(text.getvalue()), repr(file.read()))
    """,
    "streams of text": """
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            print(type(stream).__name__, stream.newlines, stream.readable(), stream.writable(), stream.seekable())
        print(sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__)
    """,
    "end of input": """
        import select
        print(repr(sys.stdin.readline()), list(sys.stdin), sys.stdin.buffer.read(1), os.read(0, 1))
        print(select.select([0], [], [], 1)[0])
    """,
    "text files": r"""
        import locale
        with scratch():
            write("file", "one\r\ntwo\n\u00e4")
            with open("file") as text, open("file", "rb") as data:
                print(text.encoding, text.errors, text.readlines(), text.newlines, data.read())
            with open("file", "wb") as data:
                data.write(b"\xff")
            with open("file") as text:
                try:
                    text.read()
                except UnicodeDecodeError as error:
                    print(error)
            with open("file", errors="surrogateescape") as text:
                print(ascii(text.read()), locale.getencoding())
    """,
    "text of child processes": r"""
        import subprocess
        done = subprocess.run(["printf", r"\303\244\r\n"], capture_output=True, text=True)
        print(ascii(done.stdout), ascii(subprocess.getoutput("printf '\u00e4'")), os.popen("echo popen").read())
        print(os.waitstatus_to_exitcode(os.system("exit 3")))
    """,
    "broken pipes": """
        import subprocess
        done = subprocess.run("yes | head -n 1", shell=True, capture_output=True)
        print(done.returncode, done.stdout, done.stderr)
        with subprocess.Popen(["true"], stdin=subprocess.PIPE, bufsize=0) as child:
            child.wait()
            print(attempt(child.stdin.write, b"x"))
    """,
    "warnings": """
        import warnings
        # Libraries add filters for their own messages and categories.
        for action, message, category, module, line in warnings.filters:
            if message is None and category.__module__ == "builtins":
                print(action, category.__name__, module, line)
        with warnings.catch_warnings(record=True) as found:
            warnings.warn("once")
            warnings.warn("old", DeprecationWarning)
            warnings.warn("hidden", ImportWarning)
        print([(warning.category.__name__, str(warning.message)) for warning in found])
    """,
    "unclosed files": """
        import gc, warnings
        with scratch(), warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            open("file", "w")
            gc.collect()
        print([warning.category.__name__ for warning in found])
    """,
    "frames of tracebacks": """
        import traceback
        def inner():
            return 1 / 0
        def outer():
            inner()
        try:
            outer()
        except ZeroDivisionError as error:
            frames = traceback.extract_tb(error.__traceback__)
            print([frame.name for frame in frames], len({frame.filename for frame in frames}))
            print([frame.lineno - frames[-1].lineno for frame in frames], frames[-1].colno, frames[-1].end_colno)
            print(traceback.format_exception_only(error))
        print(sys.exc_info())
    """,
    "source lines of tracebacks": """
        import traceback
        try:
            [].missing
        except AttributeError as error:
            print(traceback.extract_tb(error.__traceback__)[-1].line)
    """,
    "chained exceptions": """
        import traceback
        def text(error):
            return [line for line in "".join(traceback.format_exception(error)).splitlines() if line and line[0] != " "]
        try:
            try:
                {}["key"]
            except KeyError as error:
                raise ValueError("second") from error
        except ValueError as error:
            error.add_note("a note")
            print(text(error), repr(error.__cause__), error.__context__ is error.__cause__)
        try:
            raise ExceptionGroup("group", [ValueError(1), KeyError("k")])
        except* ValueError as group:
            print(text(group)[:2])
        except* KeyError as group:
            print(group.exceptions)
    """,
    "syntax errors": """
        for code in ("x = = 1", "if True:\\nx", "print('", "return 1"):
            try:
                compile(code, "code", "exec")
            except SyntaxError as error:
                print(type(error).__name__, error.msg, error.lineno, error.offset)
    """,
    "hooks": """
        import builtins, threading
        print(sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__)
        print(threading.excepthook is threading.__excepthook__, sys.unraisablehook is sys.__unraisablehook__)
        print(sys.gettrace(), sys.getprofile(), sys.breakpointhook is sys.__breakpointhook__)
    """,
    "exceptions in threads and finalizers": """
        import threading
        def run():
            raise ValueError("in a thread")
        class Fragile:
            def __del__(self):
                raise ValueError("in a finalizer")
        before = threading.excepthook, sys.unraisablehook
        threading.excepthook = sys.unraisablehook = lambda seen: print(seen.exc_type.__name__, seen.exc_value)
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        Fragile()
        threading.excepthook, sys.unraisablehook = before
    """,
    "log messages": """
        import io, logging
        root, text = logging.getLogger(), io.StringIO()
        print(root.handlers, root.level, logging.lastResort.level)
        handler = logging.StreamHandler(text)
        root.addHandler(handler)
        logging.getLogger("own").warning("warned %s", 1)
        logging.getLogger("own").info("not shown")
        root.removeHandler(handler)
        print(repr(text.getvalue()))
    """,
    "formats": """
        import decimal, fractions, locale
        print(0.1 + 0.2, 1e22, 1e16, float("nan"), -0.0, 5e-324, 2**0.5, round(2.675, 2), f"{1234567.891:,.2f} {255:#x}")
        print(decimal.Decimal(1) / 7, decimal.getcontext().prec, decimal.getcontext().rounding, fractions.Fraction(0.1))
        print(locale.localeconv()["decimal_point"], f"{1234567:n}", locale.strcoll("a", "B") > 0)
        print(time.strftime("%A %B %c", time.gmtime(0)), complex(1, -1), int("9" * 20), hex(-255), 10**20 // -3)
    """,
}
