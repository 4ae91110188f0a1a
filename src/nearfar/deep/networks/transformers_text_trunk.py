"""Text models of transformers as trunks, from rows of token numbers to features."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .tokens import NO_TOKEN
from .transformers_trunk import TransformersTrunk


class TransformersTextTrunk(TransformersTrunk):
    """A text model of transformers, or the text tower of a model of images and texts.

    Parameters
    ----------
    inner : Module
        Model of transformers.
    pool : {"tokens", "pooler"}
        How features are computed: "tokens" is the mean over the tokens of a text; "pooler" is the model's own pooler,
        as in the text towers of CLIP and SigLIP.
    """

    def __init__(self, inner: nn.Module, pool: str = "tokens") -> None:
        super().__init__(inner, pool)

    def maps(self, images: Tensor) -> Tensor:
        """Return the last hidden states of the tokens, (n, L, C)."""
        hidden: Tensor = self._outputs(images).last_hidden_state
        return hidden

    def forward(self, images: Tensor) -> Tensor:
        """Return the (n, D) features of rows of token numbers (n, L), padded with -1."""
        outputs = self._outputs(images)
        if self.pool == "pooler":
            pooled: Tensor = outputs.pooler_output
            return pooled
        hidden: Tensor = outputs.last_hidden_state
        weights = _places(images).to(hidden.dtype)[:, :, None]
        return (hidden * weights).sum(1) / weights.sum(1)

    def _outputs(self, rows: Tensor) -> Any:
        config: Any = self.inner.config
        filler = getattr(config, "pad_token_id", None) or 0
        ids = torch.where(rows > NO_TOKEN, rows, filler).long()
        return self.inner(input_ids=ids, attention_mask=_places(rows).long())


def _places(rows: Tensor) -> Tensor:
    """Return the attention mask of rows, (n, L) bool. The first place counts even if the text is empty."""
    return (rows > NO_TOKEN) | (torch.arange(rows.shape[1], device=rows.device) == 0)


def text_half(model: nn.Module) -> TransformersTextTrunk:
    """Return the trunk of a text model, or of the text tower of a model of images and texts."""
    inner = getattr(model, "text_model", model)
    config: Any = inner.config
    pool = "pooler" if str(config.model_type).endswith("_text_model") else "tokens"
    return TransformersTextTrunk(inner, pool)
