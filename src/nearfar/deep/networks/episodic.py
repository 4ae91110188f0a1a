"""Learning from episodes, on the support and then on the query (Finn, Abbeel & Levine, 2017).

    theta' = theta - a grad L_S(theta)                        what the support teaches, perhaps in several steps
    maml:        theta <- theta - b grad_theta L_Q(theta'(theta))
    fomaml:      theta <- theta - b grad L_Q(theta')          the gradient at theta', taken for that at theta
    sequential:  theta <- theta' - b grad L_Q(theta')         the update on the support is kept

L_S, L_Q: a metric loss on the labels of the episode's support and query; b: the optimizer's learning rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from ...settings import Checked, check_options
from ..episodes import Episode
from ..objective.terms import Term

MODES = ("maml", "fomaml", "sequential")
Weights = dict[str, Tensor]
Loss = Callable[..., Tensor]


def value_of(net: nn.Module, weights: Weights, loss: Loss, part: tuple[Tensor, Tensor, Tensor | None]) -> Tensor:
    """Return the loss of the support or the query with these weights; terms also get the pooled features and ids."""
    items, labels, ids = part
    output = functional_call(net, weights, (items,))
    if isinstance(loss, Term):
        extras = {"pooled": getattr(output, "pooled", None), "ids": ids}
    else:
        extras = {}
    return loss(getattr(output, "embedding", output), labels, **extras)


def adapted(
    net: nn.Module, weights: Weights, loss: Loss, episode: Episode, lr: float, steps: int, second: bool
) -> Weights:
    """Return theta' after gradient steps on the support; `second` keeps its dependence on theta, for second order."""
    for _ in range(steps):
        # theta' = theta - lr dL_support / dtheta
        value = value_of(net, weights, loss, episode.of_support)
        grads = torch.autograd.grad(value, list(weights.values()), create_graph=second, allow_unused=True)
        pairs = zip(weights.items(), grads, strict=True)
        weights = {name: w if g is None else w - lr * g for (name, w), g in pairs}
        if not second:  # of each step, or the graph of all of them would be held
            weights = {name: w.detach().requires_grad_() for name, w in weights.items()}
    return weights


class EpisodicTrainer(Checked):
    """Train a network on episodes.

    Parameters
    ----------
    net : Module
        Network that maps items to (n, d) embeddings, or to a tuple with the field `embedding`, and `pooled` for terms
        that use it.
    loss : callable
        Loss ``loss(embeddings, labels)`` on the labels 0 to N - 1 of an episode; any loss of the library.
    optimizer : Optimizer
        Optimizer of the network's parameters, which makes the second update. It may also hold parameters of the loss,
        which the query trains in every mode.
    mode : {"maml", "fomaml", "sequential"}
        "maml" (second order), "fomaml" (first order) or "sequential" (the literal text of the survey, Ghojogh et al.,
        2022).
    inner_lr : float
        Learning rate a of the steps on the support, at least 0.
    inner_steps : int
        Number of steps on the support, at least 1.
    norm : {"batch", "frozen"}
        "batch": batch normalization uses the statistics of the support and of the queries that it is given
        (transductive), and updates its running statistics with both. "frozen": it uses its running statistics and
        leaves them unchanged.

    Raises
    ------
    ValueError
        If `inner_lr` is negative, or `inner_steps` is below 1.

    Notes
    -----
    A support of one sample per class has no similar pair. With a pair loss, it changes the weights only through
    dissimilar pairs, as in the norm penalty of `NPairLoss` or in `ContrastiveLoss`, so use a `k_shot` of at least 2 for
    most losses.

    The gradient of "maml" is exact for losses whose gradients can be differentiated, which includes all row losses.
    What a method holds constant in its gradient remains constant: the weights of `CircleLoss`, the bandwidths of `JRS`,
    `JMMD` and `JIntra`. `SiameseHead`, and ``kernel="laplace"`` of the latter three, cannot be differentiated twice:
    use "fomaml" with them.

    Examples
    --------
    >>> from nearfar.deep.losses.triplet import TripletLoss
    >>> net = nn.Linear(8, 4)
    >>> trainer = EpisodicTrainer(net, TripletLoss(), torch.optim.SGD(net.parameters(), lr=0.1), mode="maml")
    >>> labels = torch.arange(3).repeat_interleave(2)
    >>> value = trainer.step([Episode(torch.rand(6, 8), labels, torch.rand(6, 8), labels)])
    """

    def __init__(
        self,
        net: nn.Module,
        loss: Loss,
        optimizer: torch.optim.Optimizer,
        *,
        mode: str = "maml",
        inner_lr: float = 0.01,
        inner_steps: int = 1,
        norm: str = "batch",
    ) -> None:
        check_options(self, MODES, mode=mode)
        check_options(self, ("batch", "frozen"), norm=norm)
        if inner_lr < 0 or inner_steps < 1:
            raise ValueError(
                f"EpisodicTrainer: expected inner_lr >= 0 and inner_steps >= 1, got {inner_lr} and {inner_steps}"
            )
        self.net = net
        self.loss = loss
        self.optimizer = optimizer
        self.mode = mode
        self.inner_lr = inner_lr
        self.inner_steps = inner_steps
        self.norm = norm

    def adapt(self, episode: Episode) -> Weights:
        """Return the weights after the steps on the support of an episode, by their names."""
        weights: Weights = {name: w for name, w in self.net.named_parameters() if w.requires_grad}
        return adapted(self.net, weights, self.loss, episode, self.inner_lr, self.inner_steps, self.mode == "maml")

    def backward(self, episode: Episode, share: float = 1.0) -> Tensor:
        """Add `share` times the gradient of an episode to the `grad` of the parameters, and return its query loss."""
        own = [w for w in self.net.parameters() if w.requires_grad]
        # weights of the optimizer outside of the network: those of the loss, such as its proxies
        others = [w for group in self.optimizer.param_groups for w in group["params"]]
        others = [w for w in others if w.requires_grad and all(w is not theta for theta in own)]
        weights = self.adapt(episode)
        value = value_of(self.net, weights, self.loss, episode.of_query)
        # maml differentiates through the adaptation, down to theta; the others take the gradient at theta'
        wanted = own if self.mode == "maml" else list(weights.values())
        grads = torch.autograd.grad(value, [*wanted, *others], allow_unused=True)
        with torch.no_grad():
            # after the gradient, which is that at theta' and is then applied to theta'
            if self.mode == "sequential":
                for w, new in zip(own, weights.values(), strict=True):
                    w.copy_(new)
            for w, g in zip([*own, *others], grads, strict=True):
                if g is not None:
                    w.grad = share * g if w.grad is None else w.grad + share * g
        return value.detach()

    def step(self, episodes: Sequence[Episode]) -> float:
        """Update the network on one episode, or on the mean of several.

        Return the mean query loss before the update.
        """
        if not episodes or (self.mode == "sequential" and len(episodes) > 1):
            if self.mode == "sequential":
                wanted = "one episode"
            else:
                wanted = "at least one episode"
            raise ValueError(f"EpisodicTrainer: episodes: expected {wanted}, got {len(episodes)}")
        self.net.train()
        if self.norm == "frozen":
            _evaluating(self.net.modules())
        self.optimizer.zero_grad()
        values = [self.backward(episode, 1 / len(episodes)) for episode in episodes]
        self.optimizer.step()
        return float(torch.stack(values).mean())


def _evaluating(modules: Iterable[nn.Module]) -> None:
    for module in modules:
        if isinstance(module, _BatchNorm):
            module.eval()
