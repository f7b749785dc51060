"""Time an edit against its peers in the same run: plain generation, AREdit, and the published trust-region solver.

``pytest -o python_files=bench_*.py --benchmark-only -s benchmarks``; targets are the specification's, for two cores.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from bitresedit import METHODS, EditConfig, Editor, SceneVAR, load_sample
from bitresedit.bits import bernoulli_kl, trust_region
from bitresedit.rollout import generate

ROUNDS = {"rounds": 15, "warmup_rounds": 3, "iterations": 1}


@pytest.fixture(scope="module")
def backbone() -> SceneVAR:
    return SceneVAR.load_default()


@pytest.fixture(scope="module")
def sample():
    return load_sample()


def edit(backbone, sample, method="bitresedit"):
    return Editor(backbone, method=METHODS[method]).edit(sample.image, sample.source, sample.target, sample.mask)


@pytest.mark.parametrize("role", ["peer", "ours"])
@pytest.mark.benchmark(group="one edit against plain guided generation of the same picture")
def test_edit_against_generation(benchmark, backbone, sample, role):
    if role == "peer":
        benchmark.extra_info.update(role="peer", label="plain generation, two rows")
        config = EditConfig(**backbone.default_config)
        benchmark.pedantic(lambda: backbone.decode(generate(backbone, [sample.target], config, [42])), **ROUNDS)
        return
    benchmark.extra_info.update(
        role="ours", label="BitResEdit, three rows, with encoding", target="ratio <= 1.6, <= 1.5 s"
    )
    benchmark.pedantic(lambda: edit(backbone, sample), **ROUNDS)
    assert benchmark.stats.stats.median <= 1.5


@pytest.mark.parametrize("role", ["peer", "ours"])
@pytest.mark.benchmark(group="one edit against AREdit with the same mask")
def test_edit_against_aredit(benchmark, backbone, sample, role):
    benchmark.extra_info.update(role=role, label={"peer": "AREdit, two passes", "ours": "BitResEdit, one pass"}[role])
    if role == "ours":
        benchmark.extra_info["target"] = "ratio <= 0.9"
    method = {"peer": "aredit_mask", "ours": "bitresedit"}[role]
    benchmark.pedantic(lambda: edit(backbone, sample, method), **ROUNDS)


@pytest.mark.parametrize("bits", [64 * 64, 2521 * 32], ids=["one 8x8 scale", "all scales of Infinity at 512 px"])
@pytest.mark.parametrize("solver", ["bisect4", "exact"])
def test_trust_region(benchmark, solver, bits):
    generator = torch.Generator().manual_seed(0)
    d_ref = 3 * torch.randn(bits, generator=generator)
    d_raw = d_ref + 3 * torch.randn(bits, generator=generator)
    benchmark.group = f"trust region on {bits} bits"
    benchmark.extra_info.update(role="peer" if solver == "bisect4" else "ours", label=f"{solver} solver")
    if solver == "exact":
        limited = float((bernoulli_kl(d_raw, d_ref) > 0.3).float().mean())
        benchmark.extra_info.update(target="ratio <= 1.5", limited_share=limited)
    benchmark.pedantic(lambda: trust_region(d_raw, d_ref, solver=solver), rounds=50, warmup_rounds=5, iterations=2)


MEMORY = """
import resource
from bitresedit import Editor, SceneVAR, load_sample
s = load_sample()
Editor(SceneVAR.load_default()).edit(s.image, s.source, s.target, s.mask)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


@pytest.mark.benchmark(group="a whole process: import, load, edit")
def test_memory(benchmark):
    peaks = []

    def process():
        ran = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
        peaks.append(float(ran.stdout))

    benchmark.pedantic(process, rounds=2)
    benchmark.extra_info.update(label="edit in a fresh process", peak_megabytes=max(peaks), target="<= 1024 MB")
    assert max(peaks) <= 1024
