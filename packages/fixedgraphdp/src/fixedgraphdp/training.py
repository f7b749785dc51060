r"""DP-SGD on a bounded set: each example's gradient is clipped, the sum is noised, a user moves it by at most kC."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Num, PyTree

from fixedgraphdp.bounding import Bounded
from fixedgraphdp.errors import BudgetError, PrivacyViolation
from fixedgraphdp.graph import AttributionGraph
from fixedgraphdp.plan import PrivacyReport, make_plan, poisson_batch
from papers_shared.artifacts import append_jsonl, read_jsonl, write_npz
from papers_shared.errors import InputError

DEFAULT_OPTIMIZER = optax.sgd(0.5, momentum=0.9)
Loss = Callable[..., Any]
Rows = Array | np.ndarray


@dataclass(frozen=True)
class Model:
    """Trained parameters and the loss they were trained with."""

    params: PyTree
    loss_fn: Loss

    def loss(self, x: Num[Any, "n ..."], y: Num[Any, "n ..."]) -> float:
        """Return the mean loss on data."""
        return float(jnp.mean(jax.vmap(self.loss_fn, (None, 0, 0))(self.params, jnp.asarray(x), jnp.asarray(y))))


def clipped_sum(
    loss_fn: Loss,
    params: PyTree,
    x: Num[Rows, "b ..."],
    y: Num[Rows, "b ..."],
    weights: Float[Rows, " b"],
    clip: float | Float[Array, ""],
) -> PyTree:
    r"""Return :math:`\sum_e w_e\, g_e \min(1, C / \|g_e\|)` with :math:`g_e` the gradient of example e.

    A row of weight 0 adds nothing: padding, and the null contents of ``zero-out``.

    Parameters
    ----------
    loss_fn
        ``loss_fn(params, x_e, y_e)``, a scalar of one example.
    params
        Pytree of float arrays.
    x, y
        Examples along the first axis.
    weights
        ``(b,)`` in ``[0, w_max]``.
    clip
        :math:`C > 0`, bound on the norm over all parameters together.
    """
    gradients = jax.vmap(jax.grad(loss_fn), (None, 0, 0))(params, jnp.asarray(x), jnp.asarray(y))
    squares = sum(jnp.sum(g.reshape(g.shape[0], -1) ** 2, axis=1) for g in jax.tree.leaves(gradients))
    factors = weights * jnp.minimum(1.0, clip / jnp.maximum(jnp.sqrt(squares), 1e-12))
    # A gradient that is not finite must not get past its clip.
    factors = jnp.where(jnp.isfinite(squares), factors, 0.0)
    clean = jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), g, 0.0), gradients)
    return jax.tree.map(lambda g: jnp.tensordot(factors, g, axes=1), clean)


_compiled_sum = jax.jit(clipped_sum, static_argnums=0)


@partial(jax.jit, static_argnums=0)
def _noisy_update(
    update: Callable[..., Any],
    params: PyTree,
    state: PyTree,
    total: PyTree,
    seed: Array,
    scale: float | Array,
    expected: float | Array,
) -> tuple[PyTree, PyTree]:
    """Add noise that is a function of (low word, high word, step), divide by the expected batch, and apply."""
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed[0]), seed[1]), seed[2])
    leaves, tree = jax.tree.flatten(total)
    noisy = [
        (leaf + scale * jax.random.normal(part, leaf.shape)) / expected
        for leaf, part in zip(leaves, jax.random.split(key, len(leaves)), strict=True)
    ]
    updates, state = update(jax.tree.unflatten(tree, noisy), state, params)
    return optax.apply_updates(params, updates), state


class DPSGD:
    r"""User-level private training for examples that belong to several users.

    .. math:: \tilde g_t = \frac{1}{q |S|}
        \Big( \sum_{e \in B_t} w_e\, \mathrm{clip}_C(g_e) + \sigma w_{max} C\, \xi_t \Big), \quad \xi_t \sim N(0, I)

    with :math:`B_t \subset S` drawn by independent coins of rate q. S is bounded first, from the graph alone; the
    noise multiplier is the least whose `fixedgraphdp.accounting.epsilon` meets the budget.

    Parameters
    ----------
    loss_fn, params
        ``loss_fn(params, x_e, y_e)`` and the starting parameters.
    graph, k, eps, delta, adjacency, q, steps, clip, method, order, weights, w_max, key, bounded
        As in `fixedgraphdp.plan.make_plan`.
    optimizer
        An optax transformation; by default SGD with momentum .9 and rate .5.
    microbatch
        Examples per device call; changes memory, not the result.
    seed
        Of batches and noise. Who knows it can subtract the noise: leave None, for a secret one, when the model is to
        be released. Each step's randomness is a function of the seed and the step, so a resumed run repeats a lost
        step's noise and never draws a second one.

    Raises
    ------
    InfeasibleError, BudgetError, InputError
        As in `fixedgraphdp.plan.make_plan`.

    References
    ----------
    Abadi et al., "Deep learning with differential privacy", CCS 2016; Ganesh et al., arXiv 2503.03622, section 4.
    """

    def __init__(
        self,
        loss_fn: Loss,
        params: PyTree,
        graph: AttributionGraph,
        k: int,
        eps: float,
        delta: float,
        *,
        adjacency: str = "zero-out",
        q: float | None = None,
        steps: int = 300,
        clip: float = 1.0,
        optimizer: optax.GradientTransformation | None = None,
        method: str = "greedy",
        order: str = "user-degree",
        weights: str | None = None,
        w_max: float = 4.0,
        microbatch: int = 512,
        seed: int | None = None,
        key: int | None = None,
        bounded: Bounded | None = None,
    ) -> None:
        self.plan = make_plan(
            graph, k, eps, delta, adjacency=adjacency, q=q, steps=steps, clip=clip, method=method, order=order,
            weights=weights, w_max=w_max, key=key, bounded=bounded,
        )  # fmt: skip
        self.bounded, self.weights, self.report = self.plan
        self.loss_fn, self.params, self.graph = loss_fn, jax.tree.map(jnp.asarray, params), graph
        self.inside = np.zeros(graph.n_examples, bool)
        self.inside[self.bounded.selected] = True
        self.seed = secrets.randbits(63) if seed is None else seed
        self.microbatch = microbatch
        self.optimizer = DEFAULT_OPTIMIZER if optimizer is None else optimizer
        self.state = self.optimizer.init(self.params)
        self.taken = 0

    def batch(self, step: int) -> Int[np.ndarray, " b"]:
        """Return the examples of one step: a coin of rate q for each of S."""
        return poisson_batch(self.plan, self.seed, step)

    def step(self, x: Num[Any, "n ..."], y: Num[Any, "n ..."], batch: Int[np.ndarray, " b"] | None = None) -> None:
        """Take the next step.

        Raises
        ------
        PrivacyViolation
            The batch holds an example outside the bounded set.
        BudgetError
            All steps that the noise was made for are taken.
        """
        if self.taken >= self.report.steps:
            raise BudgetError(f"all {self.report.steps} steps of the budget are taken", hint="train anew with more")
        batch = self.batch(self.taken) if batch is None else batch
        strangers = batch[~self.inside[batch]]
        if len(strangers):
            raise PrivacyViolation(f"{len(strangers)} examples of the batch are not in S, first {strangers[0]}")
        total = self.gradient_sum(x, y, batch)
        report, seed = self.report, (self.seed & 0xFFFFFFFF, self.seed >> 32, self.taken)
        scale = report.noise_multiplier * report.w_max * report.clip
        self.params, self.state = _noisy_update(
            self.optimizer.update,
            self.params,
            self.state,
            total,
            np.array(seed, np.uint32),
            scale,
            report.q * report.size,
        )
        self.taken += 1

    def gradient_sum(self, x: Num[Any, "n ..."], y: Num[Any, "n ..."], batch: Int[np.ndarray, " b"]) -> PyTree:
        """Return the weighted clipped sum over a batch, before noise, in microbatches of one shape."""
        total = jax.tree.map(jnp.zeros_like, self.params)
        for start in range(0, len(batch), self.microbatch):
            part = batch[start : start + self.microbatch]
            rows = np.zeros(self.microbatch, np.int64)
            rows[: len(part)] = part
            weight = np.zeros(self.microbatch, np.float32)
            weight[: len(part)] = self.weights[part]
            found = _compiled_sum(self.loss_fn, self.params, x[rows], y[rows], weight, self.report.clip)
            total = jax.tree.map(jnp.add, total, found)
        return total

    def fit(
        self,
        x: Num[Any, "n ..."],
        y: Num[Any, "n ..."],
        *,
        folder: Path | None = None,
        every: int = 25,
        evaluate: Callable[[PyTree], float] | None = None,
        progress: Callable[[int], None] = lambda step: None,
    ) -> tuple[Model, PrivacyReport]:
        """Train to the end of the budget; with a folder, from its last checkpoint on.

        Parameters
        ----------
        x, y
            Contents of all examples, row e of example e. Only those in S are read.
        folder
            Where ``checkpoint.npz`` and ``history.jsonl`` are kept, every ``every`` steps.
        evaluate
            Called with the parameters at each checkpoint; its number goes into the history. It must look at public
            or held-out data only.
        progress
            Called after each step with its number.

        Raises
        ------
        InputError
            The data have another number of rows than the graph has examples; the folder's checkpoint is of a run with
            another set, noise or budget, whose steps this report would not cover.
        """
        if len(x) != self.graph.n_examples or len(y) != self.graph.n_examples:
            raise InputError(f"{len(x)} rows of x, {len(y)} of y, but the graph has {self.graph.n_examples} examples")
        if folder is not None:
            self._load(folder)
        while self.taken < self.report.steps:
            self.step(x, y)
            if self.taken % every == 0 or self.taken == self.report.steps:
                self._save(folder, None if evaluate is None else evaluate(self.params))
            progress(self.taken)
        return Model(self.params, self.loss_fn), self.report

    def _save(self, folder: Path | None, value: float | None) -> None:
        if folder is None:
            return
        leaves = jax.tree.leaves((self.params, self.state))
        arrays = {f"leaf_{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        # History first: a kill in between leaves a row for a checkpoint that is not there, which loading drops.
        append_jsonl(folder / "history.jsonl", {"step": self.taken, "value": value})
        state = {"step": np.int64(self.taken), "seed": np.uint64(self.seed), "run": self._fingerprint()}
        write_npz(folder / "checkpoint.npz", arrays | state)

    def _fingerprint(self) -> np.ndarray:
        """Return what a checkpoint must share with the run that goes on with it: the guarantee's terms and the set."""
        return np.array(json.dumps([asdict(self.report), hashlib.sha256(self.bounded.selected.tobytes()).hexdigest()]))

    def _load(self, folder: Path) -> None:
        path = folder / "checkpoint.npz"
        if not path.exists():
            (folder / "history.jsonl").unlink(missing_ok=True)
            return
        with np.load(path) as saved:
            if str(saved["run"]) != str(self._fingerprint()):
                raise InputError(
                    f"{path} is of a run with another set, noise or budget", hint="take another folder, or its settings"
                )
            self.taken, self.seed = int(saved["step"]), int(saved["seed"])
            leaves, tree = jax.tree.flatten((self.params, self.state))
            found = [jnp.asarray(saved[f"leaf_{i}"]) for i in range(len(leaves))]
        self.params, self.state = jax.tree.unflatten(tree, found)
        rows = [row for row in read_jsonl(folder / "history.jsonl") if row["step"] <= self.taken]
        (folder / "history.jsonl").unlink()
        for row in {row["step"]: row for row in rows}.values():
            append_jsonl(folder / "history.jsonl", row)

    def settings(self) -> dict[str, Any]:
        """Return what determines the run, for a manifest."""
        return asdict(self.report)


def logistic_loss(params: Float[Array, " d"], x: Float[Array, " d"], y: Num[Array, ""]) -> Float[Array, ""]:
    r"""Return :math:`\ln(1 + e^{-(2y - 1)\, \theta^\top x})` of one example with label 0 or 1."""
    return jnp.logaddexp(0.0, -(2 * y - 1) * jnp.dot(params, x))


def accuracy(params: Float[Any, " d"], x: Float[np.ndarray, "n d"], y: Num[np.ndarray, " n"]) -> float:
    """Return the share of labels that the sign of the linear score gets right."""
    return float(np.mean((x @ np.asarray(params) > 0) == (y > 0.5)))


class PoissonBatches:
    """Batches for a torch ``DataLoader(batch_sampler=...)``: Opacus's Poisson sampler, on a bounded set.

    One pass is the whole budget of steps. A batch may be empty; a loader then needs
    ``opacus.data_loader.wrap_collate_with_empty``.
    """

    def __init__(self, inner: Any, selected: Int[np.ndarray, " s"]) -> None:
        self._inner, self._selected = inner, selected

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self._inner)

    def __iter__(self) -> Iterator[list[int]]:
        """Draw the batches, as numbers of examples of the graph."""
        return (self._selected[np.array(list(batch), np.int64)].tolist() for batch in self._inner)


def opacus_sampler(bounded: Bounded, q: float, steps: int, *, seed: int | None = None) -> PoissonBatches:
    """Restrict Opacus's Poisson sampler to a bounded set.

    Use it with ``opacus.optimizers.DPOptimizer(noise_multiplier=fixedgraphdp.accounting.noise_multiplier(...),
    max_grad_norm=C, expected_batch_size=q * bounded.size)``; Opacus's own accountant knows one owner per example only.

    Parameters
    ----------
    bounded
        From `fixedgraphdp.bounding.bound`.
    q, steps
        Sampling rate and number of batches.
    seed
        Of the batches; None for a secret one, which the amplification by sampling counts on.

    Raises
    ------
    InputError
        Opacus is not installed.
    """
    try:
        import torch
        from opacus.utils.uniform_sampler import UniformWithReplacementSampler
    except ImportError as error:
        raise InputError("opacus is not installed", hint="install fixedgraphdp[torch]") from error
    generator = torch.Generator().manual_seed(secrets.randbits(63) if seed is None else seed)
    inner = UniformWithReplacementSampler(num_samples=bounded.size, sample_rate=q, generator=generator, steps=steps)
    return PoissonBatches(inner, bounded.selected)
