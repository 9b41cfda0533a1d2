"""Program that becomes a user of a sandbox whose programs are root, and is replaced by a command of that user.

A NUL is the first byte of its standard output: from then on, signals of the user reach it, and end it as they end the command.

Its arguments are the user; the working directory, relative to the user's home directory; the variables of the environment that
are to stay, separated by commas; and the command. The gateway sends it as text, so it imports the standard library only.
"""

from __future__ import annotations

import os
import pwd
import signal
import sys

_CANNOT_EXECUTE, _NOT_FOUND = 126, 127


def main() -> None:
    """Become the user, and execute the command."""
    name, directory, kept, *command = sys.argv[1:]
    subject = name
    try:
        user = pwd.getpwnam(name)
        own = {"HOME": user.pw_dir, "USER": name, "LOGNAME": name, "SHELL": user.pw_shell}
        os.environ.update({variable: value for variable, value in own.items() if variable not in kept.split(",")})
        os.initgroups(name, user.pw_gid)
        os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
        os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
        subject = os.path.join(user.pw_dir, directory)
        os.chdir(subject)
        os.environ["PWD"] = subject
        # Python handles or ignores them, and the command would ignore the latter, too.
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.write(1, b"\0")
        subject = command[0]
        os.execvp(subject, command)
    except KeyError:
        sys.stderr.write(f"{subject}: there is no such user\n")
        code = _CANNOT_EXECUTE
    except OSError as error:
        sys.stderr.write(f"{subject}: {error.strerror}\n")
        code = _NOT_FOUND if isinstance(error, (FileNotFoundError, NotADirectoryError)) else _CANNOT_EXECUTE
    sys.exit(code)


if __name__ == "__main__":
    main()
