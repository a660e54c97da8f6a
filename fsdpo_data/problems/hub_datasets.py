"""Datasets on the Hub: their short names, what is known of them, and how they are fetched."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from fsdpo_data.core.errors import FsdpoError, InputError, UnavailableError, suggest_names
from fsdpo_data.core.row_files import SourceRow
from fsdpo_data.core.toml_tables import TomlTable
from fsdpo_data.hub.client import HubRepo, hub_errors, resolve_commit


@dataclass(frozen=True, slots=True)
class HubDataset:
    """What is known of a dataset with a short name."""

    repo: str  #: Hub repository.
    configs: Sequence[str] = ()  #: Configs that make it up; empty for the default one.
    rows: Mapping[str, int] = field(default_factory=dict)  #: Rows of each split, over all configs.
    #: ``problems_digest`` of each split, where it has been computed.
    digests: Mapping[str, str] = field(default_factory=dict)
    one_per_question: bool = False  #: Whether many rows ask the same question (preference pairs).


DATASETS = TomlTable(__file__, lambda _name, **told: HubDataset(**told))  #: By short name.


@dataclass(frozen=True, slots=True)
class HubSource:
    """A dataset as the user asked for it."""

    short_name: str  #: Its short name; empty if it was asked for by repository.
    repo: HubRepo  #: Repository and revision.
    configs: Sequence[str | None]  #: Configs to read; (None,) for the default one.
    expected: HubDataset  #: What to hold it against.

    @classmethod
    def parse(cls, text: str, datasets: Mapping[str, HubDataset]) -> Self | None:
        """Read ``name[@revision][:config]``; None if ``text`` is nothing of the kind."""
        before, _, config = text.partition(":")
        name, _, revision = before.partition("@")
        known = datasets.get(name)
        repo = HubRepo.parse(known.repo if known else before, "dataset")
        if repo is None:
            return None
        if known is None:
            hint = " There is no file of that name either."
            last = name.rpartition("/")[2]
            hint += suggest_names(last, datasets, "Nearest short names", limit=2, cutoff=0.5)
            return cls("", dataclasses.replace(repo, hint=hint), [config or None], HubDataset(""))
        if config:
            known = dataclasses.replace(known, rows={}, digests={})  # a part of it is not it
        configs: Sequence[str | None] = [config] if config else known.configs or [None]
        return cls(name, dataclasses.replace(repo, revision=revision or None), configs, known)

    @property
    def name(self) -> str:
        """Return the repository, with the config where the default was not asked for."""
        whole = self.configs in ([None], self.expected.configs)
        return self.repo.name if whole else f"{self.repo.name}:{self.configs[0]}"

    def check(self, split: str, commit: str, rows: int, digest: str) -> list[str]:
        """Hold what was loaded against what is known; return warnings.

        Raises:
            InputError: if there are more or fewer rows than there should be.
        """
        where = f"{self.repo.name} at {commit[:12]}, split {split}"
        expected = self.expected.rows.get(split, rows)
        if rows != expected:
            raise InputError(
                f"{where}: {rows} rows, expected {expected}. It is not the dataset that the name "
                f"{self.short_name} stands for: choose another revision with {self.short_name}@<commit>, or "
                f"read it as it is under its full name, {self.repo.name}."
            )
        known = self.expected.digests.get(split, digest)
        if digest != known:
            return [
                f"{where}: the problems are not those of the original files (digest {digest}, "
                f"expected {known}); texts or golds differ somewhere."
            ]
        return []


def load_hub(source: HubSource, split: str) -> tuple[str, list[tuple[str, list[SourceRow]]]]:
    """Fetch a dataset: its commit, and for each config a label and its rows.

    Raises:
        InputError: if there is no such dataset, revision, config or split.
        Unavailable: if the Hub cannot be reached, or refuses.
    """
    commit = resolve_commit(source.repo)
    parts = []
    for config in source.configs:
        rows = _fetch(source.repo, config, split, commit)
        label = f"{source.repo.name}:{config}" if config else source.repo.name
        parts.append((label, [SourceRow(i, row) for i, row in enumerate(rows, start=1)]))
    return commit, parts


def _fetch(repo: HubRepo, config: str | None, split: str, commit: str) -> list[dict[str, Any]]:
    import datasets
    from datasets.exceptions import DatasetsError

    try:
        with hub_errors(repo):
            table = datasets.load_dataset(repo.name, config, split=split, revision=commit)
    except FsdpoError:
        raise
    except (ValueError, RuntimeError, FileNotFoundError, DatasetsError) as error:
        # An unknown config or split, each with the list of those that exist; no data files, or
        # files that are not what their names say; a loading script instead of data.
        cause = f" ({error.__cause__})" if error.__cause__ else ""
        said = f"{error}{cause}".replace("\n", " ").rstrip(".")
        raise InputError(
            f"{repo}, split {split}: {said}. See {repo.url}, or give files of your own."
        ) from None
    # Without a network, datasets takes the latest copy it has, of whatever commit.
    if not all(commit in file["filename"] for file in table.cache_files):
        raise UnavailableError(
            f"the local copy of {repo} is not of commit {commit}, and the Hub cannot be reached. "
            "Load it once with a network."
        )
    return list(table)
