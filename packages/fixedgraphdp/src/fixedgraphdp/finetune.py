r"""Fine-tuning transformers of the Hugging Face hub on texts that belong to several users, as arXiv papers do.

The same plan, batches and guarantee as `fixedgraphdp.training.DPSGD`, with per-example gradients from Opacus.
"""

from __future__ import annotations

import hashlib
import io
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fixedgraphdp.data import Reading, read_arxiv_texts
from fixedgraphdp.graph import AttributionGraph
from fixedgraphdp.plan import Plan, PrivacyReport, make_plan, poisson_batch
from papers_shared.artifacts import append_jsonl, write_bytes
from papers_shared.errors import InputError

if TYPE_CHECKING:
    import torch

try:
    import torch
    from opacus.grad_sample import GradSampleModule
except ImportError as missing:
    raise InputError("opacus and torch are not installed", hint="install fixedgraphdp[text]") from missing


class FineTuning:
    r"""DP-SGD for a causal language model on a bounded set of texts.

    An example's loss is the mean cross-entropy of its tokens; a step is that of `fixedgraphdp.training.DPSGD`.

    Parameters
    ----------
    model, tokenizer
        From ``transformers``; only parameters with ``requires_grad`` are trained.
    texts, graph
        The text of each example, and who owns it.
    k, eps, delta, **plan
        As in `fixedgraphdp.plan.make_plan`.
    max_length
        Tokens of a text beyond it are cut off.
    microbatch
        Texts per forward pass; memory grows with it times the number of trained parameters.
    optimizer
        Makes a torch optimizer of the trained parameters; by default AdamW at rate 5e-4.
    seed
        As in `fixedgraphdp.training.DPSGD`: None for a secret one.

    Raises
    ------
    InputError
        Another number of texts than the graph has examples; nothing to train; a layer whose per-example gradients
        Opacus cannot give.
    InfeasibleError, BudgetError
        As in `fixedgraphdp.plan.make_plan`.

    References
    ----------
    Ganesh et al., arXiv 2503.03622, section 6 (fine-tuning on arXiv abstracts).
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        texts: Sequence[str],
        graph: AttributionGraph,
        k: int,
        eps: float,
        delta: float,
        *,
        max_length: int = 256,
        microbatch: int = 8,
        optimizer: Callable[[list[Any]], Any] | None = None,
        seed: int | None = None,
        **plan: Any,
    ) -> None:
        if len(texts) != graph.n_examples:
            raise InputError(f"{len(texts)} texts, but the graph has {graph.n_examples} examples")
        self.model, self.tokenizer, self.texts = model, tokenizer, texts
        self.trained = [p for p in model.parameters() if p.requires_grad]
        if not self.trained:
            raise InputError("no parameter of the model is to be trained", hint="set requires_grad on some")
        self.plan: Plan = make_plan(graph, k, eps, delta, **plan)
        self.report = self.plan.report
        self.max_length, self.microbatch = max_length, microbatch
        self.seed = secrets.randbits(63) if seed is None else seed
        model.train()  # Opacus looks at layers in training mode only
        self.wrapped = GradSampleModule(model, batch_first=True, loss_reduction="sum", strict=False)
        self.optimizer = (optimizer or (lambda parameters: torch.optim.AdamW(parameters, lr=5e-4)))(self.trained)
        self.taken = 0

    def losses(self, examples: Sequence[int]) -> torch.Tensor:
        """Return each text's mean cross-entropy per predicted token; 0 for a text of fewer than two tokens."""
        batch = self.tokenizer(
            [self.texts[e] or " " for e in examples], return_tensors="pt", padding=True, truncation=True,
            max_length=self.max_length,
        )  # fmt: skip
        device = self.trained[0].device
        tokens, mask = batch["input_ids"].to(device), batch["attention_mask"].to(device)
        # One row of positions for each text, or the position table's gradient would be that of the whole batch.
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        logits = self.wrapped(input_ids=tokens, attention_mask=mask, position_ids=positions, use_cache=False).logits
        entropy = torch.nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none")
        counted = (mask[:, 1:] * mask[:, :-1]).to(entropy.dtype)
        return (entropy * counted).sum(1) / counted.sum(1).clamp(min=1)

    def gradient_sum(self, batch: Sequence[int]) -> list[torch.Tensor]:
        r"""Return :math:`\sum_e w_e\, g_e \min(1, C / \|g_e\|)` over a batch, one tensor per trained parameter."""
        total = [torch.zeros_like(p) for p in self.trained]
        for start in range(0, len(batch), self.microbatch):
            part = batch[start : start + self.microbatch]
            self.wrapped.zero_grad(set_to_none=True)
            self.losses(part).sum().backward()
            gradients = [self._per_example(p, len(part)) for p in self.trained]
            squares = torch.stack([g.flatten(1).double().square().sum(1) for g in gradients]).sum(0)
            weights = torch.as_tensor(self.plan.weights[np.asarray(part)], device=squares.device)
            factors = weights * (self.report.clip / squares.sqrt().clamp(min=1e-12)).clamp(max=1.0)
            factors = torch.where(squares.isfinite(), factors, 0.0)  # what is not finite must not get past its clip
            for sums, gradient in zip(total, gradients, strict=True):
                sums += torch.tensordot(factors.to(gradient.dtype), gradient.nan_to_num(0.0, 0.0, 0.0), 1)
        self.wrapped.zero_grad(set_to_none=True)
        return total

    def _per_example(self, parameter: Any, count: int) -> torch.Tensor:
        found = getattr(parameter, "grad_sample", None)
        if found is None or len(found) != count:
            name = next(name for name, other in self.model.named_parameters() if other is parameter)
            raise InputError(f"no per-example gradients for {name}", hint="set its requires_grad to False")
        return found

    def step(self) -> None:
        """Take the next step: its batch and its noise are functions of the seed and its number."""
        batch = poisson_batch(self.plan, self.seed, self.taken).tolist()
        report = self.report
        own = hashlib.sha256(f"{self.seed} {self.taken}".encode()).digest()
        noise = torch.Generator().manual_seed(int.from_bytes(own[:8], "little") >> 1)
        with torch.random.fork_rng():  # dropout too is the same when a step is repeated
            torch.manual_seed(int.from_bytes(own[8:16], "little") >> 1)
            total = self.gradient_sum(batch)
        scale = report.noise_multiplier * report.w_max * report.clip
        for parameter, sums in zip(self.trained, total, strict=True):
            drawn = torch.randn(sums.shape, generator=noise).to(sums)
            parameter.grad = (sums + scale * drawn) / (report.q * report.size)
        self.optimizer.step()
        for parameter in self.trained:
            parameter.grad = None
        self.taken += 1

    def fit(
        self,
        *,
        folder: Path | None = None,
        every: int = 25,
        evaluate: Callable[[Any], float] | None = None,
        progress: Callable[[int], None] = lambda step: None,
    ) -> tuple[Any, PrivacyReport]:
        """Train to the end of the budget; with a folder, from its last checkpoint on, as `DPSGD.fit` does.

        Parameters
        ----------
        folder
            Where ``checkpoint.pt`` and ``history.jsonl`` are kept, every ``every`` steps.
        evaluate
            Called with the model at each checkpoint; it must look at public or held-out data only.
        progress
            Called after each step with its number.

        Returns
        -------
        model, PrivacyReport
            The model that was passed, trained.
        """
        if folder is not None:
            self._load(folder / "checkpoint.pt")
        while self.taken < self.report.steps:
            self.step()
            if folder is not None and (self.taken % every == 0 or self.taken == self.report.steps):
                value = None if evaluate is None else evaluate(self.model)
                append_jsonl(folder / "history.jsonl", {"step": self.taken, "value": value})
                self._save(folder / "checkpoint.pt")
            progress(self.taken)
        return self.model, self.report

    def _run(self) -> str:
        selected = hashlib.sha256(self.plan.bounded.selected.tobytes()).hexdigest()
        return json.dumps([asdict(self.report), selected])

    def _save(self, path: Path) -> None:
        state = {
            "run": self._run(),
            "step": self.taken,
            "seed": self.seed,
            "parameters": [p.detach() for p in self.trained],
            "optimizer": self.optimizer.state_dict(),
        }
        buffer = io.BytesIO()
        torch.save(state, buffer)
        write_bytes(path, buffer.getvalue())

    def _load(self, path: Path) -> None:
        if not path.exists():
            return
        state = torch.load(path, weights_only=True)
        if state["run"] != self._run():
            raise InputError(
                f"{path} is of a run with another set, noise or budget", hint="take another folder, or its settings"
            )
        self.taken, self.seed = state["step"], state["seed"]
        with torch.no_grad():
            for parameter, saved in zip(self.trained, state["parameters"], strict=True):
                parameter.copy_(saved)
        self.optimizer.load_state_dict(state["optimizer"])


def load_causal_lm(model: str | Path) -> tuple[Any, Any]:
    """Load a causal language model and its tokenizer from a folder, or by its name on the Hugging Face hub.

    Raises
    ------
    InputError
        ``transformers`` is not installed, or there is no such model.
    """
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise InputError("transformers is not installed", hint="install fixedgraphdp[text]") from error
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(str(model))
        loaded = AutoModelForCausalLM.from_pretrained(str(model), attn_implementation="eager")
    except (OSError, ValueError) as error:
        raise InputError(f"cannot load {model}: {str(error).splitlines()[0]}", hint="give a model's folder") from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return loaded, tokenizer


def arxiv_finetuning(
    path: str | Path, model: str | Path, k: int, eps: float, delta: float, **options: Any
) -> tuple[FineTuning, Reading]:
    """Prepare fine-tuning of a hub model on the titles and abstracts of arXiv metadata, private for every author.

    Parameters
    ----------
    path
        arXiv metadata, as `fixedgraphdp.data.read_arxiv` takes it.
    model
        As in `load_causal_lm`.
    k, eps, delta, **options
        As in `FineTuning`.

    Returns
    -------
    FineTuning, Reading
        Call ``fit`` on the first; the second holds the graph and what was skipped.
    """
    reading, texts = read_arxiv_texts(Path(path))
    loaded, tokenizer = load_causal_lm(model)
    return FineTuning(loaded, tokenizer, texts, reading.graph, k, eps, delta, **options), reading
