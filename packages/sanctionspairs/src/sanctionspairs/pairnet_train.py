"""Training of PairNet with torch; minutes on two cores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers_shared.cli import progress
from sanctionspairs.abstain import centered_isotonic
from sanctionspairs.errors import SanctionsPairsError, ThresholdError
from sanctionspairs.evaluate import labels_of
from sanctionspairs.features import Encoder
from sanctionspairs.pairnet import DIMENSION, HIDDEN
from sanctionspairs.pairnet_values import BUCKETS, GROUPS, Encoded, encode
from sanctionspairs.records import Pair, decided_by_form
from sanctionspairs.split import entity_disjoint


def train(
    pairs: Sequence[Pair],
    val: Sequence[Pair] | None = None,
    *,
    epochs: int = 12,
    batch: int = 256,
    rate: float = 2e-3,
    seed: int = 0,
) -> dict[str, Any]:
    """Fit PairNet by cross-entropy; the epoch with the least loss on ``val`` is kept and calibrated there.

    Parameters
    ----------
    pairs
        To learn from.
    val
        To choose the epoch and calibrate on; None sets an entity-disjoint tenth of the pairs aside.
    epochs, batch, rate, seed
        Of the optimisation (Adam, one cosine cycle).

    Returns
    -------
    dict
        Arrays: ``embedding`` float16, ``w1`` to ``b3`` float32, ``mean``, ``scale``, ``iso_x``, ``iso_y``.

    Raises
    ------
    SanctionsPairsError
        torch is not installed.
    ThresholdError
        The pairs are all of one judgement.
    """
    try:
        import torch
    except ImportError as error:
        raise SanctionsPairsError("training pairnet needs torch", "install sanctionspairs[net]") from error
    kept = [pair for pair in pairs if pair.scored and decided_by_form(pair) is None]
    if val is None:
        kept, val = entity_disjoint(kept, (0.9, 0.1), seed)
    held = [pair for pair in val if pair.scored and decided_by_form(pair) is None]
    if len({pair.label for pair in kept}) < 2 or len({pair.label for pair in held}) < 2:
        raise ThresholdError("the training or validation pairs are all of one judgement")
    encoder = Encoder()
    data, checked = encode(kept, encoder), encode(held, encoder)
    mean, scale = data.features.mean(axis=0), np.maximum(data.features.std(axis=0), 1e-6)
    torch.manual_seed(seed)
    model = _network(torch)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    steps = epochs * -(-len(kept) // batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    loss = torch.nn.BCEWithLogitsLoss()
    order = np.random.default_rng(seed)
    labels, truth = labels_of(kept), torch.tensor(labels_of(held), dtype=torch.float32)
    place = _places(data, len(kept))
    best: tuple[float, dict[str, Any]] = (np.inf, {})
    with progress("training pairnet", total=epochs) as bar:
        for _ in range(epochs):
            model.train()
            for chosen in np.array_split(order.permutation(len(kept)), -(-len(kept) // batch)):
                inputs = _batch(torch, data, place, chosen, mean, scale)
                value = loss(model(*inputs), torch.tensor(labels[chosen], dtype=torch.float32))
                optimiser.zero_grad()
                value.backward()
                optimiser.step()
                schedule.step()
            model.eval()
            with torch.no_grad():
                everything = _batch(torch, checked, _places(checked, len(held)), np.arange(len(held)), mean, scale)
                logits = model(*everything)
                value = float(loss(logits, truth))
            if value < best[0]:
                best = (value, {"state": _numpy(model), "logits": logits.numpy().astype(np.float64)})
            bar.advance(note=f"loss {value:.4f}")
    iso_x, iso_y = centered_isotonic(best[1]["logits"], labels_of(held))
    return best[1]["state"] | {"mean": mean, "scale": scale} | {"iso_x": iso_x, "iso_y": iso_y}


def _network(torch: Any) -> Any:
    width = 3 * len(GROUPS) + 18

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.EmbeddingBag(BUCKETS, DIMENSION, mode="sum")
            torch.nn.init.normal_(self.embedding.weight, std=DIMENSION**-0.5)
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(width, HIDDEN),
                torch.nn.ReLU(),
                torch.nn.Dropout(0.1),
                torch.nn.Linear(HIDDEN, HIDDEN),
                torch.nn.ReLU(),
                torch.nn.Dropout(0.1),
                torch.nn.Linear(HIDDEN, 1),
            )

        def forward(self, grams: Any, starts: Any, left: Any, right: Any, slot: Any, rest: Any) -> Any:
            vectors = torch.nn.functional.normalize(self.embedding(grams, starts), dim=1)
            cosine = (vectors[left] * vectors[right]).sum(dim=1)
            aligned = torch.zeros(len(rest) * len(GROUPS)).scatter_reduce(0, slot, cosine, "amax")
            return self.layers(torch.cat([aligned.view(len(rest), -1), rest], dim=1))[:, 0]

    return Net()


def _places(data: Encoded, n: int) -> Any:
    """Return where each pair's comparisons begin; they stand in the order of the pairs."""
    return np.searchsorted(data.slot, np.arange(n + 1) * len(GROUPS))


def _batch(torch: Any, data: Encoded, place: Any, chosen: Any, mean: Any, scale: Any) -> tuple[Any, ...]:
    """Cut the arrays of a few pairs out, with only the values that occur in them."""
    spans = [np.arange(place[pair], place[pair + 1]) for pair in chosen]
    rows = np.concatenate([*spans, np.empty(0, dtype=np.int64)])
    new = np.repeat(np.arange(len(chosen)), [len(span) for span in spans])
    slot = new * len(GROUPS) + data.slot[rows] % len(GROUPS)
    values, index = np.unique(np.concatenate([data.left[rows], data.right[rows]]), return_inverse=True)
    ends = np.append(data.starts[1:], len(data.grams))
    lengths = ends[values] - data.starts[values]
    starts = np.cumsum(lengths) - lengths
    grams = data.grams[np.repeat(data.starts[values] - starts, lengths) + np.arange(lengths.sum())]
    rest = np.concatenate([data.flags[chosen], (data.features[chosen] - mean) / scale], axis=1).astype(np.float32)
    left, right = index[: len(rows)], index[len(rows) :]
    return tuple(torch.from_numpy(np.ascontiguousarray(a)) for a in (grams, starts, left, right, slot, rest))


def _numpy(model: Any) -> dict[str, Any]:
    state = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    found = {"embedding": state["embedding.weight"].astype(np.float16)}
    for number, layer in enumerate(("0", "3", "6"), 1):
        found[f"w{number}"] = state[f"layers.{layer}.weight"].T.astype(np.float32).copy()
        found[f"b{number}"] = state[f"layers.{layer}.bias"].astype(np.float32).copy()
    return found
