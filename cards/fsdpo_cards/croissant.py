"""Describe a dataset with the properties of Croissant, the responsible-AI ones included.

The texts come from the templates of the dataset card, so both state the same facts. A property that
the manifest says nothing about is absent.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsdpo_cards.dataset import dataset_title
from fsdpo_cards.render import TABLES, combined_licence, render

#: Rows of the table "Creation" that describe the annotation.
_ANNOTATION_ROWS = ("grader", "labels", "step rewards")
#: Rows of the table "Creation" that describe the sources and the sampling.
_COLLECTION_ROWS = ("model", "problems", "prompt template", "sampling", "engine")
#: Rows of the summary that analyse the labels and rewards.
_ANALYSIS_ROWS = ("answer judge", "first error", "rollouts", "judge", "consensus", "step rewards")
#: Rows of the summary that state the balance of the labels.
_BALANCE_ROWS = ("step labels", "imported labels")
_GENERATED_SOURCE = "embedded"  #: The source whose problems a program generates.


@dataclass(frozen=True)
class CroissantCardData:
    """The data of a dataset that its Croissant properties describe."""

    manifest: Mapping[str, Any]  #: The content of the manifest.
    table: Sequence[tuple[str, str]]  #: (name, value) rows of the summary.
    stage_rows: Sequence[str]  #: Markdown rows that describe the stages of the dataset.
    warnings: Sequence[str]  #: Possible problems of the dataset, one sentence each.
    revision: str  #: Tag of the version on the Hub.

    @property
    def spec(self) -> Mapping[str, Any]:
        """The options that determine the content of the dataset."""
        spec: Mapping[str, Any] = self.manifest["spec"]
        return spec

    def render(self, template: str) -> str:
        """Render a part of the dataset card.

        Raises:
            jinja2.UndefinedError: if the manifest lacks a field of the template.
        """
        return render(
            template,
            manifest=self.manifest,
            spec=self.spec,
            stage_rows=self.stage_rows,
            revision=self.revision,
        )


def croissant_properties(card_data: CroissantCardData) -> dict[str, Any]:
    """Return the properties of a dataset from the vocabularies schema.org and Croissant RAI.

    Raises:
        jinja2.UndefinedError: if the manifest lacks a field of a template.
    """
    properties: dict[str, Any] = {
        "description": f"{dataset_title(card_data.spec)}. "
        + _plain_text(card_data.render("_description.md")),
        "keywords": TABLES["dataset"]["tags"],
        "license": _licence_urls(card_data.spec),
        **_collection_properties(card_data),
        **_annotation_properties(card_data),
        **_use_properties(card_data),
    }
    return {name: value for name, value in properties.items() if value}


def _licence_urls(spec: Mapping[str, Any]) -> list[str]:
    """Return the licences of the problems; an empty list if one of them is unknown."""
    licences = combined_licence(spec["sources"])
    urls: Mapping[str, str] = TABLES["licence_urls"]
    names = [licences] if isinstance(licences, str) else licences
    return [urls[name] for name in names] if all(name in urls for name in names) else []


def _collection_properties(card_data: CroissantCardData) -> dict[str, Any]:
    """Return the properties of the sources, the sampling and the preprocessing."""
    spec = card_data.spec
    creation = list(_table_rows(card_data.render("_creation.md")))
    sources = [
        f"{source['name']}, split {source['split']}, at {source['revision']}"
        for source in spec["sources"]
    ]
    collection_types = []  # values that the vocabulary recommends
    if any(source["name"] != _GENERATED_SOURCE for source in spec["sources"]):
        collection_types.append("Secondary Data analysis")
    if "step_labels" not in spec:
        collection_types.append("Software Collection")
    return {
        "rai:dataCollection": " ".join(
            _sentence(name, value) for name, value in creation if name in _COLLECTION_ROWS
        ),
        "rai:dataCollectionType": collection_types,
        "rai:dataCollectionRawData": " ".join(_sentence("Source", source) for source in sources),
        "rai:dataCollectionMissingData": " ".join(_missing_data(card_data)),
        "rai:dataPreprocessingProtocol": [
            _sentence(name, value)
            for name, value in creation
            if name not in _COLLECTION_ROWS + _ANNOTATION_ROWS
        ],
    }


def _missing_data(card_data: CroissantCardData) -> Iterator[str]:
    """Yield one sentence for each kind of missing value."""
    manifest = card_data.manifest
    for reason, count in manifest["quarantined"].items():
        yield f"{count:,} input rows were left out ({reason})."
    if n_steps := manifest["labels"].get("unlabelled"):
        yield f"{n_steps:,} steps have no label from the outcome of their solution."
    if n_solutions := manifest.get("rewards", {}).get("unscored"):
        yield f"{n_solutions:,} solutions have no step rewards."
    if n_solutions := manifest.get("judge", {}).get("without_vote"):
        yield f"{n_solutions:,} solutions have no vote of the judge."


def _annotation_properties(card_data: CroissantCardData) -> dict[str, Any]:
    """Return the properties of the labels and rewards."""
    creation = _table_rows(card_data.render("_creation.md"))
    properties: dict[str, Any] = {
        "rai:dataAnnotationProtocol": [
            _sentence(name, value) for name, value in creation if name in _ANNOTATION_ROWS
        ],
        "rai:dataAnnotationAnalysis": [
            _sentence(name, value) for name, value in card_data.table if name in _ANALYSIS_ROWS
        ],
        "rai:machineAnnotationTools": _annotation_tools(card_data),
    }
    if "step_labels" not in card_data.spec:
        properties["rai:annotationsPerItem"] = (
            "0 human labels: programs and models made all labels of steps."
        )
    return properties


def _annotation_tools(card_data: CroissantCardData) -> list[str]:
    """Return the programs and models that made the labels and rewards."""
    spec = card_data.spec
    tools = []
    if "step_labels" not in spec:
        tools.append(f"grader {spec['grader']} of {card_data.manifest['made_by']}")
    models = {
        "judge of answers": spec.get("grade", {}).get("answer_judge", {}).get("model"),
        "model of the step labels": spec.get("label", {}).get("model"),
        "process reward model": spec.get("score", {}).get("prm"),
    }
    tools += [
        f"{role} {model['name']} at {model['revision']}" for role, model in models.items() if model
    ]
    tools += [f"plug-in {plugin['module']}" for plugin in card_data.manifest.get("plugins", [])]
    return tools


def _use_properties(card_data: CroissantCardData) -> dict[str, Any]:
    """Return the properties of uses, limits, biases and personal data."""
    manifest, spec = card_data.manifest, card_data.spec
    uses = ["Training of process reward models", "Study of the errors in solutions"]
    if manifest["rows"]["pairs"]:
        uses.insert(1, "Training of policies on preferences")
    limitations = list(_list_items(card_data.render("_limitations.md")))
    limitations += [f"{warning[0].upper()}{warning[1:]}." for warning in card_data.warnings]
    limitations.append(_plain_text(card_data.render("_contamination.md").partition("\n|")[0]))
    if not _licence_urls(spec):
        limitations.append("The licence of the problems is not known.")
    biases = list(_list_items(card_data.render("_biases.md")))
    biases += [_sentence(name, value) for name, value in card_data.table if name in _BALANCE_ROWS]
    if "mixture" not in manifest and spec["model"]["name"] != "unknown":
        biases.append(
            f"All solutions have the errors of one model, {spec['model']['name']}; other models "
            "make other errors."
        )
    return {
        "rai:dataUseCases": uses,
        "rai:dataLimitations": limitations,
        "rai:dataBiases": biases,
        "rai:personalSensitiveInformation": [
            "The manifest records no search for personal or sensitive information. The texts of "
            "the problems come unchanged from their sources."
        ],
    }


def _table_rows(table: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each row of a Markdown table with two columns."""
    for line in table.splitlines():
        cells = [_plain_text(cell) for cell in re.split(r"(?<!\\)\|", line)]
        if len(cells) == 4:  # the row begins and ends with a bar
            yield cells[1], cells[2]


def _list_items(text: str) -> Iterator[str]:
    """Yield the items of a Markdown list."""
    for item in re.split(r"^- ", text, flags=re.MULTILINE):
        if item.strip():
            yield _plain_text(item)


def _plain_text(markdown: str) -> str:
    """Return Markdown of a card as one line of text, without code spans and escapes."""
    text = " ".join(markdown.replace("`", "").split()).replace("&lt;", "<")
    return re.sub(r"\\([\\*_\[\]>|~#])", r"\1", text)


def _sentence(name: str, value: str) -> str:
    """Return a row of a table as one sentence."""
    return f"{name[0].upper()}{name[1:]}: {' '.join(value.split())}."
