"""Fingerprints of code: what functions and objects compute, as short texts that are equal in every process."""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import inspect
import os
import site
import sys
import sysconfig
import types
from collections import deque
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

PACKAGE = __name__.partition(".")[0]
# Where a module lies is no part of what it computes: another checkout of the same code has the same results.
_PLACES = {"__file__", "__path__", "__cached__", "__loader__", "__spec__"}
# What a class has beside what its author wrote; docstrings and annotations compute nothing.
_UNWRITTEN = frozenset(
    {
        *(
            "__dict__",
            "__weakref__",
            "__doc__",
            "__module__",
            "__qualname__",
            "__annotations__",
            "__abstractmethods__",
        ),
        *("__firstlineno__", "__static_attributes__", "__annotate__", "__annotate_func__", "__annotations_cache__"),
        *("__dataclass_params__", "__match_args__", "__parameters__", "__orig_bases__", "_abc_impl", "__hash__"),
    }
)
_PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented)))
# Digest of a code object by its number; the object is kept, so that no other one gets its number.
_codes: dict[int, tuple[types.CodeType, str, tuple[str, ...]]] = {}
MOST_CODES = 2**14


def _library_folders() -> tuple[str, ...]:
    places = {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return tuple(os.path.join(place, "") for place in places | {site.getusersitepackages()})


@functools.cache
def _is_installed(top: str) -> bool:
    """Whether a top package is an installed library: its name and version stand for its code."""
    if top in (PACKAGE, "__main__", "__mp_main__", ""):
        return False
    if top in sys.stdlib_module_names:
        return True
    module = sys.modules.get(top)
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    if module is None or file is None:
        # Code without a file, as of a notebook, is its author's own; a built-in module has a loader.
        return module is not None and getattr(module, "__loader__", None) is not None
    parts = os.path.normpath(file).split(os.sep)
    return "site-packages" in parts or "dist-packages" in parts or file.startswith(_library_folders())


@functools.lru_cache(maxsize=2**12)
def _top(name: Any) -> str:
    return name.partition(".")[0] if isinstance(name, str) else ""


# What something is, as texts in nested tuples: printed, they are equal in every process.
Form = Any


def _digest(form: Form) -> str:
    return hashlib.blake2b(repr(form).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _constant(value: Any) -> Form:
    """A constant of a code object; sets of texts have another order in every process."""
    if isinstance(value, types.CodeType):
        return _code(value)[0]
    if isinstance(value, tuple):
        return tuple(map(_constant, value))
    if isinstance(value, frozenset):
        return ("set", *sorted(map(repr, map(_constant, value))))
    return f"{type(value).__name__} {value!r}"


def _code(code: types.CodeType) -> tuple[str, tuple[str, ...]]:
    """Digest of a code object, and the names that it and the functions inside it look up.

    Names of files and of local variables, numbers of lines and docstrings compute nothing.
    """
    known = _codes.get(id(code))
    if known is not None:
        return known[1], known[2]
    constants = code.co_consts
    inner = [one for one in constants if isinstance(one, types.CodeType)]
    names = {name for one in inner for name in _code(one)[1]} | set(code.co_names)
    num_arguments = code.co_argcount + code.co_kwonlyargcount
    shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_names)
    shape += (code.co_varnames[:num_arguments], code.co_freevars, code.co_cellvars)
    first = ["docstring" if _has_docstring(code) else _constant(one) for one in constants[:1]]
    digest = _digest((code.co_code, code.co_exceptiontable, shape, *first, *map(_constant, constants[1:])))
    if len(_codes) >= MOST_CODES:
        _codes.clear()
    _codes[id(code)] = (code, digest, tuple(sorted(names)))
    return digest, _codes[id(code)][2]


def _has_docstring(code: types.CodeType) -> bool:
    """Whether the first constant is a docstring, which computes nothing."""
    if not code.co_consts or not isinstance(code.co_consts[0], str):
        return False
    if sys.version_info >= (3, 13):
        return bool(code.co_flags & inspect.CO_HAS_DOCSTRING)
    # Before, a function without one has None in its place; what else has a body is no function or has no name.
    return bool(code.co_flags & inspect.CO_OPTIMIZED) and not code.co_name.startswith("<")


class Survey:
    """Everything that some objects consist of: own functions and classes by name, each with a digest of its own.

    A function counts by its byte code, constants, defaults, closure and attributes, and by what its global names
    and the attributes of modules stand for now, so a replaced function or entry of a table is another one.
    Functions and classes refer to one another by name. Those of installed libraries count by name, with what they
    were given (closure, defaults), and their packages are listed. Arrays count by their bytes. Imports inside a
    function are not followed.

    Attributes:
        digests: of each own function and class, by module and name within it.
        packages: installed top packages that something was taken from.
    """

    def __init__(self) -> None:
        """Begins with nothing."""
        self.digests: dict[tuple[str, str], str] = {}
        self.packages: set[str] = set()
        self._names: dict[int, Form] = {}
        self._times: dict[tuple[str, str], int] = {}
        self._kept: list[Any] = []
        self._left: deque[tuple[tuple[str, str], Any]] = deque()
        self._open: dict[int, int] = {}

    def add(self, value: Any) -> Form:
        """The form of a value in which own functions and classes stand with their names; `digests` has the rest."""
        found = self._of(value)
        while self._left:
            place, one = self._left.popleft()
            self.digests[place] = _digest(self._class(one) if isinstance(one, type) else self._function(one))
        return found

    def by_module(self) -> dict[str, str]:
        """One digest for all that was found in each module, 16 hexadecimal digits by its name."""
        found: dict[str, list[Form]] = {}
        for module, name in sorted(self.digests):
            found.setdefault(module, []).append((name, self.digests[module, name]))
        return {module: _digest(parts)[:16] for module, parts in found.items()}

    def _named(self, value: Any, module: str) -> Form:
        """The name of an own function or class, which is looked into later; equal names are numbered."""
        known = self._names.get(id(value))
        if known is None:
            name = value.__qualname__
            number = self._times[module, name] = self._times.get((module, name), 0) + 1
            known = self._names[id(value)] = (module, name if number == 1 else f"{name} {number}")
            self._kept.append(value)
            self._left.append((known, value))
        return known

    def _of(self, value: Any) -> Form:
        kind = type(value)
        if kind in _PLAIN:
            return f"{kind.__name__} {value!r}"
        if kind is types.FunctionType:
            module = value.__globals__.get("__name__") or ""
            return self._foreign(value, module) if _is_installed(_top(module)) else self._named(value, module)
        if isinstance(value, type):
            module = value.__module__ if isinstance(value.__module__, str) else ""
            return self._foreign(value, module) if _is_installed(_top(module)) else self._named(value, module)
        if kind is types.ModuleType:
            return f"module {value.__name__}"
        if isinstance(value, (np.ndarray, np.generic, jax.Array)):
            return self._array(value)
        # What contains itself is told by how far out it was met.
        if id(value) in self._open:
            return f"outer {len(self._open) - self._open[id(value)]}"
        self._open[id(value)] = len(self._open)
        try:
            return self._composed(value)
        finally:
            del self._open[id(value)]

    def _composed(self, value: Any) -> Form:
        kind = type(value)
        if isinstance(value, (tuple, list)):
            return (kind.__name__, *map(self._of, value))
        if isinstance(value, types.CellType):
            return self._cell(value)
        if isinstance(value, (dict, types.MappingProxyType)):
            return (kind.__name__, *((self._of(key), self._of(one)) for key, one in value.items()))
        if isinstance(value, (set, frozenset)):
            return (kind.__name__, *sorted(repr(self._of(one)) for one in value))
        if isinstance(value, enum.Enum):
            return ("enum", self._of(kind), value.name, self._of(value.value))
        return self._wrapper(value)

    def _wrapper(self, value: Any) -> Form:
        if isinstance(value, functools.partial):
            return ("partial", *map(self._of, (value.func, value.args, value.keywords)))
        if isinstance(value, types.MethodType):
            return ("method", self._of(value.__func__), self._of(value.__self__))
        if isinstance(value, (staticmethod, classmethod)):
            return (type(value).__name__, self._of(value.__func__))
        if isinstance(value, property):
            return ("property", *map(self._of, (value.fget, value.fset, value.fdel)))
        if isinstance(value, types.CodeType):
            return _code(value)[0]
        return self._instance(value)

    def _cell(self, cell: types.CellType) -> Form:
        try:
            return self._of(cell.cell_contents)
        except ValueError:
            return "empty"

    def _array(self, value: Any) -> Form:
        if isinstance(value, Tracer):
            return f"traced {value.dtype} {value.shape}"
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            return (str(value.dtype), self._array(jax.random.key_data(value)))
        array = np.asarray(value)
        if array.dtype == object:
            return ("objects", array.shape, *map(self._of, array.ravel().tolist()))
        digest = hashlib.blake2b(np.ascontiguousarray(array).data.cast("B") if array.size else b"", digest_size=16)
        return (str(array.dtype), array.shape, digest.hexdigest())

    def _foreign(self, value: Any, module: str) -> Form:
        """A function or class of a library: its name, and what a function was given."""
        self.packages.add(_top(module))
        name = f"{module}.{value.__qualname__}"
        if isinstance(value, type) or not (value.__closure__ or value.__defaults__ or value.__kwdefaults__):
            return name
        if id(value) in self._open:
            return ("again", name)
        self._open[id(value)] = len(self._open)
        try:
            return (name, *map(self._of, (value.__closure__, value.__defaults__, value.__kwdefaults__)))
        finally:
            del self._open[id(value)]

    def _instance(self, value: Any) -> Form:
        """An object by its class and what it holds; a wrapper of a function also by that function."""
        kind, parts = type(value), []
        if callable(wrapped := getattr(value, "__wrapped__", None)):
            parts.append(self._of(wrapped))
        if dataclasses.is_dataclass(value):
            names = [one.name for one in dataclasses.fields(value)]
            if any(_top(one.__module__) == "flax" for one in kind.__mro__):
                # Where a Flax module stands in another one.
                names = [name for name in names if name != "parent"]
            parts += [(name, self._of(getattr(value, name, None))) for name in names]
        elif _is_installed(_top(kind.__module__)) and not hasattr(value, "__dict__"):
            parts.append(self._reduced(value))
        else:
            held = dict(getattr(value, "__dict__", None) or {})
            slots = [name for one in kind.__mro__ for name in _texts(getattr(one, "__slots__", ()))]
            held |= {name: getattr(value, name) for name in slots if hasattr(value, name)}
            names = sorted(str(name) for name in held if name not in ("__dict__", "__weakref__", "__wrapped__"))
            parts += [(name, self._of(held[name])) for name in names]
        return ("object", self._of(kind), *parts)

    def _reduced(self, value: Any) -> Form:
        """What an object of a library would be pickled as; its kind alone where it cannot be."""
        if callable(value) and isinstance(getattr(value, "__qualname__", None), str):
            # Of a built-in method, also what it is a method of.
            owner = getattr(value, "__self__", None)
            return (f"{getattr(value, '__module__', '')}.{value.__qualname__}", self._of(owner))
        try:
            made = value.__reduce_ex__(4)
        except Exception:
            return "closed"
        return made if isinstance(made, str) else self._of(made[:3])

    def _function(self, value: types.FunctionType) -> Form:
        digest, names = _code(value.__code__)
        given = value.__closure__, value.__defaults__, value.__kwdefaults__, value.__dict__
        scope = value.__globals__
        looked_up = [name for name in names if name in scope and name not in _PLACES]
        found = [(name, self._global(scope[name], names, set())) for name in looked_up]
        return (digest, [self._of(one) for one in given if one], found)

    def _global(self, value: Any, names: tuple[str, ...], met: set[int]) -> Form:
        """A global value, or what a function may look up in a module: all of its names that the module has."""
        if type(value) is not types.ModuleType:
            return self._of(value)
        if id(value) in met:
            return ()
        met.add(id(value))
        scope = vars(value)
        there = [(name, scope[name]) for name in names if name in scope and name not in _PLACES]
        if _is_installed(_top(value.__name__)):
            self.packages.add(_top(value.__name__))
            # Its own code counts by its version; what somebody else has put there counts as such.
            there = [(name, one) for name, one in there if type(one) is types.ModuleType or _is_put(one)]
        return (value.__name__, *((name, self._global(one, names, met)) for name, one in there))

    def _class(self, value: type) -> Form:
        written = {name: one for name, one in vars(value).items() if name not in _UNWRITTEN}
        if issubclass(value, enum.Enum):
            members = [(name, one.value) for name, one in value.__members__.items()]
            written = {name: one for name, one in written.items() if type(one) is types.FunctionType}
            written |= {"members": members}
        parts = []
        for name, one in sorted(written.items()):
            if isinstance(one, (types.MemberDescriptorType, types.GetSetDescriptorType)) or _is_generated(one):
                continue
            if name == "__dataclass_fields__":
                fields = [(item.name, item.default, item.default_factory) for item in vars(value)[name].values()]
                one = [[part for part in field if part is not dataclasses.MISSING] for field in fields]
            parts.append((name, self._of(one)))
        return (*map(self._of, value.__bases__), *parts)


def _is_put(value: Any) -> bool:
    """Whether a function does not come from a library."""
    return type(value) is types.FunctionType and not _is_installed(_top(value.__globals__.get("__name__")))


def _is_generated(value: Any) -> bool:
    """Whether `dataclasses` wrote a method: the fields say all about it."""
    code = getattr(getattr(value, "__wrapped__", value), "__code__", None)
    return code is not None and code.co_qualname.startswith("__create_fn__.")


def _texts(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def fingerprint(value: Any) -> str:
    """Fingerprint of a value with all code that it refers to: 32 hexadecimal digits, equal in every process.

    Args:
        value: a function, a class, an object, an array, or a tuple of such.

    Returns:
        The digits; they change when something changes that `value` may compute with, see `Survey`.
    """
    survey = Survey()
    return _digest((survey.add(value), sorted(survey.digests.items())))
