"""Measure the languages of programs, and write the matrix of docs/languages.md.

``python docs/_site/language_matrix.py --provider docker`` grades a program in each language that the sandbox has, three times,
and rewrites the table between ``<!-- matrix -->`` and ``<!-- end -->``. With ``--print`` it shows the table instead.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import statistics
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from coding_gym.client.session import Session
from coding_gym.errors import ConfigurationError
from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym_server.languages import languages
from coding_gym_server.protocol.grading import GradingLimits, ProgramCase, Programs, Submission, VerdictOutcome

PAGE = Path(__file__).parents[1] / "languages.md"
_TABLE = re.compile(r"(<!-- matrix -->\n).*?(\n<!-- end -->)", re.DOTALL)
_ROUNDS = 3
_LIMITS = GradingLimits(cpu_timeout=20.0, wall_timeout=120.0)

PROGRAMS = {
    "bash": "echo ok",
    "c": '#include <stdio.h>\nint main(void) { puts("ok"); return 0; }',
    "cpp": '#include <bits/stdc++.h>\nint main() { std::cout << "ok" << std::endl; }',
    "csharp": 'class Program { static void Main() { System.Console.WriteLine("ok"); } }',
    "d": 'import std.stdio;\n\nvoid main() { writeln("ok"); }',
    "fortran": "program main\n  print '(a)', 'ok'\nend program main",
    "go": 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("ok") }',
    "haskell": 'main :: IO ()\nmain = putStrLn "ok"',
    "java": 'public class Main { public static void main(String[] args) { System.out.println("ok"); } }',
    "javascript": "console.log('ok')",
    "kotlin": 'fun main() { println("ok") }',
    "lua": "print('ok')",
    "ocaml": 'let () = print_endline "ok"',
    "pascal": "begin\n  writeln('ok');\nend.",
    "perl": 'print "ok\\n";',
    "php": '<?php echo "ok\\n";',
    "r": 'cat("ok\\n")',
    "racket": '#lang racket\n(displayln "ok")',
    "ruby": "puts 'ok'",
    "rust": 'fn main() { println!("ok"); }',
    "scala": 'object Main { def main(args: Array[String]): Unit = println("ok") }',
    "sql": "SELECT 'ok';",
    "typescript": "const text: string = 'ok';\nconsole.log(text);",
}
"""Programs that print ``ok``, by language."""

_VERSIONS = {
    "go": "go version",
    "java": "javac --version",
    "kotlin": "kotlinc -version 2>&1 | tail -1",
    "lua": "lua5.4 -v",
    "ocaml": "ocamlfind ocamlopt -version",
    "pascal": "fpc -iV",
    "perl": "perl -e 'print $^V'",
    "r": "R --version",
    "scala": "scala -version 2>&1",
    "typescript": "deno --version",
}


def measured(provider: str) -> Iterator[str]:
    """Yield the rows of the matrix, of languages that the sandbox has."""
    names = tuple(PROGRAMS) if provider == "docker" else ()
    config = SandboxConfig(provider=provider, preload=(), languages=names, backend="bash", sessions=2)
    with contextlib.closing(start_sandbox(config)) as sandbox, contextlib.closing(sandbox.connect()) as session:
        for name in PROGRAMS:
            with contextlib.suppress(ConfigurationError):
                yield _row(session, name)


def _row(session: Session, name: str) -> str:
    language = languages()[name]
    compile_seconds, run_seconds, memory_bytes = [], [], 0
    for number in range(_ROUNDS):
        tests = Programs(cases=(ProgramCase(stdout="ok\n"),), language=name)
        # Another source each time, which is compiled again.
        code = PROGRAMS[name] + "\n" * (number + 1)
        graded = session.grade(Submission(code=code, tests=tests, limits=_LIMITS), timeout=600)
        if graded.outcome is not VerdictOutcome.PASSED:
            message = f"{name}: {graded.outcome.value}: {graded.message} {graded.stderr}"
            raise RuntimeError(message)
        compile_seconds.append(graded.load_seconds)
        run_seconds.append(graded.cpu_seconds)
        memory_bytes = max(memory_bytes, graded.cases[0].memory_bytes or 0)
    command = _VERSIONS.get(name, f"{language.needs[0]} --version")
    session.ask_step(f"{command} 2>&1 | head -1")
    printed = session.wait(timeout=60).observation.stdout.strip()
    version = re.search(r"\d+(?:\.\d+)+", printed)
    compilation = f"{statistics.median(compile_seconds):.2f} s" if language.compile else ""
    run = f"{statistics.median(run_seconds) * 1000:.0f} ms"
    memory = f"{memory_bytes >> 20} MiB" if memory_bytes else "under 40 MiB"
    return f"| `{name}` | {version[0] if version else printed} | {compilation} | {run} | {memory} |\n"


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--provider", default="docker")
    parser.add_argument("--print", action="store_true", help="only print the table")
    arguments = parser.parse_args()
    table = "| language | version | compilation | CPU time of an empty program | memory |\n|---|---|---|---|---|\n"
    for row in measured(arguments.provider):
        sys.stdout.write(row)
        table += row
    date = f"\nMeasured on {datetime.now(UTC):%Y-%m-%d} with the provider `{arguments.provider}`, medians of three.\n"
    if not arguments.print:
        text = PAGE.read_text(encoding="utf-8")
        text, count = _TABLE.subn(lambda found: f"{found[1]}\n{table}{date}{found[2]}", text)
        assert count == 1, f"{PAGE} has no place for the table"
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
