"""Sample the prompts that a run does not have yet, and save them as they finish."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice

from fsdpo_data.core.completion_records import CompletionRecord
from fsdpo_data.core.errors import FsdpoError, ItemError
from fsdpo_data.core.failures import FailureLog
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.sampling import Completion, Prompt, SamplingSpec, add_tokens
from fsdpo_data.dataset.run_directory import RunDir
from fsdpo_data.engines.samplers import Sampler, SampleResult

#: Finished prompts are written after this time, even if their batch is not finished.
SAVE_INTERVAL_SECONDS = 1.0


def ignore_new_records() -> None:
    """Do nothing, because no file depends on the records."""


def sample_missing(
    run: RunDir,
    keys: Collection[str],
    prompts: Iterator[tuple[str, Prompt]],
    *,
    sampling: SamplingSpec,
    make_sampler: Callable[[], Sampler],
    batch_size: int,
    phase: str,
    progress: Progress,
    failures: FailureLog,
    on_new_records: Callable[[], None] = ignore_new_records,
) -> None:
    """Sample the records that a run does not have yet, and write them as they finish.

    Args:
        run: The run directory.
        keys: The ids of all records that the run has in the end.
        prompts: Yields (id, prompt) of the records that the run does not have yet. To keep
            batches complete, it also yields the others; their samples are not written again.
        sampling: Sampling parameters of every prompt.
        make_sampler: Loads the sampler; called only if records are missing.
        batch_size: Prompts per call of the sampler.
        phase: Name of the work in the progress display.
        progress: Receives the number of finished records and tokens.
        failures: Receives the prompts that the engine refuses.
        on_new_records: Called once, before the first new records are written.

    Raises:
        ItemError: if the engine refuses a prompt, and the policy stops at the first failure.
        FailedItemsError: if more prompts fail than the policy allows, or all of the first ones.
    """
    failures.expect(len(keys))
    is_retried = failures.policy.retries
    finished_count = sum(key in run.line_spans for key in keys)
    skipped_count = 0 if is_retried else sum(key in failures for key in keys)
    if finished_count + skipped_count == len(keys):
        failures.save()
        return
    progress.phase("load the model", 1)
    sampler = make_sampler()
    progress.phase(phase, len(keys), done=finished_count)
    writer = _RecordWriter(run, failures, progress, on_new_records)
    while batch := list(islice(prompts, batch_size)):
        batch = [item for item in batch if is_retried or item[0] not in failures]
        if all(key in run.line_spans for key, _ in batch):
            continue
        batch_prompts = [prompt for _, prompt in batch]
        writer.write(batch, sampler.sample(batch_prompts, sampling))
        failures.check_engine(has_finished_items=bool(run.line_spans))


def _fills_context(completions: Sequence[Completion]) -> bool:
    """Return whether the prompt of the completions fills the context of the model.

    Engines give such a prompt empty, truncated completions, because a solution may fill the context
    after some of its steps. As completions of a problem, they would count as wrong answers.
    """
    return all(
        completion.finish_reason == "length" and completion.n_tokens == 0
        for completion in completions
    )


def _count_tokens(completions: Sequence[Completion]) -> int:
    """Return the number of tokens that were generated for a prompt, as far as it is known."""
    if completions and (search_cost := completions[0].search_cost) is not None:
        return add_tokens(completions[0].n_tokens, search_cost.discarded_tokens) or 0
    return sum(completion.n_tokens or 0 for completion in completions)


class _RecordWriter:
    """Writes the records of batches as they finish.

    Args:
        run: The run directory.
        failures: The failed prompts, which are written after the records.
        progress: Receives the number of finished records and tokens.
        on_new_records: Called once, before the first records are written.
    """

    def __init__(
        self,
        run: RunDir,
        failures: FailureLog,
        progress: Progress,
        on_new_records: Callable[[], None],
    ) -> None:
        self._run = run
        self._failures = failures
        self._progress = progress
        self._on_new_records = on_new_records
        self._has_written = False
        self._unsaved: list[CompletionRecord] = []

    def write(self, batch: Sequence[tuple[str, Prompt]], results: Iterable[SampleResult]) -> None:
        """Write the records of a batch that the run does not have yet.

        Args:
            batch: Ids and prompts.
            results: The results of the prompts, in the order in which they finish.

        Raises:
            ItemError, FailedItemsError: as :meth:`FailureLog.add`, after all results are saved.
        """
        missing_keys = {key for key, _ in batch if key not in self._run.line_spans}
        last_save = time.monotonic()
        first_error: FsdpoError | None = None
        try:
            for index, result in results:
                key, prompt = batch[index]
                if key in missing_keys:
                    try:
                        self._add(key, prompt, result)
                    except FsdpoError as error:  # the other results of the batch are saved first
                        first_error = first_error or error
                if time.monotonic() - last_save > SAVE_INTERVAL_SECONDS:
                    self._save()
                    last_save = time.monotonic()
        finally:  # also save the records that finished before Ctrl-C or the failure of a server
            self._save()
        if first_error is not None:
            raise first_error

    def _add(self, key: str, prompt: Prompt, result: list[Completion] | ItemError) -> None:
        """Keep the record or the failure of a prompt for the next save."""
        if not isinstance(result, ItemError) and _fills_context(result):
            result = ItemError("the prompt is longer than the context of the model")
        if isinstance(result, ItemError):
            self._failures.add(key, result)
            self._progress.advance(1)
            return
        self._unsaved.append(CompletionRecord(key, prompt.full_text, result))
        self._failures.resolve(key)
        self._progress.advance(1, _count_tokens(result))

    def _save(self) -> None:
        """Write the kept records and the failed prompts."""
        records = self._unsaved.copy()
        # Clear first: if Ctrl-C interrupts the write, the samples are drawn again, not written
        # twice.
        self._unsaved.clear()
        if records:
            if not self._has_written:
                self._on_new_records()
                self._has_written = True
            self._run.append(records)
        self._failures.save()
