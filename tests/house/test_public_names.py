"""Every name that `import swiftfl` offers is there, typed and documented: for readers, mypy and the site."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import swiftfl

SOURCE = Path(swiftfl.__file__)
ROOT = Path(__file__).parents[2]
NAMES = [name for name in swiftfl.__all__ if not name.startswith("__")]


def members(name: str) -> Iterator[tuple[str, Callable[..., object]]]:
    """The functions behind a public name: itself, or a class's own public methods and properties."""
    found = getattr(swiftfl, name)
    if not inspect.isclass(found):
        yield name, found
        return
    for base in found.__mro__:
        if base.__module__.startswith("swiftfl"):
            for key, value in vars(base).items():
                function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
                ours = inspect.isfunction(function) and function.__module__ != "typing"
                if callable(function) and ours and (not key.startswith("_") or key == "__init__"):
                    yield f"{name}.{key}", function


def test_type_checkers_see_the_same_names() -> None:
    """What is imported when it is used is imported for type checkers, too."""
    tree = ast.parse(SOURCE.read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert sorted(seen) == sorted(NAMES)
    assert swiftfl.__all__ == sorted(set(swiftfl.__all__), key=lambda name: (name not in CONSTANTS, name))
    assert dir(swiftfl) == sorted(swiftfl.__all__)


CONSTANTS = {"SGD"}
"""ruff's order of `__all__`: names in capitals come first."""


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_documented(name: str) -> None:
    found = getattr(swiftfl, name)
    assert inspect.getdoc(found), name
    for what, function in members(name):
        private = what.endswith(".__init__") or function.__name__ in inherited_of(found)
        assert private or inspect.getdoc(function), f"{what} says nothing of itself"


def inherited_of(found: object) -> set[str]:
    """What torch's optimizers, mappings and the like document themselves."""
    bases = [b for b in getattr(found, "__mro__", ()) if not b.__module__.startswith("swiftfl")]
    return {key for base in bases for key in vars(base)}


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_typed(name: str) -> None:
    for what, function in members(name):
        code = getattr(function, "__code__", None)
        if code is not None and code.co_filename == "<string>":
            continue  # made by dataclass from annotated fields
        signature = inspect.signature(function)
        for parameter in signature.parameters.values():
            typed = parameter.annotation is not inspect.Parameter.empty or parameter.name in ("self", "cls")
            assert typed, f"{what}: {parameter.name} has no type"
        assert signature.return_annotation is not inspect.Signature.empty, f"{what} has no type of its value"


@pytest.mark.parametrize("name", ["train", "compare", "load", "join", "as_dataset"])
def test_every_argument_of_the_front_door_is_explained(name: str) -> None:
    function = getattr(swiftfl, name)
    told = inspect.getdoc(function) or ""
    for parameter in inspect.signature(function).parameters:
        assert re.search(rf"\b{parameter}\b", told), f"{name} does not explain {parameter}"


def test_the_reference_has_every_name() -> None:
    """By itself, or among the graphs, which are all the others (`test_site.py` looks at the built site)."""
    page = (ROOT / "docs" / "api" / "swiftfl.md").read_text(encoding="utf-8")
    own = set(re.findall(r"auto(?:function|class|exception):: swiftfl\.(\w+)", page))
    listed = re.search(r"automodule:: swiftfl\n   :members:\n   :exclude-members: (.*)", page)
    assert listed is not None
    assert set(listed[1].split(", ")) == own
    assert own <= set(NAMES)
