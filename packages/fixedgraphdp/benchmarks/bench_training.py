"""A step of DP-SGD against Opacus, on the same bounded set with the same noise."""

import warnings

import numpy as np
import pytest

from fixedgraphdp import bound, generators
from fixedgraphdp.training import DPSGD, accuracy, logistic_loss, opacus_sampler

N, D, STEPS, Q, K = 8000, 64, 200, 0.05, 8


@pytest.fixture(scope="module")
def task():
    graph = generators.preferential_authors(N, N * 2 // 5, seed=0)
    return graph, generators.logistic_task(graph, D, extra=20_000, seed=0), bound(graph, K, order="user-degree")


def sigma_of(graph, kept):
    return DPSGD(
        logistic_loss, np.zeros(D, np.float32), graph, K, 2.0, 1e-5, q=Q, steps=STEPS, bounded=kept
    ).report.noise_multiplier


@pytest.mark.benchmark(group="DP-SGD, 200 steps of logistic regression")
def test_ours(benchmark, task):
    graph, made, kept = task

    def train():
        model = DPSGD(
            logistic_loss, np.zeros(D, np.float32), graph, K, 2.0, 1e-5, q=Q, steps=STEPS, seed=0, bounded=kept
        )
        return model.fit(made.x[:N], made.y[:N])[0].params

    params = benchmark.pedantic(train, rounds=3, warmup_rounds=1)
    benchmark.extra_info["accuracy"] = accuracy(params, made.x[N:], made.y[N:])


@pytest.mark.benchmark(group="DP-SGD, 200 steps of logistic regression")
@pytest.mark.filterwarnings("ignore")
def test_opacus(benchmark, task):
    import torch
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    graph, made, kept = task
    sigma = sigma_of(graph, kept)
    x, y = torch.tensor(made.x[:N]), torch.tensor(made.y[:N])

    def train():
        layer = torch.nn.Linear(D, 1, bias=False)
        torch.nn.init.zeros_(layer.weight)
        model = GradSampleModule(layer)
        inner = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
        optimizer = DPOptimizer(
            inner, noise_multiplier=sigma, max_grad_norm=1.0, expected_batch_size=round(Q * kept.size),
            generator=torch.Generator().manual_seed(0),
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for batch in opacus_sampler(kept, Q, STEPS):
                optimizer.zero_grad()
                logits = model(x[batch])[:, 0]
                torch.nn.functional.binary_cross_entropy_with_logits(logits, y[batch]).backward()
                optimizer.step()
        return layer.weight.detach().numpy()[0]

    params = benchmark.pedantic(train, rounds=3, warmup_rounds=1)
    benchmark.extra_info.update(role="peer", label="Opacus, same S, same noise")
    benchmark.extra_info["accuracy"] = accuracy(params, made.x[N:], made.y[N:])
