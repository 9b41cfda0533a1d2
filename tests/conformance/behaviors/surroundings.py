"""Programs that print their surroundings: directories, user, environment, limits and interpreter."""

from __future__ import annotations

__all__ = ["SURROUNDINGS"]

SURROUNDINGS = {
    # The first, before other programs create directories.
    "initial contents": """
        import tempfile
        for directory in (".", os.environ["HOME"], tempfile.gettempdir(), "/tmp", "/dev/shm"):
            try:
                print(sorted(os.listdir(directory)))
            except OSError as error:
                print(errno.errorcode[error.errno])
    """,
    "working directory": """
        print(os.getcwd(), os.environ["PWD"] == os.getcwd())
    """,
    "home directory": """
        print(os.environ["HOME"], os.path.expanduser("~") == os.environ["HOME"])
    """,
    "temporary directory": """
        import tempfile
        print(os.environ["TMPDIR"], tempfile.gettempdir() == os.environ["TMPDIR"])
    """,
    "unlisted directories": """
        for directory in ("/", "/home", "/dev", "/run", "/var", "/root"):
            print(directory, attempt(os.listdir, directory))
    """,
    "modes of directories": """
        for directory in (".", os.environ["HOME"], "/tmp", "/dev/shm"):
            status = os.stat(directory)
            print(oct(status.st_mode), status.st_uid == os.getuid(), status.st_gid == os.getgid())
    """,
    "owners of system files": """
        for path in ("/", "/etc", "/usr/bin", "/etc/passwd", "/dev/null"):
            status = os.stat(path)
            print(path, status.st_uid, status.st_gid)
    """,
    "creation of files": """
        def create(directory):
            path = f"{directory}/{os.getpid()}-{time.monotonic_ns()}"
            with open(path, "x"):
                pass
            os.unlink(path)
        for name in ("HOME", "TMPDIR"):
            print(name, attempt(create, os.environ[name]))
        for directory in (".", "/tmp", "/dev/shm", "/", "/etc", "/usr", "/var", "/var/tmp", "/home", "/opt", "/proc", "/sys"):
            print(directory, attempt(create, directory))
    """,
    "creation of directories": """
        def create(directory):
            path = f"{directory}/{os.getpid()}-{time.monotonic_ns()}"
            os.mkdir(path)
            os.rmdir(path)
        for name in ("HOME", "TMPDIR"):
            print(name, attempt(create, os.environ[name]))
        for directory in (".", "/tmp", "/dev/shm", "/etc", "/var/tmp"):
            print(directory, attempt(create, directory))
    """,
    "space": """
        for directory in (".", "/tmp", "/dev/shm"):
            capacity = os.statvfs(directory)
            print(capacity.f_blocks * capacity.f_frsize, capacity.f_namemax)
        print(os.statvfs("/dev/shm").f_files)
    """,
    "file systems": """
        print([os.stat(path).st_dev == os.stat(".").st_dev for path in (os.environ["TMPDIR"], "/tmp", "/dev/shm")])
    """,
    "user": """
        print(os.getresuid(), os.getresgid(), os.getgroups())
    """,
    "user name": """
        import getpass, pwd
        print(getpass.getuser(), tuple(pwd.getpwuid(os.getuid())), attempt(os.getlogin))
    """,
    "other users": """
        print(in_child(lambda: [attempt(os.setuid, os.getuid()), attempt(os.setgid, os.getgid())]))
        print(in_child(lambda: [attempt(os.setuid, user) for user in (0, 65534)]))
        print(in_child(lambda: [attempt(os.setgid, group) for group in (0, 65534)]), attempt(os.setgroups, []))
    """,
    "capabilities": """
        with open("/proc/self/status") as status:
            print(*(line for line in status if line.startswith("Cap")), sep="", end="")
    """,
    "security attributes": """
        with open("/proc/self/status") as status:
            print(*(line for line in status if line.startswith(("NoNewPrivs", "Seccomp"))), sep="", end="")
    """,
    "names of environment variables": """
        print(sorted(os.environ))
    """,
    "values of environment variables": """
        for name in ("PATH", "LANG", "LC_ALL", "TERM", "SHELL", "USER", "PYTHONHASHSEED", "OMP_NUM_THREADS", "SDL_AUDIODRIVER"):
            print(name, os.environ.get(name))
    """,
    "display": """
        print(os.environ.get("DISPLAY"))
    """,
    "host name": """
        import socket
        print(socket.gethostname(), os.uname().nodename == socket.gethostname())
    """,
    "machine": """
        print(os.uname().sysname, os.uname().release, os.uname().machine)
        print(os.cpu_count(), sorted(os.sched_getaffinity(0)))
    """,
    "limits": """
        import resource
        for name in ("AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "MSGQUEUE", "NOFILE", "RTPRIO", "SIGPENDING"):
            print(name, resource.getrlimit(getattr(resource, f"RLIMIT_{name}")))
        soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        print(soft == hard)
    """,
    "stack limit": """
        import resource
        print(resource.getrlimit(resource.RLIMIT_STACK))
    """,
    "priority": """
        print(os.nice(0), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), in_child(lambda: os.nice(1)))
        print(in_child(lambda: attempt(os.setpriority, os.PRIO_PROCESS, 0, 0)))
        print(in_child(lambda: attempt(os.setpriority, os.PRIO_PROCESS, os.getppid(), 15)))
        print(in_child(lambda: attempt(os.setpriority, os.PRIO_USER, 0, 15)))
        print(in_child(lambda: attempt(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))))
    """,
    "rank for the out-of-memory killer": """
        with open("/proc/self/oom_score_adj") as score:
            print(score.read().strip(), attempt(open, "/proc/self/oom_score_adj", "w"))
    """,
    "umask": """
        mask = os.umask(0o22)
        os.umask(mask)
        print(oct(mask))
    """,
    "kernel settings": """
        for path in ("/proc/sys/kernel/hostname", "/proc/sys/vm/overcommit_memory", "/proc/sysrq-trigger", "/sys/power/state"):
            print(path, attempt(os.open, path, os.O_WRONLY))
        print(attempt(open, "/proc/1/environ"), attempt(os.listdir, "/proc/1/fd"))
    """,
    "devices": """
        with open("/dev/null", "r+b", buffering=0) as null, open("/dev/full", "wb", buffering=0) as full:
            print(null.write(b"x"), null.read(), attempt(full.write, b"x"))
        for name in ("zero", "random", "urandom"):
            with open(f"/dev/{name}", "rb", buffering=0) as device:
                print(name, len(device.read(8)))
        print(attempt(os.open, "/dev/tty", os.O_RDWR))
    """,
    "standard input": """
        print(repr(sys.stdin.read()), sys.stdin.fileno())
    """,
    "kind of standard input": """
        import stat
        print(stat.S_ISCHR(os.fstat(0).st_mode), stat.S_ISREG(os.fstat(0).st_mode))
    """,
    "input": """
        try:
            input()
        except Exception as error:
            print(type(error).__name__)
    """,
    "standard streams": """
        import stat
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            print(stream.fileno(), stream.encoding, stream.isatty())
        print(stat.S_ISFIFO(os.fstat(1).st_mode), stat.S_ISFIFO(os.fstat(2).st_mode))
    """,
    "buffers of standard streams": """
        print(sys.stdout.line_buffering, sys.stdout.errors, sys.stderr.errors)
    """,
    "arguments": """
        print(sys.argv)
    """,
    "module": """
        print(__name__, "__file__" in globals(), sys.modules["__main__"].__dict__ is globals())
    """,
    "interpreter": """
        print(sys.implementation.name, sys.version_info[:3], os.path.dirname(sys.executable), sys.prefix, sys.base_prefix)
    """,
    "module search path": """
        print(repr(sys.path[0]))
    """,
    "recursion limit": """
        print(sys.getrecursionlimit(), sys.getswitchinterval(), sys.flags.dev_mode, sys.flags.utf8_mode)
    """,
    "encodings": """
        import locale
        print(sys.getdefaultencoding(), sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())
        print(locale.getpreferredencoding(False), locale.setlocale(locale.LC_ALL))
    """,
    "hashes": """
        print(hash("text"), hash(b"bytes"), list({"one", "two", "three", "four", "five"}))
    """,
}
