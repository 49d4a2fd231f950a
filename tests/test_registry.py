"""Names for what is chosen by name, and plugins of other packages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from pointsman.tools.errors import InputError, UnknownNameError
from pointsman.values.registry import GROUP, STRATEGIES, Registry

Install = Callable[[str, dict[str, str], str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a real distribution with entry points and one module on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    modules = set(sys.modules)

    def package(name: str, points: dict[str, str], code: str) -> None:
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = "\n".join(f"{point} = {value}" for point, value in points.items())
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{lines}\n")
        (tmp_path / f"{name}.py").write_text(code)

    yield package
    for module in set(sys.modules) - modules:
        del sys.modules[module]


def test_register_names_and_create() -> None:
    registry: Registry[str] = Registry("shape", "no.such.group")
    registry.register("b", lambda size, *, mark="x": mark * size)
    registry.register("a", str)
    assert registry.names() == ("a", "b")
    assert registry.create("b", 3, mark="o") == "ooo"
    assert "a" in registry
    assert "c" not in registry


def test_a_name_is_taken_once_unless_it_is_replaced() -> None:
    registry: Registry[str] = Registry("shape", "no.such.group")
    registry.register("a", lambda: "old")
    with pytest.raises(InputError, match=r"shape named 'a' is registered already.*replace=True"):
        registry.register("a", lambda: "new")
    assert registry.create("a") == "old"
    registry.register("a", lambda: "new", replace=True)
    assert registry.create("a") == "new"


def test_what_cannot_be_registered_or_found_is_told() -> None:
    registry: Registry[str] = Registry("shape", "no.such.group")
    registry.register("a", str)
    with pytest.raises(UnknownNameError, match="no shape named 'c'; known: a"):
        registry.create("c")
    with pytest.raises(InputError, match="under a name"):
        registry.register(" ", str)
    with pytest.raises(InputError, match="needs a callable"):
        registry.register("b", "str")  # type: ignore[arg-type]


def test_the_factorys_own_errors_pass_through() -> None:
    registry: Registry[int] = Registry("number", "no.such.group")
    registry.register("int", int)
    with pytest.raises(ValueError, match="invalid literal"):
        registry.create("int", "x")


def test_plugins_are_listed_unloaded_and_loaded_when_asked_for(install: Install) -> None:
    install("plug", {"shape.dot": "plug:dot", "other.dot": "plug:nothing"}, "def dot(): return '.'\n")
    registry: Registry[str] = Registry("shape")
    assert registry.names() == ("dot",)
    assert "plug" not in sys.modules
    assert registry.create("dot") == "."
    assert "plug" in sys.modules
    assert registry.problems == {}
    assert "dot" not in Registry("strategy").names()


def test_a_broken_plugin_is_named_and_hurts_no_other(install: Install, caplog: pytest.LogCaptureFixture) -> None:
    install("good", {"shape.good": "good:make"}, "make = lambda: 'good'\n")
    install("bad", {"shape.bad": "bad:make"}, "raise RuntimeError('it is broken')\n")
    install("void", {"shape.void": "void:make", "shape.absent": "void:absent"}, "make = 3\n")
    registry: Registry[str] = Registry("shape")
    assert registry.names() == ("absent", "bad", "good", "void")
    with pytest.raises(InputError, match=r"shape 'bad': bad:make of bad cannot be loaded: RuntimeError: it is broken"):
        registry.create("bad")
    with pytest.raises(InputError, match="not callable"):
        registry.create("void")
    with pytest.raises(InputError, match="AttributeError"):
        registry.get("absent")
    assert registry.create("good") == "good"
    assert set(registry.problems) == {"absent", "bad", "void"}
    assert "plugin shape.bad" in caplog.text


def test_code_goes_before_a_plugin_and_the_first_package_before_others(install: Install) -> None:
    install("alpha", {"shape.dot": "alpha:dot"}, "dot = lambda: 'alpha'\n")
    install("beta", {"shape.dot": "beta:dot"}, "dot = lambda: 'beta'\n")
    registry: Registry[str] = Registry("shape")
    assert registry.create("dot") == "alpha"
    assert "alpha and beta both provide it" in registry.problems["dot"]
    registry.register("dot", lambda: "code")
    assert registry.create("dot") == "code"


def test_there_is_one_registry_of_strategies() -> None:
    assert STRATEGIES.kind == "strategy"


def test_a_thread_waits_for_names_that_another_is_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import time\ntime.sleep(0.3)\nfrom shapes_of_a_test import registry\nregistry.register('ours', str)\n"
    (tmp_path / "names_that_load_slowly.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry[str]("shape", builtin="names_that_load_slowly")
    monkeypatch.setitem(sys.modules, "shapes_of_a_test", SimpleNamespace(registry=registry))
    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(lambda _: registry.names(), range(4))) == {("ours",)}
