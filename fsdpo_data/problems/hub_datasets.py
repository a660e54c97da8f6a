"""Datasets on the Hub: their short names, their expected content, and downloads."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

from fsdpo_data.core.errors import FsdpoError, InputError, UnavailableError, suggest_names
from fsdpo_data.core.lazy import pa
from fsdpo_data.core.row_files import SourceRow, SourceRows
from fsdpo_data.core.toml_tables import TomlTable
from fsdpo_data.hub.client import HubRepo, hub_errors, resolve_commit


@dataclass(frozen=True, slots=True)
class HubDataset:
    """The expected content of a dataset with a short name."""

    repo: str  #: Hub repository.
    configs: Sequence[str] = ()  #: Configs of the dataset; empty for the default config.
    rows: Mapping[str, int] = field(default_factory=dict)  #: Rows of each split, over all configs.
    #: ``problems_digest`` of each split, if it has been computed.
    digests: Mapping[str, str] = field(default_factory=dict)
    #: Whether rows repeat questions, as in preference pairs; then one problem per question is
    #: loaded.
    one_per_question: bool = False


def _build_dataset(_name: str, **fields: Any) -> HubDataset:
    return HubDataset(**fields)


#: The rows of ``hub_datasets.toml``: datasets by short name.
DATASETS = TomlTable(__file__, _build_dataset)


@dataclass(frozen=True, slots=True)
class HubSource:
    """A dataset that the user named."""

    short_name: str  #: Short name; empty if the user named the repository.
    repo: HubRepo  #: Repository and revision.
    configs: Sequence[str | None]  #: Configs to read; ``[None]`` for the default config.
    expected: HubDataset  #: The expected content; empty without a short name.

    @classmethod
    def parse(cls, text: str, datasets: Mapping[str, HubDataset]) -> Self | None:
        """Parse ``name[@revision][:config]``; return None if ``text`` has another form."""
        repo_text, _, config = text.partition(":")
        name, _, revision = repo_text.partition("@")
        dataset = datasets.get(name)
        repo = HubRepo.parse(dataset.repo if dataset else repo_text, "dataset")
        if repo is None:
            return None
        if dataset is None:
            last_part = name.rpartition("/")[2]
            hint = suggest_names(last_part, datasets, "Nearest short names", limit=2)
            return cls(
                short_name="",
                repo=dataclasses.replace(repo, missing_path=repo_text, hint=hint),
                configs=[config or None],
                expected=HubDataset(""),
            )
        configs: Sequence[str | None] = dataset.configs or [None]
        if config:
            # The numbers of the table hold only for all configs together.
            dataset = dataclasses.replace(dataset, rows={}, digests={})
            configs = [config]
        repo = dataclasses.replace(repo, revision=revision or None)
        return cls(short_name=name, repo=repo, configs=configs, expected=dataset)

    @property
    def name(self) -> str:
        """The repository, with the config if the user named one."""
        is_default = self.configs in ([None], self.expected.configs)
        return self.repo.name if is_default else f"{self.repo.name}:{self.configs[0]}"

    def check(self, split: str, commit: str, rows: int, digest: str) -> list[str]:
        """Compare the loaded problems with the expected content, and return warnings.

        Args:
            split: The loaded split.
            commit: The commit of the repository.
            rows: The number of rows.
            digest: The ``problems_digest`` of the problems.

        Raises:
            InputError: if the number of rows differs.
        """
        location = f"{self.repo.name} at {commit[:12]}, split {split}"
        expected_rows = self.expected.rows.get(split, rows)
        if rows != expected_rows:
            raise InputError(
                f"{location}: {rows} rows, expected {expected_rows}. It is not the dataset that "
                f"the name {self.short_name} stands for: choose another revision with "
                f"{self.short_name}@<commit>, or read it as it is under its full name, "
                f"{self.repo.name}."
            )
        expected_digest = self.expected.digests.get(split, digest)
        if digest != expected_digest:
            return [
                f"{location}: the problems are not those of the original files (digest {digest}, "
                f"expected {expected_digest}); some questions or golds differ."
            ]
        return []


def load_hub(source: HubSource, split: str) -> tuple[str, list[SourceRows]]:
    """Fetch a dataset; return its commit and the rows of each config.

    Raises:
        InputError: if the dataset, revision, config or split does not exist.
        UnavailableError: if the Hub cannot be reached, or refuses access.
    """
    commit = resolve_commit(source.repo)
    all_rows = []
    for config in source.configs:
        rows = _TableRows(_fetch(source.repo, config, split, commit))
        label = f"{source.repo.name}:{config}" if config else source.repo.name
        all_rows.append(SourceRows(label, source.repo.name, rows))
    return commit, all_rows


class _TableRows(Sequence[SourceRow]):
    """The rows of a table of the library `datasets`, which stays on disk."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, index: Any) -> Any:
        return SourceRow(index + 1, self._table[index])

    def __iter__(self) -> Iterator[SourceRow]:
        return map(SourceRow, count(1), self._table)


def _fetch(repo: HubRepo, config: str | None, split: str, commit: str) -> Any:
    """Return the table of a config, whose rows are read from disk."""
    import datasets
    from datasets.exceptions import DatasetsError

    try:
        with hub_errors(repo):
            table = datasets.load_dataset(repo.name, config, split=split, revision=commit)
    except FsdpoError:
        raise
    except (ValueError, RuntimeError, FileNotFoundError, DatasetsError, pa.ArrowException) as error:
        # The reasons are an unknown config or split, missing or damaged data files, or a loading
        # script. The error of an unknown name lists the existing names.
        cause = f" ({error.__cause__})" if error.__cause__ else ""
        message = f"{error}{cause}".replace("\n", " ").rstrip(".")
        raise InputError(
            f"{repo}, split {split}: {message}. See {repo.url}, or give files of your own."
        ) from None
    # Without a network, datasets uses the latest local copy, even from another commit.
    if not all(commit in file["filename"] for file in table.cache_files):
        raise UnavailableError(
            f"the local copy of {repo} is not of commit {commit}, and the Hub cannot be reached. "
            "Load it once with a network."
        )
    try:
        # The local copy is an Arrow file, whose offsets are used without a check. Reading beyond
        # the end of a damaged file can end the process.
        table.data.table.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        files = ", ".join(file["filename"] for file in table.cache_files)
        raise InputError(
            f"the local copy of {repo} is damaged ({error}). Remove {files}, and load it again."
        ) from None
    return table
