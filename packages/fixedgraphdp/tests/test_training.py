"""DP-SGD keeps what it promises: literal loop, brute-force sensitivity, an audit, budgets, resumption."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.stats import beta

from fixedgraphdp import (
    AttributionGraph,
    BudgetError,
    PrivacyViolation,
    accounting,
    bound,
    generators,
    inclusion_probabilities,
)
from fixedgraphdp.training import DPSGD, clipped_sum, logistic_loss, opacus_sampler
from fixedgraphdp.training_reference import clipped_sum_loop
from papers_shared.artifacts import read_jsonl
from papers_shared.errors import InputError

DELTA = 1e-5
GRAPH = generators.chung_lu_hypergraph(120, 50, 3, seed=4)


def linear_loss(params, x, y):
    return jnp.dot(params, x) + 0.0 * y


def task(d=5):
    made = generators.logistic_task(GRAPH, d, seed=1)
    return made.x * 3, made.y


def trainer(**options):
    options = {"q": 0.3, "steps": 12, "seed": 7, "microbatch": 16} | options
    return DPSGD(logistic_loss, np.zeros(5, np.float32), GRAPH, 2, 3.0, DELTA, **options)


def test_clipping_per_example_equals_the_explicit_loop():
    x, y = (rows[:40] for rows in task())
    params = jnp.asarray(np.random.default_rng(0).standard_normal(5), jnp.float32)
    for clip in (0.1, 1.0, 100.0):
        fast = clipped_sum(logistic_loss, params, jnp.asarray(x), jnp.asarray(y), jnp.ones(40), clip)
        assert np.allclose(fast, clipped_sum_loop(logistic_loss, params, x, y, clip), rtol=1e-4, atol=1e-5)


def test_microbatches_and_padding_change_nothing():
    x, y = task()
    batch = np.arange(0, 120, 3)
    sums = [np.asarray(trainer(microbatch=size).gradient_sum(x, y, batch)) for size in (7, 40, 512)]
    assert np.allclose(sums[0], sums[1], atol=1e-5)
    assert np.allclose(sums[0], sums[2], atol=1e-5)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_one_user_moves_the_clipped_sum_by_at_most_k_clips(k):
    """All neighbours: each user's contents zeroed (weight 0) or replaced by each extreme, aligned or not."""
    kept = bound(GRAPH, k).selected
    x, y = task()
    params = jnp.asarray(np.random.default_rng(k).standard_normal(5), jnp.float32)
    clip = 0.7
    total = jax.jit(lambda x, y, w: clipped_sum(logistic_loss, params, x, y, w, clip))
    ones = np.ones(len(kept), np.float32)
    base = np.asarray(total(x[kept], y[kept], ones))
    extreme = 100 * np.asarray(params)
    largest = {"zero-out": 0.0, "replace": 0.0}
    for user in range(GRAPH.n_users):
        mine = np.isin(kept, GRAPH.examples_of(user))
        gone = np.asarray(total(x[kept], y[kept], np.where(mine, 0, ones)))
        largest["zero-out"] = max(largest["zero-out"], float(np.linalg.norm(base - gone)))
        swapped = []
        for sign in (-1, 1):
            other, label = x[kept].copy(), y[kept].copy()
            other[mine], label[mine] = extreme, (1 - sign) / 2
            swapped.append(np.asarray(total(other, label, ones)))
        for a, b in itertools.combinations([base, *swapped], 2):
            largest["replace"] = max(largest["replace"], float(np.linalg.norm(a - b)))
    assert largest["zero-out"] <= k * clip * (1 + 1e-5)
    assert largest["replace"] <= 2 * k * clip * (1 + 1e-5)


def test_a_full_users_identical_examples_reach_the_bound():
    graph = generators.clustered(3, 4)
    x = np.tile(np.array([9.0, 0.0], np.float32), (12, 1))
    kept = bound(graph, 2).selected
    mine = np.isin(kept, graph.examples_of(0))
    weights = [np.ones(6), np.where(mine, 0.0, 1.0)]
    sums = [clipped_sum(linear_loss, jnp.zeros(2), x[kept], np.zeros(6), jnp.asarray(w), 0.5) for w in weights]
    assert np.linalg.norm(np.asarray(sums[0] - sums[1])) == pytest.approx(2 * 0.5)


def test_gradients_that_are_not_finite_do_not_get_past_the_clip():
    x = np.array([[np.inf, 0.0], [1.0, 2.0]], np.float32)
    total = clipped_sum(linear_loss, jnp.zeros(2), x, np.zeros(2), jnp.ones(2), 1.0)
    assert np.allclose(total, np.array([1.0, 2.0]) / np.sqrt(5))


def noisy_sums(contents, steps):
    """Each step of a linear loss with SGD at rate 1 is one independent draw of the noisy sum."""
    graph = generators.clustered(10, 3)
    x = np.zeros((30, 2), np.float32)
    x[:3, 0] = contents
    model = DPSGD(
        linear_loss, np.zeros(2, np.float32), graph, 3, 4.0, DELTA, q=0.5, steps=steps, seed=3, microbatch=32,
        optimizer=optax.sgd(1.0),
    )  # fmt: skip
    moves = []
    for _ in range(steps):
        before = np.asarray(model.params)
        model.step(x, np.zeros(30, np.float32))
        moves.append((before - np.asarray(model.params))[0] * 0.5 * 30)
    return np.array(moves), model.report


def test_an_audit_with_a_canary_user_finds_no_more_than_claimed():
    steps = 500
    shifted, report = noisy_sums(1.0, steps)
    still, _ = noisy_sums(0.0, steps)
    delta = 1e-3
    claimed = accounting.epsilon(3, 0.5, report.noise_multiplier, 1, delta, interval=1e-3)
    half = steps // 2
    best = 0.0
    for high, low in ((shifted, still), (still, shifted)):
        for sign in (1, -1):
            cut = np.quantile(sign * high[:half], 0.75)
            hits, false = int((sign * high[half:] > cut).sum()), int((sign * low[half:] > cut).sum())
            power = beta.ppf(0.025, hits, half - hits + 1) if hits else 0.0
            level = beta.ppf(0.975, false + 1, half - false)
            best = max(best, float(np.log(max(power - delta, 1e-12) / level)))
    assert best <= claimed
    # The sum really shifts by a Binomial(3, 1/2) of clips, and has the noise that was accounted for.
    assert shifted.mean() - still.mean() == pytest.approx(1.5, abs=5 * report.noise_multiplier / np.sqrt(half))
    assert still.std() == pytest.approx(report.noise_multiplier, rel=0.1)


def test_a_batch_outside_the_bounded_set_is_refused():
    x, y = task()
    model = trainer()
    outside = np.setdiff1d(np.arange(120), model.bounded.selected)
    with pytest.raises(PrivacyViolation, match="not in S"):
        model.step(x, y, outside[:2])
    assert model.taken == 0


def test_batches_come_from_the_bounded_set_at_the_rate_accounted_for():
    model = trainer()
    batches = [model.batch(step) for step in range(400)]
    assert all(np.isin(batch, model.bounded.selected).all() for batch in batches)
    rate = np.mean([len(batch) for batch in batches]) / model.bounded.size
    assert rate == pytest.approx(0.3, abs=0.02)


def test_no_step_beyond_the_budget():
    x, y = task()
    model = trainer(steps=2, q=1.0)
    model.fit(x, y)
    with pytest.raises(BudgetError, match="all 2 steps"):
        model.step(x, y)


def test_the_report_is_within_the_budget_and_of_the_true_degrees():
    report = trainer().report
    assert report.epsilon <= 3.0
    assert report.k == int(bound(GRAPH, 2, order="user-degree").user_degrees.max())


def test_a_run_that_stops_and_resumes_equals_one_that_does_not(tmp_path):
    x, y = task()
    whole, _ = trainer().fit(x, y)
    first = trainer()

    def stop(step):
        if step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first.fit(x, y, folder=tmp_path, every=5, progress=stop)
    with pytest.raises(InputError, match="another set, noise or budget"):
        trainer(steps=24).fit(x, y, folder=tmp_path)
    again = trainer(seed=99)  # the checkpoint's seed counts: no second noise for a step
    resumed, _ = again.fit(x, y, folder=tmp_path, every=5, evaluate=lambda params: 0.5)
    assert again.seed == 7
    assert np.array_equal(np.asarray(resumed.params), np.asarray(whole.params))
    assert [row["step"] for row in read_jsonl(tmp_path / "history.jsonl")] == [5, 10, 12]


def test_weights_against_bias_stay_within_their_sensitivity():
    model = trainer(weights="ht", w_max=2.0)
    assert model.weights.max() <= 2.0
    assert model.report.w_max == 2.0
    # They are of the set's own distribution: drawn with random ties, under the key.
    assert model.bounded.selected.tolist() == bound(GRAPH, 2, order="user-degree", key=0).selected.tolist()
    p = inclusion_probabilities(GRAPH, 2, order="user-degree", runs=200)
    assert np.allclose(model.weights, np.minimum(p.mean() / np.maximum(p, 1 / 400), 2.0), rtol=0.02)


def test_the_set_does_not_depend_on_contents_even_when_they_are_poison():
    x, y = task()
    runs = []
    for contents in (x, np.full_like(x, np.nan), x[::-1].copy()):
        model = trainer(steps=3, q=1.0)
        model.fit(contents, y)
        runs.append((model.bounded.selected.tolist(), model.report, [model.batch(t).tolist() for t in range(3)]))
        assert np.isfinite(np.asarray(model.params)).all()
    assert runs[0] == runs[1] == runs[2]


def test_what_a_set_says_of_itself_is_not_trusted():
    loose = bound(GRAPH, 5)
    lying = dataclasses.replace(loose, k=1, user_degrees=np.minimum(loose.user_degrees, 1))
    assert trainer(bounded=lying, q=1.0).report.k == int(loose.user_degrees.max()) > 1


def test_it_learns():
    graph = generators.clustered(3000, 1)
    made = generators.logistic_task(graph, 4, norm=4.0, extra=2000, seed=2)
    model = DPSGD(logistic_loss, np.zeros(4, np.float32), graph, 1, 4.0, DELTA, steps=40, q=0.1, seed=0)
    fitted, _ = model.fit(made.x[:3000], made.y[:3000])
    cosine = float(np.dot(fitted.params, made.theta) / np.linalg.norm(fitted.params) / 4.0)
    assert cosine > 0.9
    assert fitted.loss(made.x[3000:], made.y[3000:]) < np.log(2)


def test_bad_arguments_are_refused():
    with pytest.raises(InputError, match="rows of x"):
        trainer().fit(np.zeros((3, 5), np.float32), np.zeros(3, np.float32))
    with pytest.raises(InputError, match="clip norm"):
        trainer(clip=0.0)
    with pytest.raises(InputError, match="weights"):
        trainer(weights="best")


def test_opacus_gets_the_same_bounded_batches_and_clips_alike():
    torch = pytest.importorskip("torch")
    kept = bound(GRAPH, 2)
    batches = list(opacus_sampler(kept, 0.2, 50, seed=1))
    assert len(batches) == 50
    assert set(itertools.chain(*batches)) <= set(kept.selected.tolist())
    assert np.mean([len(batch) for batch in batches]) == pytest.approx(0.2 * kept.size, rel=0.15)

    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus.grad_sample import GradSampleModule
        from opacus.optimizers import DPOptimizer

        x, y = task()
        batch = np.array(batches[0])
        layer = torch.nn.Linear(5, 1, bias=False)
        torch.nn.init.zeros_(layer.weight)
        wrapped = GradSampleModule(layer)
        optimizer = DPOptimizer(
            torch.optim.SGD(wrapped.parameters(), lr=1.0), noise_multiplier=0.0, max_grad_norm=0.5,
            expected_batch_size=1, loss_reduction="sum",
        )  # fmt: skip
        logits = wrapped(torch.tensor(x[batch]))[:, 0]
        torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.tensor(y[batch]), reduction="sum").backward()
        optimizer.step()
    ours = clipped_sum(logistic_loss, jnp.zeros(5), x[batch], y[batch], jnp.ones(len(batch)), 0.5)
    assert np.allclose(-layer.weight.detach().numpy()[0], ours, atol=1e-4)


def test_an_empty_example_list_cannot_be_trained_on():
    with pytest.raises(ValueError, match="no example"):
        DPSGD(logistic_loss, np.zeros(2), AttributionGraph.from_lists([]), 1, 1.0, DELTA)
