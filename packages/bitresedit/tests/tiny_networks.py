"""Tiny stand-ins for what users download: networks with random weights, in the files of the published ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from bitresedit.backbones.infinity_schedule import GRIDS
from bitresedit.backbones.infinity_vae import InfinityVAE, VAEConfig, published_names
from bitresedit.backbones.infinity_weights import published_transformer_names
from bitresedit.var_transformer import VARConfig, VARTransformer

TINY = VARConfig(depth=4, width=64, heads=4, d=8, text_dim=64, pool_heads=2, null_tokens=12)
TINY_VAE = VAEConfig(d=8, channels=32, multipliers=(1, 1), blocks=1)
WORDS = ["<|startoftext|>", "<|endoftext|>", "a</w>", "red</w>", "blue</w>", "ball</w>", "car</w>"]


def tiny_transformer(d: int = 8, seed: int = 0) -> VARTransformer:
    torch.manual_seed(seed)
    config = VARConfig(**{**TINY.__dict__, "d": d})
    model = VARTransformer(config, [(1, 1)])
    with torch.no_grad():
        # Every parameter away from its initial zero or one, so that a wrong one cannot hide.
        for name, value in model.state_dict().items():
            if not name.endswith("zero_k_bias"):
                value.add_(0.2 * torch.randn_like(value))
    return model.requires_grad_(False).eval()


def tiny_vae(config: VAEConfig = TINY_VAE) -> InfinityVAE:
    torch.manual_seed(1)
    return InfinityVAE(config).requires_grad_(False).eval()


def oracle_positions(ratio: float, h: int, w: int) -> list[tuple[int, int]]:
    """Give the places of a grid's tokens on the grid of the last 1M scale, half to even."""
    rows, columns = GRIDS[ratio][-1]
    return [(round(i * rows / h), round(j * columns / w)) for i in range(h) for j in range(w)]


def save_t5(folder: Path) -> Path:
    """Save a random T5 encoder and a word-piece tokenizer as transformers does."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, T5Config, T5EncoderModel

    words = ["<pad>", "</s>", "<unk>", "a", "red", "blue", "ball", "cube", "on", "sand"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)
    torch.manual_seed(2)
    T5EncoderModel(
        T5Config(vocab_size=len(words), d_model=64, d_kv=16, d_ff=64, num_layers=2, num_heads=4)
    ).save_pretrained(folder)
    return folder


def save_infinity(folder: Path) -> Path:
    """Save a whole tiny Infinity as users keep the published one: transformer, VAE and T5 in one folder."""
    transformer, vae = tiny_transformer(), tiny_vae()
    names = published_transformer_names(transformer, chunks=2)
    state = {names[name]: value for name, value in transformer.state_dict().items()}
    torch.save({"trainer": {"gpt_fsdp": state}}, folder / "infinity_2b_reg.pth")
    names = published_names(vae)
    torch.save(
        {"vae": {names[name]: value for name, value in vae.state_dict().items()}}, folder / "infinity_vae_d32reg.pth"
    )
    (folder / "flan-t5-xl").mkdir()
    save_t5(folder / "flan-t5-xl")
    return folder


def photo(seed: int) -> Image.Image:
    """A smooth colour field with some grain."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8))
    coarse = coarse.resize((512, 512), Image.Resampling.BICUBIC)
    grain = rng.integers(-12, 13, (512, 512, 3))
    return Image.fromarray(np.clip(np.asarray(coarse).astype(int) + grain, 0, 255).astype(np.uint8))


def runs(rows: range, columns: range) -> list[int]:
    return [number for row in rows for number in (512 * row + columns.start, len(columns))]


def save_piebench(folder: Path) -> Path:
    """Three entries as the benchmark ships them: one plain, one of another type, one whose mask is the whole image."""
    entries = {
        "000000000000": {
            "image_path": "0_random_140/000000000000.jpg",
            "original_prompt": "a slanted mountain bicycle on the road",
            "editing_prompt": "a slanted [rusty] mountain bicycle on the road",
            "editing_instruction": "Make the frame of the bike rusty",
            "editing_type_id": "0",
            "blended_word": "bicycle bicycle",
            "mask": runs(range(100, 300), range(50, 250)),
        },
        "111000000000": {
            "image_path": "1_change_object_80/1_artificial/1_animal/111000000000.jpg",
            "original_prompt": "a [red] ball",
            "editing_prompt": "a [blue] ball",
            "editing_instruction": "",
            "editing_type_id": "1",
            "blended_word": "",
            "mask": runs(range(200, 220), range(200, 260)),
        },
        "921000000000": {
            "image_path": "9_change_style_80/921000000000.jpg",
            "original_prompt": "a car",
            "editing_prompt": "a [watercolor of a] car",
            "editing_instruction": "Turn it into a watercolor",
            "editing_type_id": "9",
            "blended_word": "",
            "mask": [0, 512 * 512],
        },
    }
    for i, entry in enumerate(entries.values()):
        path = folder / "annotation_images" / entry["image_path"]
        path.parent.mkdir(parents=True)
        photo(i).save(path, quality=95)
    (folder / "mapping_file.json").write_text(json.dumps(entries))
    return folder


def save_squeezenet(folder: Path) -> Path:
    """Save a random SqueezeNet as torchvision does."""
    from torchvision import models

    torch.manual_seed(0)
    torch.save(models.squeezenet1_1(weights=None).state_dict(), folder / "squeezenet1_1-random.pth")
    return folder


def save_dino(folder: Path) -> Path:
    """Save a random twelve-layer vision transformer as transformers does."""
    import transformers

    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=24, num_hidden_layers=12, num_attention_heads=3, intermediate_size=48, image_size=32, patch_size=8
    )
    transformers.ViTModel(config, add_pooling_layer=False).save_pretrained(folder)
    return folder


def save_clip(folder: Path) -> Path:
    """A random two-layer CLIP with a seven-word vocabulary, in the files of the published ones."""
    import transformers

    torch.manual_seed(9)
    side = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.CLIPConfig(
        text_config=side | {"vocab_size": 32, "max_position_embeddings": 8, "bos_token_id": 0, "eos_token_id": 1},
        vision_config=side | {"image_size": 32, "patch_size": 8},
        projection_dim=16,
    )
    transformers.CLIPModel(config).save_pretrained(folder)
    merges = ["r e", "re d</w>", "b l", "u e</w>", "bl ue</w>", "b a", "l l</w>", "ba ll</w>", "c a", "ca r</w>"]
    pieces = {piece for merge in merges for piece in (*merge.split(), merge.replace(" ", ""))} - set(WORDS)
    vocabulary = {piece: i for i, piece in enumerate([*WORDS, *sorted(pieces)])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    special = {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
    special |= {"pad_token": "<|endoftext|>", "tokenizer_class": "CLIPTokenizer", "model_max_length": 8}
    (folder / "tokenizer_config.json").write_text(json.dumps(special))
    image = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 32}}
    image |= {"crop_size": {"height": 32, "width": 32}, "do_center_crop": True, "do_normalize": True, "do_resize": True}
    image |= {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.25, 0.3], "resample": 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(image))
    return folder
