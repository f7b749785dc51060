"""What both training loops share: seeds a step, schedules, precision, and state that survives a kill."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from bitresedit.errors import CheckpointError
from papers_shared.artifacts import atomic_path

Precision = Literal["fp32", "bf16"]


def generator_for(seed: int, stage: int, step: int) -> torch.Generator:
    """Give the generator of one step of one stage: the same after a resume, whatever happened before."""
    return torch.Generator().manual_seed((seed * 1_009 + stage) * 10_000_019 + step)


def batch_indices(count: int, batch: int, step: int, seed: int, stage: int) -> Tensor:
    """Give the items of a step: every epoch is a fresh permutation, and a step knows its place in it.

    Parameters
    ----------
    count
        Items of the data set, at least ``batch``.
    batch
        Items a step; a remainder smaller than this is left out of its epoch.
    step
        Step from 0.
    seed, stage
        What the permutations are drawn from.

    Returns
    -------
    Tensor
        int64 ``[batch]``.
    """
    if count < batch:
        raise ValueError(f"a batch of {batch} needs as many items, got {count}")
    epoch, place = divmod(step, count // batch)
    order = torch.randperm(count, generator=generator_for(seed, stage + 500, epoch))
    return order[place * batch : (place + 1) * batch]


def learning_rate_factor(step: int, steps: int, warmup: int, restart: int = 0, restart_peak: float = 0.5) -> float:
    """Linear warm-up to 1, then half a cosine down to 0 at ``steps``; with ``restart``, that twice.

    The first cycle then ends at step ``restart``, and the second reaches ``restart_peak`` and ends at ``steps`` [1]_.

    References
    ----------
    .. [1] Loshchilov and Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, ICLR 2017.
    """
    if restart and step >= restart:
        return restart_peak * learning_rate_factor(step - restart, steps - restart, warmup)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    progress = (step - warmup) / max(1, (restart or steps) - warmup)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def faster_precision() -> tuple[Precision, dict[str, float]]:
    """Measure which precision multiplies matrices faster on this CPU.

    Returns
    -------
    precision
        ``"bf16"`` if it is at least 1.3 times faster, else ``"fp32"``: some CPUs have matrix units for it, on others
        it is emulated and very slow.
    milliseconds
        Of one product in each precision.
    """
    left, right = torch.ones(2048, 128), torch.ones(128, 512)
    timings = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        a, b = left.to(dtype), right.to(dtype)
        a @ b
        best = math.inf
        for _ in range(5):
            start = time.perf_counter()
            a @ b
            best = min(best, time.perf_counter() - start)
        timings[name] = 1e3 * best
    return ("bf16" if timings["bf16"] * 1.3 < timings["fp32"] else "fp32"), timings


@contextlib.contextmanager
def mixed(precision: Precision) -> Generator[None, None, None]:
    """Run the block with bfloat16 matrix products (weights stay float32), or as it is for ``"fp32"``."""
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        yield


@dataclass
class TrainingState:
    """Model, optimisers, running average and curves of a stage, saved and restored as one file.

    Parameters
    ----------
    path
        The checkpoint.
    model
        What is trained.
    optimisers
        Their parameter groups carry ``peak``, the rate that a schedule multiplies.
    settings
        What the stage depends on; a checkpoint made with other settings is refused.
    decay
        Of the running average of the weights.
    """

    path: Path
    model: nn.Module
    optimisers: Sequence[torch.optim.Optimizer]
    settings: Mapping[str, Any]
    decay: float
    step: int = 0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    measured: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(self.decay), use_buffers=False)
        # The average's buffers (quantiser gains) are constants of the stage, equal to the model's.

    def restore(self) -> bool:
        """Continue from the file if there is one; say whether there was.

        Raises
        ------
        CheckpointError
            If the file belongs to other settings.
        """
        if not self.path.exists():
            return False
        saved = torch.load(self.path, weights_only=True)
        if saved["settings"] != dict(self.settings):
            raise CheckpointError(
                f"{self.path.name} was made with other settings", hint="use another folder, or start anew"
            )
        self.model.load_state_dict(saved["model"])
        self.average.load_state_dict(saved["average"])
        for optimiser, state in zip(self.optimisers, saved["optimisers"], strict=True):
            optimiser.load_state_dict(state)
        self.step, self.seconds = saved["step"], saved["seconds"]
        self.losses, self.measured = saved["losses"], saved["measured"]
        return True

    def save(self) -> None:
        """Write the checkpoint; a kill leaves the previous one or this one."""
        state = {
            "settings": dict(self.settings),
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "step": self.step,
            "seconds": self.seconds,
            "losses": self.losses,
            "measured": self.measured,
        }
        with atomic_path(self.path) as temporary:
            torch.save(state, temporary)

    def update(self, loss: Tensor, factor: float, clip: float = 1.0) -> None:
        """Take one step down ``loss`` at ``factor`` times each group's peak rate, and record it."""
        for optimiser in self.optimisers:
            optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = factor * group["peak"]
            optimiser.step()
        self.average.update_parameters(self.model)
        self.losses.append(float(loss.detach()))
        self.step += 1
