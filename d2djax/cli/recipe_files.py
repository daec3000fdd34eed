"""Loads recipes from the user's Python files, `mine.py` or `mine.py:name`, for the command line."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from d2djax.recipe import Recipe

DEFAULT_NAME = "recipe"


def parts_of(text: str) -> tuple[Path, str]:
    """Splits `mine.py:name` into the absolute file and the name, which defaults to `recipe`."""
    file, _, name = text.rpartition(":") if ".py:" in text else (text, "", "")
    return Path(file).expanduser().resolve(), name or DEFAULT_NAME


def _line_of(error: BaseException, file: Path) -> str:
    """Returns the last line of the file in the traceback of an error, as text."""
    found, trace = "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            found = f", line {trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _module(file: Path) -> ModuleType:
    """Imports the file under its usual module name, so that its code has the same name everywhere."""
    there = sys.modules.get(file.stem)
    if there is not None:
        if Path(getattr(there, "__file__", None) or "").resolve() == file:
            return there
        raise ValueError(f"--recipe {file}: rename the file, because a module {file.stem} already exists")
    made = importlib.util.spec_from_file_location(file.stem, file)
    if made is None or made.loader is None:
        raise ValueError(f"--recipe {file}: must be a Python file, such as mine.py")
    module = importlib.util.module_from_spec(made)
    # Pickle, dataclasses and fingerprints look in `sys.modules`; `sys.path` lets it import neighbouring files.
    sys.modules[file.stem] = module
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    try:
        made.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        # A script that calls `sys.exit` would end the command too, perhaps with the exit code of success.
        del sys.modules[file.stem]
        text = (str(error).splitlines() or [""])[0]
        where = "" if isinstance(error, SyntaxError) else _line_of(error, file)
        raise ValueError(f"--recipe {file}{where}: {type(error).__name__}: {text}") from error
    return module


def load_recipe(text: str) -> Recipe:
    """Executes a Python file and returns its recipe.

    Args:
        text: `mine.py`, whose recipe is called `recipe`, or `mine.py:name`.

    Returns:
        The recipe; its `file` says where it was defined.

    Raises:
        ValueError: the file does not exist, fails, or has no recipe of this name.
    """
    from d2djax.recipe import Recipe

    file, name = parts_of(text)
    if not file.is_file():
        raise ValueError(f"--recipe {text}: there is no such file")
    module = _module(file)
    found = getattr(module, name, None)
    if not isinstance(found, Recipe):
        there = [key for key, value in vars(module).items() if isinstance(value, Recipe)]
        has = f"it has {', '.join(there)}" if there else "it has none"
        raise ValueError(f"--recipe {text}: expected a d2djax.Recipe called {name}; {has}")
    network = found.network
    if getattr(network, "file", None):
        # Only the file of the recipe is recorded, because it also defines the network.
        network = replace(network, file=None)
    return replace(found, network=network, file=f"{file}:{name}")
