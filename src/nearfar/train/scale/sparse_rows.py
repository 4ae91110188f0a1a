"""Optimizers that update the rows of a sparse gradient only, as partial FC does (An et al., 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


class SparseRows:
    """Lets an optimizer update only the rows of a sparse gradient, and keep its averages for each row.

    A step of the optimizer sees the drawn rows, their gradients and their averages as one small parameter. The other
    rows, and what the optimizer holds of them, stay as they are: they neither move by momentum nor decay.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose state has numbers for each number of a parameter, all 0 at the start.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.swapped: list[tuple[nn.Parameter, nn.Parameter]] = []
        optimizer.register_step_pre_hook(self._take_rows)
        optimizer.register_step_post_hook(self._put_back)

    @torch.no_grad()
    def _take_rows(self, optimizer: Optimizer, *_: Any) -> None:
        """Replace parameters by the rows of their sparse gradients."""
        for group in optimizer.param_groups:
            for place, parameter in enumerate(group["params"]):
                if parameter.grad is None or not parameter.grad.is_sparse:
                    continue
                index = parameter.grad._indices()[0]
                rows = nn.Parameter(parameter[index])
                rows.grad = parameter.grad._values()
                whole = optimizer.state.get(parameter, {})
                if whole:
                    optimizer.state[rows] = {name: _part(value, parameter, index) for name, value in whole.items()}
                group["params"][place] = rows
                self.swapped.append((parameter, rows))

    @torch.no_grad()
    def _put_back(self, optimizer: Optimizer, *_: Any) -> None:
        """Write rows and their averages back into the parameters and the whole averages."""
        whole = {id(rows): parameter for parameter, rows in self.swapped}
        for group in optimizer.param_groups:
            group["params"] = [whole.get(id(parameter), parameter) for parameter in group["params"]]
        for parameter, rows in self.swapped:
            assert parameter.grad is not None
            index = parameter.grad._indices()[0]
            parameter[index] = rows
            _put_state(optimizer.state[parameter], optimizer.state.pop(rows, {}), parameter, rows, index)
        self.swapped = []


def _part(value: Any, parameter: Tensor, index: Tensor) -> Any:
    """Return the rows of an average; a value of the whole parameter, such as a count, is returned unchanged."""
    if isinstance(value, Tensor) and value.shape == parameter.shape:
        return value[index]
    return value


def _put_state(
    state: dict[str, Any], of_rows: Mapping[str, Any], parameter: Tensor, rows: Tensor, index: Tensor
) -> None:
    for name, value in of_rows.items():
        if not isinstance(value, Tensor) or value.shape != rows.shape:
            state[name] = value
            continue
        if name not in state:
            state[name] = torch.zeros_like(parameter, dtype=value.dtype)
        state[name][index] = value
