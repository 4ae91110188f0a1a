"""Small models of transformers with a tokenizer of few words, made on the spot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
PIXELS = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2}


def text_settings(words: Sequence[str]) -> dict[str, Any]:
    """The settings of a text model of these words, the first of which is padding."""
    return SMALL | {"vocab_size": len(words), "max_position_embeddings": 6, "pad_token_id": 0}


def write_tokenizer(folder: Path, words: Sequence[str]) -> None:
    """Write a tokenizer that knows whole words."""
    tokenizers = pytest.importorskip("tokenizers")
    numbers = {word: number for number, word in enumerate(words)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(folder / "tokenizer.json"))


def write_bert(transformers: Any, folder: Path, words: Sequence[str]) -> Path:
    """Write a text model, and return its folder."""
    import torch

    torch.manual_seed(0)
    config = transformers.BertConfig(**text_settings(words), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    write_tokenizer(folder, words)
    return folder


def write_clip(transformers: Any, folder: Path, words: Sequence[str]) -> Path:
    """Write a model of images and texts, and return its folder."""
    import torch

    torch.manual_seed(0)
    text = text_settings(words) | {"eos_token_id": words.index("[EOS]"), "bos_token_id": words.index("[BOS]")}
    vision = SMALL | {"image_size": 16, "patch_size": 8}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=6)
    transformers.CLIPModel(config).save_pretrained(folder)
    size = {"size": {"shortest_edge": 16}, "crop_size": {"height": 16, "width": 16}, "do_center_crop": True}
    (folder / "preprocessor_config.json").write_text(json.dumps(size | PIXELS))
    write_tokenizer(folder, words)
    return folder
