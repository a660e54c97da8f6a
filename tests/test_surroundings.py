"""Files around the package: the changelog, the citation, and the forge's files."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from fsdpo_data import __version__
from fsdpo_data.dataset.schema import SCHEMA_VERSION

ROOT = Path(__file__).parents[1]
FORGE = sorted((ROOT / ".github").rglob("*.yml"))


def test_every_place_names_the_same_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+).*?schema ([\d.]+\d)", changes, flags=re.M | re.S)
    assert newest and newest[2] == SCHEMA_VERSION
    assert project["version"] == citation["version"] == newest[1] == __version__
    # The data of one file has another licence, too.
    assert project["license"].startswith(citation["license"])


def test_the_citation_has_what_its_format_asks_for() -> None:
    citation: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    (paper,) = citation["references"]
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert {"type", "title", "authors", "year", "doi"} <= paper.keys()
    assert paper["authors"][0]["family-names"] == "Xu"


@pytest.mark.parametrize("file", FORGE, ids=lambda file: file.name)
def test_what_the_forge_reads_is_yaml(file: Path) -> None:
    workflow = yaml.safe_load(file.read_text(encoding="utf-8"))
    if file.parent.name == "workflows":
        steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
        scripts = [step["run"] for step in steps if "run" in step]
        named_files = {
            word for script in scripts for word in re.findall(r"\.ci/\w+|\w+\.txt", script)
        }
        assert all((ROOT / name).is_file() for name in named_files)
    elif file.stem != "config":
        assert {"name", "description", "body"} <= workflow.keys()


def test_the_forge_runs_what_runs_here() -> None:
    assert {"ci", "release", "bug", "verdict"} <= {file.stem for file in FORGE}
    assert "- run: .ci/run" in (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
