"""Tests of registries, and of plug-ins that add entries to them."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fsdpo_data.core import plugins
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.registry import Registry


@dataclass(frozen=True)
class Fruit:
    name: str
    colour: str = ""


FRUITS = Registry("fruit", Fruit, group="fsdpo.fruits")
FRUITS.register(Fruit("apple", "red"))


def install_package(folder: Path, source: str, entry_points: str) -> None:
    """Write a module and its metadata, as pip installs them."""
    (folder / "orchard.py").write_text(source)
    metadata_folder = folder / "orchard-1.2.dist-info"
    metadata_folder.mkdir()
    (metadata_folder / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: orchard\nVersion: 1.2\n"
    )
    (metadata_folder / "entry_points.txt").write_text(entry_points)


def forget_entry_points() -> None:
    plugins.entry_points.cache_clear()
    plugins._program_entry_points.cache_clear()


def test_names_and_entries() -> None:
    fruits = Registry("fruit", Fruit)
    apple = fruits.register(Fruit("apple"))
    assert list(fruits) == ["apple"] and len(fruits) == 1
    assert fruits["apple"] is apple and fruits.find("apple") is apple
    assert "pear" not in fruits and fruits.get("pear") is None
    with pytest.raises(KeyError):
        fruits["pear"]


def test_a_name_is_registered_once() -> None:
    fruits = Registry("fruit", Fruit)
    fruits.register(Fruit("apple"))
    with pytest.raises(InputError, match="another fruit has this name"):
        fruits.register(Fruit("apple"))


def test_an_unknown_name_lists_similar_names() -> None:
    with pytest.raises(InputError, match=r"appel.*Nearest: apple"):
        FRUITS.find("appel", field="snack")


def test_a_file_adds_an_entry(
    tmp_path: Path, empty_plugins: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pear_plugin.py"
    file.write_text("import test_registry_host as host\nhost.FRUITS.register(host.Fruit('pear'))\n")
    fruits = Registry("fruit", Fruit)
    host = type(sys)("test_registry_host")
    host.FRUITS = fruits  # type: ignore[attr-defined]
    host.Fruit = Fruit  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "test_registry_host", host)
    plugin = plugins.load_plugin(str(file))
    monkeypatch.delitem(sys.modules, "pear_plugin")
    assert fruits["pear"] == Fruit("pear")
    assert plugin.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert plugins.loaded_plugins() == [plugin]
    assert plugins.plugin_arguments() == [str(file)]


def test_child_processes_load_the_same_plugins(tmp_path: Path, empty_plugins: None) -> None:
    file = tmp_path / "quiet_plugin.py"
    file.write_text("LOADED = True\n")
    plugins.load_plugin(str(file))
    sys.modules.pop("quiet_plugin")
    code = (
        "import sys\n"
        "from fsdpo_data.core.plugins import load_environment_plugins\n"
        "load_environment_plugins()\n"
        "print(sys.modules['quiet_plugin'].LOADED)\n"
    )
    environment = {**os.environ, **plugins.plugin_environment()}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=tmp_path
    )
    assert result.stdout == "True\n", result.stderr


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        ("absent.py", None, "there is no such file"),
        ("broken.py", "import no_such_module_of_anyone", "ModuleNotFoundError"),
        ("torn.py", "def f(:", "SyntaxError"),
        ("json.py", "", "another module is called 'json'"),
    ],
)
def test_a_broken_file_is_named(
    tmp_path: Path, empty_plugins: None, name: str, source: str | None, message: str
) -> None:
    import json  # noqa: F401  # a plug-in must not replace an imported module

    file = tmp_path / name
    if source is not None:
        file.write_text(source)
    with pytest.raises(InputError, match=message) as caught:
        plugins.load_plugin(str(file))
    assert name in str(caught.value)
    assert not plugins.loaded_plugins() and not plugins.plugin_arguments()


def test_entry_points_are_imported_when_they_are_used(
    tmp_path: Path, empty_plugins: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry_points = (
        "[fsdpo.fruits]\nplum = orchard:PLUM\nfig = orchard:FIG\nkiwi = no_orchard:KIWI\n"
        "sloe = orchard:PLUM\n"
    )
    source = f"from {__name__} import Fruit\nPLUM = Fruit('plum', 'blue')\nFIG = 'not a fruit'\n"
    install_package(tmp_path, source, entry_points)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    forget_entry_points()
    fruits = Registry("fruit", Fruit, group="fsdpo.fruits")
    try:
        assert list(fruits) == ["plum", "fig", "kiwi", "sloe"] and "plum" in fruits
        assert "orchard" not in sys.modules
        assert fruits["plum"].colour == "blue"
        [plugin] = plugins.loaded_plugins()
        assert (plugin.module, plugin.version) == ("orchard", "1.2")
        for name in ("fig", "sloe"):
            message = rf"{name} = orchard:\w+'?: expected a Fruit with the name of the entry point"
            with pytest.raises(InputError, match=message):
                fruits.find(name)
        with pytest.raises(InputError, match=r"fsdpo\.fruits: kiwi = no_orchard:KIWI"):
            fruits.find("kiwi")
        assert [fruit.name for fruit in fruits.importable_entries()] == ["plum"]
    finally:
        forget_entry_points()
        sys.modules.pop("orchard", None)
