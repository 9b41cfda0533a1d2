"""Programs that print what they observe of files and file systems."""

from __future__ import annotations

__all__ = ["FILES"]

FILES = {
    "new files": """
        with scratch():
            write("file")
            os.mkdir("directory")
            for name in ("file", "directory"):
                status = os.stat(name)
                print(oct(status.st_mode), status.st_nlink, status.st_uid == os.getuid(), status.st_gid == os.getgid())
    """,
    "usual places": """
        for place in ("/tmp", "/dev/shm", "/mnt"):
            print(place, attempt(write, f"{place}/usual", "text"), attempt(os.unlink, f"{place}/usual"))
    """,
    "opening": """
        with scratch():
            write("file", "text")
            os.symlink("file", "link")
            for path, flags in (
                ("file", os.O_CREAT | os.O_EXCL), ("file", os.O_DIRECTORY), ("link", os.O_NOFOLLOW), (".", os.O_WRONLY),
                ("missing", os.O_RDONLY), ("file/below", os.O_RDONLY), ("file", os.O_RDONLY | os.O_NOATIME),
            ):
                print(path, attempt(lambda: os.close(os.open(path, flags))))
            with open("file", "a+") as file:
                file.write("more")
                file.seek(0)
                print(file.read())
            with open("file") as file:
                print(attempt(os.write, file.fileno(), b"x"))
    """,
    "symbolic links": """
        with scratch():
            os.symlink("missing", "dangling")
            os.symlink("loop", "loop")
            print(os.readlink("dangling"), oct(os.lstat("dangling").st_mode), os.path.exists("dangling"))
            print(attempt(open, "dangling"), attempt(open, "loop"), attempt(os.symlink, "target", "loop"))
            write("dangling", "created")
            print(sorted(os.listdir(".")))
    """,
    "hard links": """
        with scratch():
            write("file")
            os.link("file", "other")
            print(os.stat("file").st_nlink, os.path.samefile("file", "other"))
            print(attempt(os.link, ".", "directory"), attempt(os.link, "/etc/passwd", "system"))
            os.mkdir("directory")
            print(attempt(os.link, "file", "directory/file"), os.stat("file").st_nlink)
    """,
    "renaming": """
        with scratch():
            write("one", "1")
            write("two", "2")
            os.rename("one", "two")
            with open("two") as file:
                print(file.read(), sorted(os.listdir(".")))
            os.makedirs("full/below")
            os.mkdir("empty")
            for source, target in (("empty", "full"), ("two", "empty"), ("empty", "two"), ("full", "full/below/inside")):
                print(source, target, attempt(os.rename, source, target))
            os.rename("full/below", "moved")
            print(sorted(os.listdir(".")))
    """,
    "moving to temporary directory": """
        import tempfile
        with scratch(), tempfile.TemporaryDirectory() as target:
            write("file")
            print(attempt(os.link, "file", f"{target}/link"), attempt(os.rename, "file", f"{target}/file"))
    """,
    "deletion": """
        with scratch():
            write("file", "text")
            with open("file") as file:
                os.unlink("file")
                print(file.read(), os.fstat(file.fileno()).st_nlink)
            os.makedirs("directory/below")
            print(attempt(os.rmdir, "directory"), attempt(os.unlink, "directory"), attempt(os.rmdir, "missing"))
            os.chdir("directory/below")
            os.rmdir("../below")
            print(attempt(os.getcwd), attempt(write, "file"))
            os.chdir("/")
    """,
    "directory descriptors": """
        with scratch():
            directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
            os.mkdir("one", dir_fd=directory)
            os.chdir("one")
            os.fchdir(directory)
            print(os.listdir(directory), os.path.basename(os.getcwd()), oct(os.stat("one", dir_fd=directory).st_mode))
            os.close(directory)
    """,
    "order of directory entries": """
        with scratch():
            for name in "edcba":
                write(name)
            print(os.listdir("."))
    """,
    "names": r"""
        with scratch():
            for name in ("\u00fc", "u\u0308", "\u65e5\u672c", "\U0001f600", "a b", "a\nb", "-", os.fsdecode(b"\xff")):
                os.mkdir(name)
            print(ascii(sorted(os.listdir("."))), ascii(sorted(os.listdir(b"."))))
    """,
    "long names": """
        with scratch():
            for name in ("x" * 255, "x" * 256, "\u65e5" * 85, "\u65e5" * 86, "./" * 2047 + "x", "./" * 2048 + "x"):
                print(len(name), attempt(write, name))
    """,
    "modes": """
        with scratch():
            write("file", "text")
            os.mkdir("directory")
            for path, mode in (("file", 0o000), ("file", 0o4755), ("file", 0o2755), ("directory", 0o1777), ("directory", 0)):
                print(attempt(os.chmod, path, mode), oct(os.stat(path).st_mode), os.access(path, os.W_OK))
            os.chmod("file", 0)
            print(attempt(open, "file"), attempt(os.listdir, "directory"))
            os.chmod("directory", 0o755)
    """,
    "owners": """
        with scratch():
            write("file")
            for user, group in ((os.getuid(), os.getgid()), (-1, os.getgid()), (0, 0), (-1, 0), (65534, -1)):
                print(attempt(os.chown, "file", user, group))
    """,
    "times": """
        with scratch():
            write("file")
            os.symlink("file", "link")
            os.utime("file", ns=(1_000_000_001, 2_000_000_002))
            os.utime("link", ns=(3_000_000_003, 4_000_000_004), follow_symlinks=False)
            print([(status.st_atime_ns, status.st_mtime_ns) for status in (os.stat("file"), os.lstat("link"))])
            print(abs(os.stat("file").st_ctime - time.time()) < 5, attempt(os.utime, "/etc/passwd"))
    """,
    "extended attributes": """
        with scratch():
            write("file")
            print(attempt(os.setxattr, "file", "user.note", b"text"), os.listxattr("file"))
            print(attempt(os.getxattr, "file", "user.missing"), attempt(os.setxattr, "file", "trusted.note", b"text"))
            print(attempt(os.removexattr, "file", "user.note"), os.listxattr("file"))
    """,
    "sparse files": """
        with scratch(), open("file", "wb") as file:
            file.truncate(8 << 20)
            os.pwrite(file.fileno(), b"x", 4 << 20)
            status = os.stat("file")
            print(status.st_size, status.st_blocks * 512 < 1 << 20)
            print(os.lseek(file.fileno(), 0, os.SEEK_DATA), os.lseek(file.fileno(), 0, os.SEEK_HOLE))
    """,
    "allocated files": """
        with scratch(), open("file", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, 1 << 16)
            status = os.stat("file")
            print(status.st_size, status.st_blocks * 512 >= 1 << 16)
    """,
    "more than the disk": """
        with scratch(), open("file", "wb") as file:
            print(attempt(os.posix_fallocate, file.fileno(), 0, 1 << 30))
    """,
    "unnamed files": """
        with scratch():
            file = os.open(".", os.O_TMPFILE | os.O_RDWR)
            print(os.write(file, b"text"), os.pread(file, 9, 0), os.fstat(file).st_nlink, os.listdir("."))
            os.close(file)
    """,
    "temporary files": """
        import tempfile
        with tempfile.NamedTemporaryFile() as file, tempfile.TemporaryDirectory() as directory:
            print(oct(os.stat(file.name).st_mode), oct(os.stat(directory).st_mode))
            print(os.path.dirname(file.name) == os.path.dirname(directory) == os.environ["TMPDIR"])
    """,
    "memory maps": """
        import mmap
        with scratch(), open("file", "w+b") as file:
            file.truncate(mmap.PAGESIZE)
            with mmap.mmap(file.fileno(), 0) as shared, mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE) as private:
                shared[:4] = b"text"
                private[:1] = b"T"
                print(file.read(4), shared[:4], private[:4])
        with mmap.mmap(-1, mmap.PAGESIZE) as anonymous:
            in_child(lambda: anonymous.write(b"child"))
            print(anonymous[:5])
    """,
    "locks": """
        import fcntl
        with scratch(), open("file", "w") as one, open("file", "w") as two:
            fcntl.flock(one, fcntl.LOCK_EX)
            print(attempt(fcntl.flock, two, fcntl.LOCK_SH | fcntl.LOCK_NB))
            fcntl.flock(one, fcntl.LOCK_UN)
            fcntl.lockf(one, fcntl.LOCK_EX)
            print(attempt(fcntl.lockf, two, fcntl.LOCK_EX | fcntl.LOCK_NB))
            print(in_child(lambda: attempt(fcntl.lockf, two, fcntl.LOCK_EX | fcntl.LOCK_NB)))
    """,
    "leases": """
        import fcntl
        with scratch(), open("file", "w") as file:
            directory = os.open(".", os.O_RDONLY)
            print(attempt(fcntl.fcntl, file, fcntl.F_SETLEASE, fcntl.F_WRLCK))
            print(attempt(fcntl.fcntl, directory, fcntl.F_NOTIFY, fcntl.DN_CREATE))
            os.close(directory)
    """,
    "directory watches": """
        import struct
        with scratch():
            try:
                watches = call("inotify_init1", os.O_CLOEXEC)
            except OSError as error:
                print(errno.errorcode[error.errno])
            else:
                call("inotify_add_watch", watches, b".", 0x100)
                write("file")
                event = os.read(watches, 4096)
                print(hex(struct.unpack_from("iIII", event)[1]), event[16:].rstrip(bytes(1)))
                os.close(watches)
    """,
    "named pipes": """
        with scratch():
            os.mkfifo("pipe")
            print(oct(os.stat("pipe").st_mode), attempt(os.open, "pipe", os.O_WRONLY | os.O_NONBLOCK))
            reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
            write("pipe", "text")
            print(os.read(reader, 9), os.read(reader, 9))
            os.close(reader)
    """,
    "device nodes": """
        import stat
        with scratch():
            for kind in (stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK):
                print(oct(kind), attempt(os.mknod, oct(kind), kind | 0o600, os.makedev(1, 3)))
    """,
    "copies": """
        import shutil
        with scratch():
            write("file", "text")
            os.utime("file", (1, 2))
            shutil.copy2("file", "copy")
            with open("file", "rb") as source, open("ranges", "wb") as target:
                print(os.copy_file_range(source.fileno(), target.fileno(), 4))
            with open("file", "rb") as source, open("sent", "wb") as target:
                print(os.sendfile(target.fileno(), source.fileno(), 0, 9))
            print(os.stat("copy").st_mtime, os.stat("ranges").st_size, os.stat("sent").st_size)
            shutil.copytree(".", "tree/all", ignore=shutil.ignore_patterns("tree"))
            print(sorted(os.listdir("tree/all")))
    """,
    "scripts": r"""
        import subprocess
        with scratch():
            write("script", "#!/bin/sh\necho ran $1\n")
            print(attempt(subprocess.run, ["./script"]))
            os.chmod("script", 0o755)
            print(subprocess.run(["./script", "once"], capture_output=True).stdout)
    """,
    "own modules": r"""
        import importlib
        with scratch():
            write("own_module.py", "value = __name__, __file__\n")
            importlib.invalidate_caches()
            import own_module
            print(own_module.value[0], os.path.relpath(own_module.value[1]), sorted(os.listdir(".")))
            del sys.modules["own_module"]
    """,
    "databases": """
        import sqlite3
        with scratch():
            for mode in ("delete", "wal"):
                with contextlib.closing(sqlite3.connect(mode)) as one, contextlib.closing(sqlite3.connect(mode)) as two:
                    print(one.execute(f"pragma journal_mode={mode}").fetchone())
                    with one:
                        one.execute("create table numbers(number)")
                        one.execute("insert into numbers values (1)")
                    print(two.execute("select * from numbers").fetchall(), sorted(os.listdir(".")))
    """,
}
