"""Programs that print what they observe of processes, signals, threads and exit codes."""

from __future__ import annotations

__all__ = ["PROCESSES"]

PROCESSES = {
    "forks": """
        pid = os.fork()
        if pid == 0:
            os._exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), attempt(os.waitpid, pid, 0))
    """,
    "programs": """
        def execute(*arguments):
            pid = os.fork()
            if pid == 0:
                try:
                    os.execvp(arguments[0], arguments)
                except OSError as error:
                    os._exit(error.errno)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(execute("sh", "-c", "exit 3"), execute("missing-program"), execute("/etc/passwd"), execute("/"))
        print(os.waitstatus_to_exitcode(os.waitpid(os.posix_spawnp("sh", ["sh", "-c", "exit $CODE"], {"CODE": "4"}), 0)[1]))
    """,
    "shell": """
        import subprocess
        done = subprocess.run("echo out; echo err >&2; exit 5", shell=True, capture_output=True, text=True)
        print(done.returncode, repr(done.stdout), repr(done.stderr))
        print(subprocess.run("umask; ulimit -n; ulimit -c; cat | wc -c", shell=True, capture_output=True, text=True).stdout)
    """,
    "output of child processes": """
        import subprocess
        print(subprocess.run(["sh", "-c", "echo out; echo err >&2"]).returncode)
    """,
    "environment of child processes": """
        import subprocess
        program = "import os; print(sorted(os.environ.items()))"
        found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
        print(found == f"{sorted(os.environ.items())}" + os.linesep)
    """,
    "sessions and process groups": """
        import signal, subprocess
        print(os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid(), attempt(os.setsid), attempt(os.tcgetpgrp, 0))
        with subprocess.Popen(["sleep", "60"]) as child:
            print(os.getpgid(child.pid) == os.getpgrp())
            child.kill()
        with subprocess.Popen(["sh", "-c", "sleep 60 & wait"], start_new_session=True) as child:
            print(os.getsid(child.pid) == os.getpgid(child.pid) == child.pid)
            os.killpg(child.pid, signal.SIGTERM)
        print(child.returncode)
    """,
    "zombies": """
        pid = os.fork()
        if pid == 0:
            os._exit(3)
        print(os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT).si_status)
        with open(f"/proc/{pid}/stat") as status:
            print(status.read().rpartition(")")[2].split()[0], attempt(os.kill, pid, 0))
        print(os.waitpid(pid, 0)[1], attempt(os.kill, pid, 0))
    """,
    "orphans": """
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            parent = os.getpid()
            if os.fork() == 0:
                while os.getppid() == parent:
                    time.sleep(0.001)
                os.write(writer, str(os.getppid()).encode())
            os._exit(0)
        os.close(writer)
        os.waitpid(pid, 0)
        with open(reader) as adopter:
            print(int(adopter.read()) == os.getppid())
    """,
    "signals": """
        import signal
        received = []
        before = signal.signal(signal.SIGUSR1, lambda number, frame: received.append(number))
        os.kill(os.getpid(), signal.SIGUSR1)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        os.kill(os.getpid(), signal.SIGUSR1)
        print(received, [int(number) for number in signal.sigpending()])
        print(signal.sigtimedwait({signal.SIGUSR1}, 1).si_pid == os.getpid(), received)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        received = signal.signal(signal.SIGUSR1, before)
    """,
    "signal handlers": """
        import signal
        names = {signal.SIG_DFL: "default", signal.SIG_IGN: "ignored"}
        for name in ("SIGINT", "SIGTERM", "SIGCHLD", "SIGPIPE", "SIGXFSZ", "SIGALRM", "SIGUSR1"):
            print(name, names.get(signal.getsignal(getattr(signal, name)), "function"))
        print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
        try:
            signal.raise_signal(signal.SIGINT)
            print("not interrupted")
        except KeyboardInterrupt:
            print("interrupted")
    """,
    "interrupted child processes": """
        import subprocess
        done = subprocess.run(["sh", "-c", "kill -INT $$; echo alive"], capture_output=True)
        print(done.returncode, done.stdout)
    """,
    "terminated child processes": """
        import signal, subprocess
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1):
            with subprocess.Popen(["sleep", "60"]) as child:
                child.send_signal(number)
            print(child.returncode)
    """,
    "other processes": """
        import resource
        for pid in (1, os.getppid()):
            print(attempt(os.kill, pid, 0), attempt(os.sched_setaffinity, pid, [0]), attempt(os.listdir, f"/proc/{pid}/fd"))
            print(attempt(resource.prlimit, pid, resource.RLIMIT_NOFILE, (64, 64)), attempt(open, f"/proc/{pid}/mem"))
            print(attempt(os.readlink, f"/proc/{pid}/cwd"), attempt(os.readlink, f"/proc/{pid}/exe"))
    """,
    "lowered limits": """
        import resource
        def open_many():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
            for _ in range(64):
                os.open("/dev/null", os.O_RDONLY)
        def write_much():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
            write("file", "x" * 1025)
        def raise_limit():
            resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
        with scratch():
            for action in (open_many, write_much, raise_limit):
                print(in_child(lambda: attempt(action)))
    """,
    "threads": """
        import threading
        barrier, numbers = threading.Barrier(4), []
        def run():
            numbers.append(threading.get_native_id())
            barrier.wait(10)
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(len({*numbers}), threading.main_thread() is threading.current_thread())
        print(threading.get_native_id() == threading.main_thread().native_id == os.getpid())
    """,
    "thread pools": """
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(4) as pool:
            print(list(pool.map(abs, range(-4, 0))))
    """,
    "multiprocessing": """
        import multiprocessing
        context = multiprocessing.get_context("fork")
        queue, lock, number = context.Queue(), context.Lock(), context.Value("i", 1)
        def run():
            with lock:
                number.value += 1
            queue.put(os.getppid())
        process = context.Process(target=run)
        process.start()
        print(queue.get(timeout=10) == os.getpid())
        process.join()
        print(process.exitcode, number.value)
        queue.close()
        queue.join_thread()
    """,
    "process pools": """
        import multiprocessing
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(abs, range(-4, 0)))
    """,
    "spawned interpreters": """
        import multiprocessing
        # They import the file of a program, where there is one.
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.apply(abs, (-1,)), pool.apply(os.getcwd) == os.getcwd(), pool.apply(hash, ("text",)) == hash("text"))
    """,
    "managers": """
        import multiprocessing
        context = multiprocessing.get_context("fork")
        with context.Manager() as manager:
            shared = manager.dict(one=1)
            process = context.Process(target=shared.update, args=({"two": 2},))
            process.start()
            process.join()
            print(process.exitcode, dict(shared))
    """,
    "shared memory": """
        from multiprocessing.shared_memory import SharedMemory
        own = SharedMemory(create=True, size=4096)
        other = SharedMemory(own.name)
        own.buf[:4] = b"text"
        print(bytes(other.buf[:4]), other.size)
        other.close()
        own.close()
        own.unlink()
        print(attempt(SharedMemory, own.name))
    """,
    "asyncio": """
        import asyncio
        async def talk():
            child = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
            print(await child.communicate(b"text"), child.returncode)
            async def answer(reader, writer):
                writer.write((await reader.read(4)).upper())
                writer.close()
            async with await asyncio.start_unix_server(answer, "socket"):
                reader, writer = await asyncio.open_unix_connection("socket")
                writer.write(b"text")
                print(await reader.read())
                writer.close()
                await writer.wait_closed()
        with scratch():
            asyncio.run(talk())
    """,
    "exit code": """
        print("end")
        sys.exit(3)
    """,
    "exit message": """
        sys.exit("end")
    """,
    "uncaught exception": """
        raise ValueError("end")
    """,
}
