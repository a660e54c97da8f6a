"""A push keeps what the owner of a repository has written to the README."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from fsdpo_cards.render import front_matter

from fsdpo_data.publish.readme import merge_card

METADATA: dict[str, Any] = {
    "license": "unknown",
    "pretty_name": "Steps --> of a model",
    "tags": ["math"],
    "configs": [{"config_name": "pairs"}],
}


def make_card(**changes: Any) -> str:
    return front_matter({**METADATA, **changes}) + "\n# The card\n"


def read_metadata(readme: str) -> dict[str, Any]:
    metadata: dict[str, Any] = yaml.safe_load(readme.split("---\n")[1])
    return metadata


@pytest.mark.parametrize(
    ("old", "new", "owners"),
    [
        ("license: unknown\n", "license: cc-by-4.0\n", {"license": "cc-by-4.0"}),
        ("- math\n", "- math\n- algebra\n", {"tags": ["math", "algebra"]}),
        ("tags:\n", "arxiv: 2401.1\ntags:\n", {"arxiv": 2401.1}),
    ],
)
def test_metadata_that_the_owner_edits_stay(old: str, new: str, owners: dict[str, Any]) -> None:
    pushed = merge_card(make_card())
    readme = pushed.replace(old, new, 1)
    for title in ("Second", "Third"):  # the second push must not take them for its own
        readme = merge_card(make_card(pretty_name=title), readme)
        assert read_metadata(readme) == {**METADATA, "pretty_name": title, **owners}
    assert merge_card(make_card(pretty_name="Third"), readme) == readme


def test_metadata_of_an_earlier_push_are_replaced() -> None:
    """The licence of new sources must not stay that of the old ones."""
    changes = {"license": ["cc-by-nc-4.0", "mit"], "pretty_name": "Other"}
    readme = merge_card(make_card(**changes), merge_card(make_card(license="mit")))
    assert read_metadata(readme) == {**METADATA, **changes}


def test_metadata_from_before_the_first_push_stay() -> None:
    own_readme = front_matter({"license": "cc0-1.0", "configs": [{"config_name": "old"}]})
    readme = merge_card(make_card(), own_readme + "My text.\n")
    assert read_metadata(readme) == {**METADATA, "license": "cc0-1.0"}
    assert readme.endswith("\n\nMy text.\n")
    damaged = readme.replace("the card: {", "the card: ", 1)
    assert read_metadata(merge_card(make_card(), damaged))["license"] == "cc0-1.0"


def test_no_value_ends_the_comment_that_records_it() -> None:
    readme = merge_card(make_card())
    assert readme.count("-->") == 1 + 3  # in the front matter, and the ends of the comments
