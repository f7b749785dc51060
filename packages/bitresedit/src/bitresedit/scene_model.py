"""The bundled generative model: a caption encoder and the bitwise transformer, trained together."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from bitresedit.bsq import Schedule
from bitresedit.text import CANONICAL, MAX_WORDS, PAD, decode, encode
from bitresedit.var_transformer import Cond, VARConfig, VARTransformer


def caption_ids(captions: Sequence[str]) -> Int[Tensor, "b words"]:
    """Number the words of captions, padded to the longest that the model reads.

    Parameters
    ----------
    captions
        Words of the vocabulary; an empty caption has only padding.

    Returns
    -------
    Tensor
        int64 ``[B, 24]``.

    Raises
    ------
    VocabularyError
        If a word is unknown or a caption too long.
    """
    rows = [encode(caption) for caption in captions]
    return torch.tensor([[*row, *[PAD] * (MAX_WORDS - len(row))] for row in rows]).reshape(-1, MAX_WORDS)


class CaptionEncoder(nn.Module):
    """Word and place embeddings, then a small pre-norm transformer that binds each adjective to its noun.

    Parameters
    ----------
    width
        Channels of its features.
    layers
        Transformer layers.
    heads
        Attention heads.
    """

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.words = nn.Embedding(len(CANONICAL), width)
        self.places = nn.Parameter(torch.randn(MAX_WORDS, width) * 0.5)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, ids: Int[Tensor, "b words"], mask: Bool[Tensor, "b words"]) -> Float[Tensor, "b words width"]:
        """Encode word numbers; ``mask`` is True for words, and each row needs one."""
        return self.layers(self.words(ids) + self.places, src_key_padding_mask=~mask)


class SceneModel(nn.Module):
    """Predict the bits of a scene's picture from its caption.

    Parameters
    ----------
    config
        Shape of the transformer.
    schedule
        Grids of the tokenizer.
    text_layers
        Layers of the caption encoder.
    """

    def __init__(self, config: VARConfig, schedule: Schedule, text_layers: int) -> None:
        super().__init__()
        self.captions = CaptionEncoder(config.text_dim, text_layers, config.heads)
        self.var = VARTransformer(config, schedule)

    def condition(self, ids: Int[Tensor, "b words"], dropped: Bool[Tensor, " b"] | None = None) -> Cond:
        """Encode captions; rows without words, or ``dropped``, get the learned unconditional text.

        Parameters
        ----------
        ids
            From :func:`caption_ids`.
        dropped
            Rows whose caption is hidden.

        Returns
        -------
        Cond
        """
        mask = ids != PAD
        null = ~mask.any(dim=1)
        if dropped is not None:
            null = null | dropped
        mask = mask | null[:, None]
        features = self.captions(ids, mask)
        features = torch.where(null[:, None, None], self.var.cfg_uncond.to(features.dtype), features)
        words = tuple(tuple(decode([i]) if i != PAD else "" for i in row) for row in ids.tolist())
        return self.var.condition(features, mask, words)

    def forward(
        self, prefixes: Sequence[Tensor], ids: Int[Tensor, "b words"], dropped: Bool[Tensor, " b"] | None = None
    ) -> Float[Tensor, "b tokens d"]:
        """Give the log-odds of all bits at once, under teacher forcing.

        Parameters
        ----------
        prefixes
            For each scale the sum of codes before it, ``[B, d, H, W]``; the first is not read.
        ids, dropped
            As in :meth:`condition`.

        Returns
        -------
        Tensor
            float32 ``[B, L, d]``.
        """
        cond = self.condition(ids, dropped)
        inputs = [self.var.start(cond)]
        inputs += [self.var.embed(total, k).float() for k, total in enumerate(prefixes) if k > 0]
        logits = self.var(torch.cat(inputs, dim=1), cond)
        return logits[..., 1] - logits[..., 0]
