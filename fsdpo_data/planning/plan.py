"""The plan of a command: replicas, memory, tokens and hours. Nothing is run or written."""

from dataclasses import dataclass

from fsdpo_data.planning.memory import MemoryEstimate
from fsdpo_data.planning.workload import GPUS, Workload, estimate, estimate_hours

_PLAN_GPU = "a100"  #: The GPU of the estimate without a measurement.


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Tokens per second of one replica."""

    tokens_per_second: float
    source: str  #: Origin of the number, in words.


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The resources of a command.

    Attributes:
        replicas: Number of processes that share the work.
        replica_note: How to change the number of replicas.
        token_note: What the tokens are, and whether their number is a bound.
        work: The computation.
        cpu_memory: Peak memory of a process on a CPU; None if the engine does not run there.
        gpu_memory: Peak memory of a GPU; None if no GPU has a share in it.
        gpu_note: What takes further memory of a GPU.
        rate: Rate of one replica.
    """

    replicas: int
    replica_note: str
    token_note: str
    work: Workload
    cpu_memory: MemoryEstimate | None
    gpu_memory: MemoryEstimate | None
    gpu_note: str = ""
    rate: Rate

    @property
    def hours(self) -> float:
        """Hours of the work at the rate."""
        return estimate_hours(self.work, self.rate.tokens_per_second, self.replicas)

    def describe(self) -> str:
        """Return the plan as lines of text."""
        tokens = self.work.tokens_per_epoch * self.work.epochs
        lines = [
            f"replicas  {self.replicas} ({self.replica_note})",
            f"tokens    {tokens:,.0f} ({self.token_note})",
        ]
        if self.cpu_memory is not None:
            lines.append(f"CPU       {self.cpu_memory.describe()}, per process")
        if self.gpu_memory is not None:
            lines.append(f"GPU       {self.gpu_memory.describe()}, per GPU, not measured")
        if self.gpu_note:
            lines.append(f"          {self.gpu_note}")
        lines.append(
            f"hours     {self.hours:,.2f} at {self.rate.tokens_per_second:,.0f} tokens per second "
            f"and replica, {self.rate.source}"
        )
        if self.work.parameters:  # a server does not tell the size of its model
            gpu = GPUS[_PLAN_GPU]
            gpu_hours = estimate(self.work, gpu).gpu_hours
            lines.append(f"          {gpu_hours:,.2f} hours of one {gpu.title}, not measured")
        return "\n".join(lines)
