"""Score the solutions of a dataset: a process reward model gives each step a reward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from fsdpo_data.core.cost import Cost
from fsdpo_data.core.errors import InputError, ItemError
from fsdpo_data.core.failures import STOP_AT_FIRST, FailureLog, FailurePolicy
from fsdpo_data.core.identity import EngineRef
from fsdpo_data.core.job_shard import UNSHARDED, JobShard
from fsdpo_data.core.lazy import pa, pl
from fsdpo_data.core.parquet_files import collect_rows, count_rows
from fsdpo_data.dataset.chat_prompts import (
    PromptRenderer,
    prompt_renderer,
    require_server_format,
)
from fsdpo_data.dataset.manifest import SCORE_STAGE, AnyRecord, Manifest
from fsdpo_data.dataset.plots import count_tenths
from fsdpo_data.dataset.problem_rows import questions_by_id
from fsdpo_data.dataset.schema import read_table, replace_column, scan_rows, write_parquet
from fsdpo_data.dataset.stage import DatasetDraft, Stage, StageOptions
from fsdpo_data.dataset.stage_records import SAMPLE_STAGE, SampleRecord, ScoreCounts, ScoreRecord
from fsdpo_data.dataset.stage_registry import STAGES, Distribution, Row, StageEntry
from fsdpo_data.dataset.statistics import DatasetStatistics
from fsdpo_data.engines.load import ResolvedRewardModel, resolve_reward_model
from fsdpo_data.engines.options import FailureOptions, ScorerOptions, Shard
from fsdpo_data.engines.registry import SCORERS
from fsdpo_data.engines.samplers import EngineLoader, open_engine
from fsdpo_data.engines.scorers import Scorer, ScorerInput
from fsdpo_data.engines.scorers.prm_formats import ScoreSettings, needs_question
from fsdpo_data.engines.scorers.trained_prm import TrainedPrm
from fsdpo_data.models.prompts import TemplateRef, load_tokenizer
from fsdpo_data.models.resolve import ResolvedWeights, warn_about_other_template

RowRewards: TypeAlias = list[float] | None  #: The step rewards of a solution; None without any.
#: Solutions per call of the scorer: enough to batch similar lengths.
SCORING_BATCH = 4096


class _ScoringRun(NamedTuple):
    """What scoring the files of a dataset needs."""

    draft: DatasetDraft  #: The new dataset.
    failures: FailureLog  #: The failed solutions.
    load_scorer: EngineLoader[Scorer]  #: Loads the scorer at the first call.
    render_prompt: PromptRenderer  #: Turns the prompt of a row into the one to read.


@dataclass
class ScoreStage(Stage):
    """Writes ``step_rewards``.

    Attributes:
        reward_model: The process reward model. Loaded only if rewards are missing, because loading
            is slow.
        failure_policy: When the stage stops because of solutions that the engine refuses.
    """

    name = SCORE_STAGE
    writes = ("step_rewards",)

    reward_model: ResolvedRewardModel
    failure_policy: FailurePolicy = STOP_AT_FIRST

    def options(self) -> ScoreSettings:
        """Return the model and its engine."""
        return self.reward_model.settings

    def check(self, source: Path, manifest: Manifest) -> None:
        """Refuse prompts that the reward model cannot read as the model saw them."""
        scorer_prompt_renderer(manifest, source, self.reward_model.weights)

    def run_shard(self, draft: DatasetDraft, shard: JobShard) -> None:
        """Score one shard of the files; InputError if there are fewer files than shards."""
        n_files = len(draft.current_files("solutions"))
        if shard.count > n_files:
            raise InputError(
                f"{draft.parent_root} has {n_files} files of solutions, and each shard needs a "
                f"file. Use at most {n_files} shards.",
                field="ScoreOptions.shard",
                value=str(shard),
            )
        sample = draft.manifest.get(SAMPLE_STAGE, SampleRecord).options
        warn_about_template(self.reward_model.weights, sample.template)
        render_prompt = scorer_prompt_renderer(
            draft.manifest, draft.parent_root, self.reward_model.weights
        )
        failures = self._open_failures(draft)
        n_solutions = sum(map(count_rows, shard.select(draft.parent_files("solutions"))))
        failures.expect(n_solutions)
        written_files = draft.written_files("solutions")
        with open_engine(self.reward_model.make_scorer) as load_scorer:
            run = _ScoringRun(draft, failures, load_scorer, render_prompt)
            for file in shard.select(draft.current_files("solutions")):
                if file in written_files:
                    self._retry_failures(run, file)
            draft.rewrite_config(
                "solutions",
                "score",
                partial(self._add_rewards, run),
                advance=False,
                shard=shard,
            )

    def run(self, draft: DatasetDraft) -> AnyRecord:
        """Score every file of solutions, and update the pairs."""
        self.run_shard(draft, UNSHARDED)
        draft.update_pairs()
        counts = ScoreCounts(
            failed=len(self._open_failures(draft)),
            format_evidence=self.reward_model.format_evidence,
        )
        scored = scan_rows("solutions", draft.current_files("solutions")).select(
            (pl.col("step_rewards").list.len() > 0).sum()
        )
        n_scored = int(collect_rows(scored).item())
        return self.make_record(counts, Cost(tokens=0, prm_calls=n_scored, seconds=0.0))

    def _open_failures(self, draft: DatasetDraft) -> FailureLog:
        """Open the failed solutions of the new dataset."""
        return FailureLog(draft.root, self.failure_policy, "solutions")

    def _add_rewards(self, run: _ScoringRun, table: pa.Table) -> pa.Table:
        """Return the solutions of a file with their step rewards."""
        draft, failures = run.draft, run.failures
        rewards: list[list[float] | None] = []
        n_scored = 0
        # Once per file: a search per batch would read all problems thousands of times.
        questions = questions_by_id(draft.current_files("problems"), table["problem_id"])
        try:
            for start in range(0, table.num_rows, SCORING_BATCH):
                batch = table.slice(start, SCORING_BATCH)
                results: dict[int, RowRewards | ItemError] = {}
                for index, result in self._score_rows(run, batch, questions):
                    results[index] = result
                    n_scored += 1
                    draft.progress.advance(1)
                rewards += _record_failures(failures, batch, results)
                failures.check_engine(has_finished_items=bool(draft.written_files("solutions")))
        except KeyboardInterrupt:
            draft.progress.discard(n_scored)  # the file is written as a whole
            raise
        failures.save()  # before the file, which a resumed run does not score again
        return replace_column(table, "step_rewards", rewards)

    def _retry_failures(self, run: _ScoringRun, file: Path) -> None:
        """Score the failed solutions in a file of an earlier session again.

        A local engine gets their batch as a whole, because the batch affects the last bits of the
        rewards. A server composes its batches itself, so it gets the failed solutions alone.
        """
        failures = run.failures
        table = read_table("solutions", file)
        ids = table["solution_id"].to_pylist()
        failed_rows = [row for row, solution_id in enumerate(ids) if solution_id in failures]
        if not failed_rows or not failures.policy.retries:
            return
        rewards = table["step_rewards"].to_pylist()
        rows_to_score = failed_rows
        if not self._is_remote:
            batches = {row // SCORING_BATCH for row in failed_rows}
            rows_to_score = [row for row in range(len(ids)) if row // SCORING_BATCH in batches]
        questions = questions_by_id(run.draft.current_files("problems"), table["problem_id"])
        for start in range(0, len(rows_to_score), SCORING_BATCH):
            rows = rows_to_score[start : start + SCORING_BATCH]
            batch = table.take(rows)
            results = dict(self._score_rows(run, batch, questions))
            new_rewards = _record_failures(failures, batch, results)
            for row, row_rewards in zip(rows, new_rewards, strict=True):
                rewards[row] = row_rewards
        if all(ids[row] in failures for row in failed_rows):
            failures.save()
            return
        run.draft.discard_seal()
        write_parquet(replace_column(table, "step_rewards", rewards), file)
        failures.save()  # after the file: a stopped process scores the solutions once more

    def _score_rows(
        self, run: _ScoringRun, table: pa.Table, questions: Mapping[str, str]
    ) -> Iterator[tuple[int, RowRewards | ItemError]]:
        """Yield the row and the result of each solution as it finishes.

        Args:
            run: The run.
            table: The solutions.
            questions: The questions, by problem id.
        """
        scorer = run.load_scorer()
        rows = table.select(["problem_id", "prompt", "completions"]).to_pylist()
        items = []
        for row in rows:
            prompt = run.render_prompt(row["prompt"])
            items.append(ScorerInput(prompt, row["completions"], questions[row["problem_id"]]))
        yield from scorer.score(items)

    @property
    def _is_remote(self) -> bool:
        """Whether a server computes the rewards."""
        return SCORERS[self.reward_model.engine.name].is_remote


def _record_failures(
    failures: FailureLog, table: pa.Table, results: Mapping[int, RowRewards | ItemError]
) -> list[RowRewards]:
    """Return the step rewards of some solutions in their order, and record the failed ones.

    All requests of the batch have ended, so none is under way if a failure stops the job.
    """
    rewards: list[RowRewards] = []
    for index, solution_id in enumerate(table["solution_id"].to_pylist()):
        result = results[index]
        if isinstance(result, ItemError):
            failures.add(solution_id, result)
            rewards.append(None)
        else:
            failures.resolve(solution_id)
            rewards.append(result)
    return rewards


def scorer_prompt_renderer(
    manifest: Manifest, dataset: str | Path, weights: ResolvedWeights
) -> PromptRenderer:
    """Return a function from the prompts of a dataset to those that a reward model reads.

    Args:
        manifest: The manifest of the dataset.
        dataset: The dataset, for messages.
        weights: The reward model, or a policy whose likelihood is the reward.

    Raises:
        InputError: if the prompts lack the chat format of a server, and the model reads them and
            has no chat template.
        UnavailableError: if its tokenizer cannot be loaded.
    """
    if needs_question(weights):
        return str
    load = partial(load_tokenizer, weights.path, weights.commit)
    return prompt_renderer(manifest, str(dataset), load, weights.ref.name)


def check_server_prompts(weights: ResolvedWeights, engine: EngineRef) -> None:
    """Refuse a reward model that could not read the prompts of a server, before they are sampled.

    Args:
        weights: The reward model.
        engine: The engine that samples.

    Raises:
        InputError: if the server adds its chat format, and the model reads the prompts and has no
            chat template.
        UnavailableError: if its tokenizer cannot be loaded.
    """
    if engine.api == "chat" and not needs_question(weights):
        tokenizer = load_tokenizer(weights.path, weights.commit)
        require_server_format("this run", tokenizer, weights.ref.name)


def warn_about_template(weights: ResolvedWeights, template: TemplateRef) -> None:
    """Warn if a reward model learned from prompts of another template than it will read.

    A published reward model has a PRM format, and reads the questions instead.

    Args:
        weights: The reward model.
        template: The template of the solutions.
    """
    if isinstance(weights, TrainedPrm):
        warn_about_other_template(weights, template, "rewards")


class ScoreOptions(FailureOptions, StageOptions):
    r"""Give every step of every solution a reward.

    Examples:
        fsdpo-data score runs/demo --prm runs/prm --out runs/scored

        fsdpo-data score runs/qwen --prm org/prm --out runs/scored --engine vllm \
          --dtype bfloat16

        fsdpo-data score runs/qwen --prm org/prm --out runs/scored --engine openai \
          --base-url http://localhost:8000
    """

    prm: str
    """Process reward model: a directory or `org/name[@revision]`. With `reference`, a policy, which
    gives implicit rewards.
    """
    engine: ScorerOptions = ScorerOptions()
    """Engine that runs the reward model."""
    shard: Shard = None
    """Score one of N parts of the files; `fsdpo-data merge` joins the parts."""


def _make_stage(options: ScoreOptions) -> ScoreStage:
    """Check the process reward model and the engine of the command."""
    return ScoreStage(resolve_reward_model(options.prm, options.engine), options.failure_policy)


def summarize_rewards(record: AnyRecord, statistics: DatasetStatistics) -> list[Row]:
    """Return the row of the summary about step rewards."""
    rewards = statistics.rewards
    if rewards is None:
        return []
    aggregate, ranking = rewards.main_ranking
    ranking_text = ""
    if ranking.value is not None:
        interval = ""
        if ranking.ci95:
            interval = f" [{ranking.ci95.low:.3f}, {ranking.ci95.high:.3f}]"
        ranking_text = (
            f"; correct over incorrect {ranking.value:.3f}{interval} "
            f"(AUC by {aggregate} reward within {ranking.n:,} problems)"
        )
    unscored_text = ""
    if rewards.unscored:
        unscored_text = f", {rewards.unscored:,} unscored (empty, too long or failed)"
    return [("step rewards", f"{rewards.scored:,} solutions{unscored_text}{ranking_text}")]


def warn_of_rewards(record: AnyRecord, statistics: DatasetStatistics) -> list[str]:
    """Return a sentence if the rewards may tell nothing."""
    if statistics.rewards is None:
        return []
    _, ranking = statistics.rewards.main_ranking
    if ranking.ci95 and ranking.ci95.low <= 0.5:
        return ["rewards may rank correct over incorrect solutions no better than chance"]
    return []


def plot_rewards(record: AnyRecord, statistics: DatasetStatistics) -> dict[str, Distribution]:
    """Return the distributions of step rewards that are probabilities."""
    if not statistics.manifest.rewards_are_probabilities:
        return {}
    solutions = statistics.scan_solutions()
    is_correct = pl.col("outcome") == "correct"
    rewards = pl.col("step_rewards")
    plots = {}
    for name, mask in (("correct", is_correct), ("other", ~is_correct)):
        step_rewards = solutions.filter(mask).select(rewards).explode("step_rewards")
        plots[f"Step rewards in {name} solutions"] = count_tenths(step_rewards, rewards)
    return plots


STAGES.register(
    StageEntry(
        name=SCORE_STAGE,
        record=ScoreRecord,
        failed_items="solutions without rewards",
        summarize=summarize_rewards,
        warn=warn_of_rewards,
        plot=plot_rewards,
        options_class=ScoreOptions,
        make_stage=_make_stage,
        card_row="| step rewards | {{ prm | model }}, "
        "engine {{ engine.name }}, dtype {{ engine.dtype }}{% if prm_format is defined %}; "
        "PRM format {{ prm_format.name | code }}, in which a reward is a "
        "{{ prm_format.meaning }}{% endif %}{% if reference is defined %}; "
        "reference {{ reference | model }}{% endif %}{% if last_step_only is defined %}; "
        "an outcome reward model, trained on last steps only{% endif %} |",
    )
)
