"""Functions of `scipy.special`: `from drrej.core.special import betainc`.

Importing the whole package costs more than numpy and pyarrow together, nearly all of it for array libraries other than
numpy. Where this process is drrej's own (`alone`), the compiled module that holds the functions is imported without the
rest: they are the same objects. Should scipy have changed so that this fails, the whole package is imported.
"""

from __future__ import annotations

import sys
from typing import Any

alone = False
"""Whether this process is drrej's own, so that nobody else imports, or has threads, in it; the command line says so."""


def __getattr__(name: str) -> Any:
    if name.startswith("_"):  # the import statement asks for `__path__`
        raise AttributeError(name)
    if alone and "scipy.special" not in sys.modules:
        found = getattr(_compiled(), name, None)
        if found is not None:
            return found
    import scipy.special

    return getattr(scipy.special, name)


def _compiled() -> Any:
    """The module of the compiled functions, or None; the package around it is an empty one while it is imported."""
    import importlib
    import types
    from importlib.machinery import PathFinder

    import scipy

    home = "scipy.special._ufuncs"
    if home in sys.modules:
        return sys.modules[home]
    package = types.ModuleType("scipy.special")
    package.__spec__ = PathFinder.find_spec("scipy.special", scipy.__path__)
    package.__path__ = list((package.__spec__ and package.__spec__.submodule_search_locations) or [])
    before = set(sys.modules)
    sys.modules["scipy.special"] = package
    try:
        return importlib.import_module(home)
    except Exception:
        for name in set(sys.modules) - before:
            if name.startswith("scipy.special"):
                del sys.modules[name]
        return None
    finally:
        sys.modules.pop("scipy.special", None)
