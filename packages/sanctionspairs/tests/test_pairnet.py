"""PairNet: NumPy scores what torch trained, the shipped weights keep to their split, explanations say what counts."""

import numpy as np
import pytest
import torch
from sanctionspairs_records import make, make_pair

from sanctionspairs.errors import SanctionsPairsError, ThresholdError
from sanctionspairs.evaluate import labels_of, tune_threshold
from sanctionspairs.features import Encoder
from sanctionspairs.pairnet import DIMENSION, PairNet, value_vectors
from sanctionspairs.pairnet_train import _batch, _network, _places, train
from sanctionspairs.pairnet_values import BUCKETS, GROUPS, encode, value_grams
from sanctionspairs.records import Pair


@pytest.fixture(scope="module")
def encoded(small):
    return encode(small.pairs[:40], Encoder())


def test_numpy_scores_what_torch_computes(small, encoded):
    torch.manual_seed(0)
    model = _network(torch).eval()
    state = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    weights = {"embedding": state["embedding.weight"], "mean": np.zeros(18), "scale": np.ones(18)}
    for number, layer in enumerate(("0", "3", "6"), 1):
        weights |= {f"w{number}": state[f"layers.{layer}.weight"].T, f"b{number}": state[f"layers.{layer}.bias"]}
    chosen = np.arange(40)[::-1].copy()
    inputs = _batch(torch, encoded, _places(encoded, 40), chosen, np.zeros(18), np.ones(18))
    with torch.no_grad():
        literal = model(*inputs).numpy()[::-1]
    assert np.allclose(PairNet(weights).logits(encoded), literal, atol=1e-4)


def test_alignment_is_the_largest_cosine_of_value_pairs(small, encoded):
    rng = np.random.default_rng(0)
    embedding = rng.normal(size=(BUCKETS, DIMENSION)).astype(np.float32)
    net = PairNet({"embedding": embedding, "mean": np.zeros(18), "scale": np.ones(18)})
    aligned = net.inputs(encoded)[:, : len(GROUPS)]
    for number, pair in enumerate(small.pairs[:10]):
        sides = [pair.left.get("name", quiet=True), pair.right.get("name", quiet=True)]
        if not all(sides):
            assert aligned[number, GROUPS.index("name")] == 0
            continue
        unit = [[embedding[value_grams(v)].sum(axis=0) for v in values] for values in sides]
        cosine = max(0.0, *(float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)) for a in unit[0] for b in unit[1]))
        assert aligned[number, GROUPS.index("name")] == pytest.approx(cosine, abs=1e-5)
    assert np.allclose(np.linalg.norm(value_vectors(embedding, encoded), axis=1), 1, atol=1e-5)


def test_grams_see_a_name_across_scripts():
    same = len(set(value_grams("Владимир")) & set(value_grams("Vladimir")))
    other = len(set(value_grams("Владимир")) & set(value_grams("Александр")))
    assert same >= 6 > other
    assert all(0 <= gram < BUCKETS for gram in value_grams("x"))


def test_shipped_weights_beat_the_rules_where_they_have_not_been_trained(embedded):
    from sanctionspairs.matchers import get
    from sanctionspairs.split import entity_disjoint

    parts = entity_disjoint(embedded.pairs)
    val, test = parts[1][:300], parts[2][:500]
    f1 = {}
    for matcher in (get("pairnet"), get("regression-v1")):
        threshold, _ = tune_threshold(matcher.score(val), labels_of(val))
        said, y = matcher.score(test) >= threshold, labels_of(test)
        f1[matcher.name] = 2 * (said & (y == 1)).sum() / (said.sum() + y.sum())
    assert f1["pairnet"] > f1["regression-v1"] + 0.02


def test_training_learns_and_is_repeatable(small):
    few = [train(small.pairs[:60], small.pairs[60:100], epochs=1, seed=1) for _ in range(2)]
    assert all(np.array_equal(few[0][name], few[1][name]) for name in few[0])
    weights = train(small.pairs[:500], epochs=2, seed=1)
    assert weights["embedding"].dtype == np.float16
    scores, y = PairNet(weights).score(small.pairs[500:]), labels_of(small.pairs[500:])
    assert scores[y == 1].mean() > scores[y == 0].mean()
    with pytest.raises(ThresholdError):
        train([pair for pair in small.pairs if pair.label], epochs=1)


def test_weights_are_saved_and_loaded(tmp_path, small):
    net = PairNet.shipped()
    net.save(tmp_path / "w.npz")
    assert np.array_equal(PairNet.shipped(tmp_path / "w.npz").score(small.pairs[:50]), net.score(small.pairs[:50]))
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    with pytest.raises(SanctionsPairsError, match="holds no pairnet weights"):
        PairNet.shipped(tmp_path / "other.npz")
    with pytest.raises(SanctionsPairsError, match="not trained"):
        PairNet().score(small.pairs[:1])


def test_the_order_of_a_pair_hardly_matters(small):
    net, pairs = PairNet.shipped(), small.pairs[:200]
    back = [Pair(pair.right, pair.left) for pair in pairs]
    assert np.abs(net.score(pairs) - net.score(back)).mean() < 0.01


def test_explanations_name_what_speaks():
    net = PairNet.shipped()
    pair = make_pair(
        {"name": "Ivan Petrov", "birthDate": "1970-01-02", "country": "ru"},
        {"name": "Ivan Petrov", "birthDate": "1970-01-02", "gender": "male"},
    )
    parts = net.explain(pair)
    assert {"name", "birth date", "dob_matches"} <= parts.keys()
    assert "gender" not in parts
    assert parts["birth date"] + parts["dob_matches"] > 0
    star = Pair(make("a", "Person", name="Star"), make("b", "Vessel", name="Star"))
    assert net.score([star]).tolist() == [0.0]
