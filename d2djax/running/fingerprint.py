"""Computes fingerprints of code: short texts that identify what functions and objects compute, in any process."""

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
# The location of a module does not affect its results: another checkout of the same code computes the same.
_PLACES = {"__file__", "__path__", "__cached__", "__loader__", "__spec__"}
# Attributes of a class that its author did not write; docstrings and annotations do not affect results.
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
# Digest of a code object by its `id`; the cache keeps the object, so that Python cannot reuse the `id`.
_codes: dict[int, tuple[types.CodeType, str, tuple[str, ...]]] = {}
MOST_CODES = 2**14


def _library_folders() -> tuple[str, ...]:
    places = {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return tuple(os.path.join(place, "") for place in places | {site.getusersitepackages()})


@functools.cache
def _is_installed(top: str) -> bool:
    """Tells whether a top-level package is an installed library, which its name and version identify."""
    if top in (PACKAGE, "__main__", "__mp_main__", ""):
        return False
    if top in sys.stdlib_module_names:
        return True
    module = sys.modules.get(top)
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    if module is None or file is None:
        # Code without a file, as in a notebook, is the user's; a built-in module has a loader.
        return module is not None and getattr(module, "__loader__", None) is not None
    parts = os.path.normpath(file).split(os.sep)
    return "site-packages" in parts or "dist-packages" in parts or file.startswith(_library_folders())


@functools.lru_cache(maxsize=2**12)
def _top(name: Any) -> str:
    return name.partition(".")[0] if isinstance(name, str) else ""


# The description of a value: nested tuples of texts, whose `repr` is equal in every process.
Form = Any


def _digest(form: Form) -> str:
    return hashlib.blake2b(repr(form).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _constant(value: Any) -> Form:
    """Describes a constant of a code object; sets are sorted, because their order differs between processes."""
    if isinstance(value, types.CodeType):
        return _code(value)[0]
    if isinstance(value, tuple):
        return tuple(map(_constant, value))
    if isinstance(value, frozenset):
        return ("set", *sorted(map(repr, map(_constant, value))))
    return f"{type(value).__name__} {value!r}"


def _code(code: types.CodeType) -> tuple[str, tuple[str, ...]]:
    """Returns the digest of a code object, and the names that it and its inner functions look up.

    File names, names of local variables, line numbers and docstrings do not count.
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
    """Tells whether the first constant is a docstring, which does not affect results."""
    if not code.co_consts or not isinstance(code.co_consts[0], str):
        return False
    if sys.version_info >= (3, 13):
        return bool(code.co_flags & inspect.CO_HAS_DOCSTRING)
    # Before 3.13, a function without a docstring has None here; class bodies and lambdas have no docstring here.
    return bool(code.co_flags & inspect.CO_OPTIMIZED) and not code.co_name.startswith("<")


class Survey:
    """Collects a digest of each function and class, outside installed libraries, that some objects use.

    The digest of a function covers its byte code, constants, defaults, closure and attributes, and the current
    values of its global names and of module attributes. Replacing a function or a table entry changes the digest.
    Functions and classes refer to one another by name. A function of an installed library counts by its name,
    closure and defaults, and its package is listed. Arrays count by their bytes. Imports inside a function are not
    followed.

    Attributes:
        digests: digest of each function and class, by its module and its name within the module.
        packages: installed top-level packages that the objects use.
    """

    def __init__(self) -> None:
        """Starts empty."""
        self.digests: dict[tuple[str, str], str] = {}
        self.packages: set[str] = set()
        self._names: dict[int, Form] = {}
        self._times: dict[tuple[str, str], int] = {}
        self._kept: list[Any] = []
        self._left: deque[tuple[tuple[str, str], Any]] = deque()
        self._open: dict[int, int] = {}

    def add(self, value: Any) -> Form:
        """Adds a value and everything that it uses.

        Args:
            value: a function, class, object, array or plain value, or a container of these.

        Returns:
            Its description, in which functions and classes are names; `digests` holds their content.
        """
        found = self._of(value)
        while self._left:
            place, one = self._left.popleft()
            self.digests[place] = _digest(self._class(one) if isinstance(one, type) else self._function(one))
        return found

    def by_module(self) -> dict[str, str]:
        """Returns one digest for each module, 16 hexadecimal digits, by its name."""
        found: dict[str, list[Form]] = {}
        for module, name in sorted(self.digests):
            found.setdefault(module, []).append((name, self.digests[module, name]))
        return {module: _digest(parts)[:16] for module, parts in found.items()}

    def _named(self, value: Any, module: str) -> Form:
        """Names a function or class and queues it for its digest; equal names are numbered."""
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
        # A value that contains itself is described by the distance to its outer occurrence.
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
        """Describes a library's function or class by name, and a function also by its closure and defaults."""
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
        """Describes an object by its class and its attributes, and a wrapper also by the wrapped function."""
        kind, parts = type(value), []
        if callable(wrapped := getattr(value, "__wrapped__", None)):
            parts.append(self._of(wrapped))
        if dataclasses.is_dataclass(value):
            names = [one.name for one in dataclasses.fields(value)]
            if any(_top(one.__module__) == "flax" for one in kind.__mro__):
                # `parent` refers to the Flax module that contains this one.
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
        """Describes an object of a library by its pickled form, or as `closed` if it cannot be pickled."""
        if callable(value) and isinstance(getattr(value, "__qualname__", None), str):
            # For a built-in method, this is the object that it is bound to.
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
        """Describes a global value; for a module, the attributes whose names occur in the function."""
        if type(value) is not types.ModuleType:
            return self._of(value)
        if id(value) in met:
            return ()
        met.add(id(value))
        scope = vars(value)
        there = [(name, scope[name]) for name in names if name in scope and name not in _PLACES]
        if _is_installed(_top(value.__name__)):
            self.packages.add(_top(value.__name__))
            # The library counts by its version; functions that others have assigned to its modules count in full.
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
    """Tells whether a value is a function from outside installed libraries."""
    return type(value) is types.FunctionType and not _is_installed(_top(value.__globals__.get("__name__")))


def _is_generated(value: Any) -> bool:
    """Tells whether `dataclasses` generated a method, which the fields determine."""
    code = getattr(getattr(value, "__wrapped__", value), "__code__", None)
    return code is not None and code.co_qualname.startswith("__create_fn__.")


def _texts(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def fingerprint(value: Any) -> str:
    """Computes the fingerprint of a value and of all code that it refers to.

    Args:
        value: a function, a class, an object, an array, or a tuple of these.

    Returns:
        32 hexadecimal digits, equal in every process; any change that may affect results changes them (`Survey`).
    """
    survey = Survey()
    return _digest((survey.add(value), sorted(survey.digests.items())))
