"""A network of several modalities with one shared code, its layers trained one by one, and its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from ..reconstruction.codecs import ACTIVATIONS, corrupt, squared_error, stack

Train = Callable[[list[nn.Parameter], Callable[[Tensor], Tensor], int], Any]


class Modalities(NamedTuple):
    """The modalities of n samples.

    Attributes
    ----------
    rows : sequence of (n, D_v) tensors
        Entries of each modality v, any finite numbers where it is missing.
    present : (n, V) bool tensor
        Whether each sample has each modality.
    """

    rows: list[Tensor]
    present: Tensor

    def take(self, index: Tensor) -> Modalities:
        """Return some of the samples."""
        index = index.to(self.present.device)
        return Modalities([x[index] for x in self.rows], self.present[index])


class MultiCodec(nn.Module):
    """One encoder per modality, a shared code of all modalities, and one decoder per modality.

    Parameters
    ----------
    sizes : sequence of sequence of int
        Sizes of the layers of each modality's encoder, beginning with its number D_v of columns.
    p : int
        Length of the shared code.
    activation : {"relu", "tanh", "sigmoid", "identity"}
        Activation between layers.
    """

    def __init__(self, sizes: Sequence[Sequence[int]], p: int, activation: str) -> None:
        super().__init__()
        act = ACTIVATIONS[activation]
        self.encoders = nn.ModuleList(
            nn.Sequential(*stack(s, activation), *([act()] if len(s) > 1 else [])) for s in sizes
        )
        self.shared = nn.Linear(sum(s[-1] for s in sizes), p)
        self.decoders = nn.ModuleList(stack([p, *s[::-1]], activation) for s in sizes)
        self.defaults = nn.ParameterList(torch.zeros(s[0]) for s in sizes)  # inputs for missing modalities

    def hidden(self, views: Modalities) -> list[Tensor]:
        """Return the output of each encoder for its modality, or for the default where that is missing."""
        filled = [
            torch.where(views.present[:, v, None], x, default)
            for v, (x, default) in enumerate(zip(views.rows, self.defaults, strict=True))
        ]
        return [encoder(x) for encoder, x in zip(self.encoders, filled, strict=True)]

    def encode(self, views: Modalities) -> Tensor:
        """Return the (n, p) shared codes."""
        return self.shared(torch.cat(self.hidden(views), 1))

    def forward(self, views: Modalities) -> tuple[list[Tensor], Tensor]:
        """Return the output of each decoder for the shared codes, and the codes."""
        code = self.encode(views)
        return [decoder(code) for decoder in self.decoders], code


def hide(present: Tensor, share: float, draws: torch.Generator) -> Tensor:
    """Hide a random share of the present modalities, but never all modalities of a sample."""
    kept = present & (torch.rand(present.shape, generator=draws) >= share).to(present.device)
    return torch.where(kept.any(1, keepdim=True), kept, present)


def greedy(codec: MultiCodec, views: Modalities, level: float, draws: torch.Generator, train: Train) -> None:
    """Train every layer as a denoising autoencoder of its input: first those of each modality, then the shared one.

    ``train(parameters, loss of row numbers, n)`` minimizes; `level`: standard deviation of the Gaussian noise.
    """
    # in annotations, a ModuleList holds modules of any kind
    encoders = cast(Iterable[nn.Sequential], codec.encoders)
    decoders = cast(Iterable[nn.Sequential], codec.decoders)
    for v, (encoder, decoder) in enumerate(zip(encoders, decoders, strict=True)):
        x = views.rows[v][views.present[:, v]]
        # layer k of the encoder is trained with layer k of the decoder, which is counted from its end
        ups = _linears(encoder)
        downs = _linears(decoder)[::-1]
        for k, up in enumerate(ups):
            act = encoder[2 * k + 1]
            layer = nn.Sequential(up, act, downs[k], act if k else nn.Identity())
            train(list(layer.parameters()), _denoise(layer, x, level, draws), len(x))
            with torch.no_grad():
                # the next layer sees what this one makes of the clean input
                x = act(up(x))
    with torch.no_grad():
        inner = [h.detach() for h in codec.hidden(views)]
    first = [nn.Sequential(*list(decoder)[:2]) if len(decoder) > 1 else decoder for decoder in decoders]

    def shared(rows: Tensor) -> Tensor:
        rows = rows.to(views.present.device)
        code = codec.shared(_noisy(torch.cat([h[rows] for h in inner], 1), level, draws))
        # a missing modality enters as a default, and its error does not count
        errors = [squared_error(h[rows], down(code)) for h, down in zip(inner, first, strict=True)]
        return (torch.stack(errors, 1) * views.present[rows]).sum(1).mean()

    parameters = [p for module in (codec.shared, *(down[0] for down in first)) for p in module.parameters()]
    train(parameters, shared, len(views.present))


def _linears(stacked: nn.Module) -> list[nn.Module]:
    return [layer for layer in stacked.children() if isinstance(layer, nn.Linear)]


def _noisy(x: Tensor, level: float, draws: torch.Generator) -> Tensor:
    return corrupt(x, "gaussian", level, draws, x, x)


def _denoise(layer: nn.Module, x: Tensor, level: float, draws: torch.Generator) -> Callable[[Tensor], Tensor]:
    def loss(rows: Tensor) -> Tensor:
        batch = x[rows.to(x.device)]
        return squared_error(batch, layer(_noisy(batch, level, draws))).mean()

    return loss
