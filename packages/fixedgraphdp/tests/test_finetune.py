"""Fine-tuning a transformer keeps DP-SGD's promises: literal gradients, clip, noise, resumption, a model folder."""

import json
import warnings

import numpy as np
import pytest

from fixedgraphdp import finetune
from fixedgraphdp.finetune import arxiv_finetuning
from papers_shared.errors import InputError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

WORDS = ["the", "of", "a", "private", "model", "graph", "user", "data", "noise", "proof", "bound", "set"]
N, AUTHORS = 30, 12


@pytest.fixture(scope="module")
def arxiv(tmp_path_factory):
    """A model folder as transformers saves it, with tied embeddings, and metadata of 30 papers."""
    folder = tmp_path_factory.mktemp("arxiv")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({w: i for i, w in enumerate(["<pad>", "<unk>", *WORDS])}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", unk_token="<unk>")
    fast.save_pretrained(folder / "model")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=len(WORDS) + 2,
        n_positions=16,
        n_embd=8,
        n_layer=1,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
        attn_pdrop=0.0,
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(folder / "model")
    rng = np.random.default_rng(0)
    rows = [
        {
            "id": f"2503.{e}",
            "title": " ".join(rng.choice(WORDS, 3)),
            "abstract": " ".join(rng.choice(WORDS, rng.integers(2, 9))),
            "authors_parsed": [[f"Author{a}", "A", ""] for a in {e % AUTHORS, (5 * e + 1) % AUTHORS}],
        }
        for e in range(N)
    ]
    (folder / "arxiv.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def tuning(arxiv, k=2, **options):
    options = {"steps": 6, "q": 0.4, "seed": 1, "microbatch": 4} | options
    return arxiv_finetuning(arxiv / "arxiv.jsonl", arxiv / "model", k, 4.0, 1e-5, **options)[0]


def without_dropout(found):
    for module in found.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return found


def test_the_clipped_sum_is_that_of_one_backward_pass_per_text(arxiv):
    """Tied input and output embeddings and positions included; padding and microbatches change nothing."""
    found = without_dropout(tuning(arxiv, clip=0.3))
    batch = [0, 3, 5, 11, 20, 21]
    fast = found.gradient_sum(batch)
    literal = [torch.zeros_like(p) for p in found.trained]
    for e in batch:
        found.wrapped.zero_grad()
        found.losses([e]).sum().backward()
        gradient = [p.grad.clone() for p in found.trained]
        norm = torch.sqrt(sum(g.square().sum() for g in gradient))
        assert norm > 0.3
        literal = [sums + g * (0.3 / norm) for sums, g in zip(literal, gradient, strict=True)]
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(fast, literal, strict=True))


def test_a_user_moves_the_sum_by_at_most_k_clips(arxiv):
    found = without_dropout(tuning(arxiv, clip=0.3))
    graph = graph_of(arxiv)
    kept = found.plan.bounded.selected.tolist()
    whole = found.gradient_sum(kept)
    for user in np.argsort(-graph.user_degrees(found.plan.bounded.selected))[:3].tolist():
        others = [e for e in kept if user not in graph.users_of(e)]
        moved = torch.sqrt(sum((a - b).square().sum() for a, b in zip(whole, found.gradient_sum(others), strict=True)))
        assert moved <= 2 * 0.3 * (1 + 1e-4)


def test_noise_is_what_was_accounted_for_and_empty_batches_get_it_too(arxiv, monkeypatch):
    found = tuning(arxiv, optimizer=lambda p: torch.optim.SGD(p, lr=1.0))
    monkeypatch.setattr(finetune, "poisson_batch", lambda *_: np.empty(0, np.int64))
    assert found.report.epsilon <= 4.0
    before = [p.detach().clone() for p in found.trained]
    found.step()
    moved = torch.cat([(a - b.detach()).flatten() for a, b in zip(before, found.trained, strict=True)])
    expected = found.report.noise_multiplier * found.report.clip / (0.4 * found.report.size)
    assert float(moved.std()) == pytest.approx(expected, rel=0.1)


def test_a_run_that_stops_and_resumes_equals_one_that_does_not(arxiv, tmp_path):
    whole, _ = tuning(arxiv).fit()
    first = tuning(arxiv)

    def stop(step):
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first.fit(folder=tmp_path, every=2, progress=stop)
    with pytest.raises(InputError, match="another set, noise or budget"):
        tuning(arxiv, k=1).fit(folder=tmp_path)
    resumed, report = tuning(arxiv, seed=99).fit(folder=tmp_path, every=2, evaluate=lambda model: 0.0)
    assert report.k <= 2
    pairs = zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_what_cannot_be_trained_is_refused(arxiv):
    with pytest.raises(InputError, match="cannot load"), warnings.catch_warnings():
        arxiv_finetuning(arxiv / "arxiv.jsonl", arxiv / "nowhere", 2, 4.0, 1e-5)
    found = tuning(arxiv)
    with pytest.raises(InputError, match="texts"):
        type(found)(found.model, found.tokenizer, ["one"], graph_of(arxiv), 2, 4.0, 1e-5)
    for parameter in found.model.parameters():
        parameter.requires_grad = False
    with pytest.raises(InputError, match="no parameter"):
        type(found)(found.model, found.tokenizer, found.texts, graph_of(arxiv), 2, 4.0, 1e-5)


def graph_of(arxiv):
    from fixedgraphdp import AttributionGraph

    return AttributionGraph.from_arxiv_jsonl(arxiv / "arxiv.jsonl")
