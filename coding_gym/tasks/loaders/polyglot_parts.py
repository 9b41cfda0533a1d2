"""What the tests of MultiPL-E and HumanEval-X use, and programs of the table of languages do not have.

Their evaluators install libraries, and call tools such as ``go test``. Programs here are a single file that a compiler makes,
so that the few functions of these libraries that the tests call are part of it.
"""

from __future__ import annotations

import re

__all__ = [
    "CPP_HEADERS",
    "CS_ASSERTS",
    "GO_ASSERTS",
    "GO_IMPORTS",
    "JAVA_TUPLES",
    "JS_ASSERTS",
    "LUA_UNIT",
    "PERL_DEEP",
    "go_main",
    "java_main",
]

CPP_HEADERS = (
    *("#include<stdlib.h>", "#include<algorithm>", "#include<math.h>", "#include<stdio.h>", "#include<vector>"),
    *("#include<string>", "#include<climits>", "#include<cstring>", "#include<iostream>"),
)
"""What the evaluator of HumanEval-X includes."""

CS_ASSERTS = """\
static class Debug {
    public static void Assert(bool holds) {
        if (!holds) throw new System.Exception("an assertion failed");
    }
}
"""
"""System.Diagnostics has one that is left out of programs, unless they are compiled for debugging."""

JAVA_TUPLES = """\
record Pair<A, B>(A getValue0, B getValue1) {
    static <A, B> Pair<A, B> with(A first, B second) {
        return new Pair<>(first, second);
    }
}
"""
"""The part of the package ``org.javatuples`` that is used."""

JS_ASSERTS = """\
console.assert = (holds, ...message) => {
  if (!holds) throw new Error(`an assertion failed: ${message.join(" ")}`);
};
"""
"""Node.js only prints that an assertion failed."""

LUA_UNIT = """\
package.preload["luaunit"] = function()
  local unit = { LuaUnit = {} }
  local function same(got, wanted)
    if type(got) ~= "table" or type(wanted) ~= "table" then return got == wanted end
    for key, value in pairs(got) do
      if not same(value, wanted[key]) then return false end
    end
    for key in pairs(wanted) do
      if got[key] == nil then return false end
    end
    return true
  end
  function unit.assertEquals(got, wanted)
    if not same(got, wanted) then error("expected " .. tostring(wanted) .. ", got " .. tostring(got), 2) end
  end
  function unit.LuaUnit.run()
    for name, test in pairs(_G) do
      if type(name) == "string" and name:match("^test") and type(test) == "function" then test() end
    end
    return 0
  end
  return unit
end
"""

PERL_DEEP = """\
BEGIN {
    package Test::Deep;
    $INC{"Test/Deep.pm"} = __FILE__;
    sub eq_deeply {
        my ($got, $wanted) = @_;
        return !defined $got && !defined $wanted if !defined $got || !defined $wanted;
        return 0 if ref $got ne ref $wanted;
        if (ref $wanted eq "ARRAY") {
            return @$got == @$wanted && !grep { !eq_deeply($got->[$_], $wanted->[$_]) } 0 .. $#$wanted;
        }
        if (ref $wanted eq "HASH") {
            return keys %$got == keys %$wanted
                && !grep { !exists $got->{$_} || !eq_deeply($got->{$_}, $wanted->{$_}) } keys %$wanted;
        }
        return $got eq $wanted;
    }
    sub import { *main::eq_deeply = \\&eq_deeply }
}
"""

_GO_USED = {
    "bytes": "bytes.Equal",
    "crypto/md5": "md5.New",
    "fmt": "fmt.Sprint",
    "math": "math.Abs",
    "math/rand": "rand.Int",
    "reflect": "reflect.DeepEqual",
    "regexp": "regexp.MustCompile",
    "sort": "sort.Ints",
    "strconv": "strconv.Itoa",
    "strings": "strings.ToLower",
    "testing": "testing.Short",
    "time": "time.Now",
}
_GO_LINES = [f'    "{package}"' for package in _GO_USED], [f"    _ = {name}" for name in _GO_USED.values()]
GO_IMPORTS = "import (\n{}\n)\n\nvar (\n{}\n)\n".format(*map("\n".join, _GO_LINES))
"""Packages for any submission, all of which are used: Go refuses others."""

GO_ASSERTS = """\
type asserts struct{ t *testing.T }

func (asserts) New(t *testing.T) asserts { return asserts{t} }

func (a asserts) Equal(expected, actual interface{}, _ ...interface{}) {
    if !reflect.DeepEqual(expected, actual) {
        a.t.Errorf("expected %v, got %v", expected, actual)
    }
}

var assert asserts
"""
"""The part of the package ``testify`` that is used."""


def go_main(tests: str) -> str:
    """Return a program that runs the tests of a file, as ``go test`` does."""
    names = re.findall(r"^func (Test\w+)\(t \*testing\.T\)", tests, re.MULTILINE)
    listed = "".join(f'{{Name: "{name}", F: {name}}}, ' for name in names)
    run = "func(_, _ string) (bool, error) { return true, nil }"
    return f"\nfunc main() {{\n    testing.Main({run}, []testing.InternalTest{{{listed}}}, nil, nil)\n}}\n"


def java_main(name: str) -> str:
    """Return a class that runs the main program of another one with assertions, as ``java -ea`` does."""
    return (
        "public class Tests {\n    public static void main(String[] args) {\n"
        "        ClassLoader.getSystemClassLoader().setDefaultAssertionStatus(true);\n"
        f"        {name}.main(args);\n    }}\n}}\n"
    )
