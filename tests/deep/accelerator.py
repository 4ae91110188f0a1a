"""An accelerator in name only: tensors that say they are elsewhere, compute on the processor, and refuse what GPUs do.

As a program it runs every loss, some miners, a memory, the scores and a short training run there, and prints what each
came to, as JSON. It has a process of its own, because the device stays registered with PyTorch until the process ends.
"""

import json
import os
import sys
import tempfile
from functools import partial

import torch
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map_only

aten = torch.ops.aten
MOVES = (aten._to_copy.default, aten.copy_.default)
HOST_INDICES = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default)


class Far(torch.Tensor):
    """A tensor on the device; `near` is the same on the processor."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, near):
        how = {"strides": near.stride(), "storage_offset": near.storage_offset(), "dtype": near.dtype}
        self = torch.Tensor._make_wrapper_subclass(cls, near.size(), **how, device="far:0")
        self.near = near
        return self

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return dispatch(func, args, kwargs or {})

    def new_tensor(self, data, dtype=None):  # PyTorch makes it without a dispatch, and so does `tolist`
        return torch.tensor(data, dtype=dtype or self.dtype).to("far")

    def tolist(self):
        return self.cpu().tolist()


class Factories(TorchDispatchMode):
    """Makes new tensors on the device, and moves others there."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return dispatch(func, args, kwargs or {})


def dispatch(func, args, kwargs):
    """Compute on the processor; a tensor that lies there beside one of the device is an error, as on a GPU."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    far = among = any(isinstance(tensor, Far) for tensor in tensors)
    beside = [t for t in tensors if not isinstance(t, Far) and t.device.type == "cpu" and t.dim() > 0]
    if far and beside and func not in (*MOVES, *HOST_INDICES):
        raise RuntimeError(f"{func}: some tensors are on the device, and one of shape {tuple(beside[0].shape)} is not")
    near = dict(kwargs)
    if near.get("device") is not None:
        far, near["device"] = torch.device(near["device"]).type == "far", torch.device("cpu")
    found = func(*tree_map_only(Far, lambda t: t.near, args), **tree_map_only(Far, lambda t: t.near, near))
    if func is aten.copy_.default:
        return args[0]
    if not far:
        return found
    found = tree_map_only(torch.Tensor, Far, found)
    return return_and_correct_aliasing(func, args, kwargs, found) if among else found


def there(tensor):
    return Far(tensor.detach())


def outcome(work):
    """What it came to, or the error's first line."""
    try:
        return work()
    except Exception as error:  # whatever it is, the test shows it
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def term_outcome(make, x, y, pooled):
    """The largest difference of value and gradient between the processor and the device."""
    near, far = make(), make()
    value = near(x, y, pooled=pooled)
    with Factories():
        far_x, far = there(x).requires_grad_(), far.to("far")
        if any(not isinstance(tensor, Far) for tensor in (*far.parameters(), *far.buffers())):
            return "a parameter or a buffer stayed where it was"
        far_value = far(far_x, there(y), pooled=there(pooled))
        (far_gradient,) = torch.autograd.grad(far_value, far_x)
    (gradient,) = torch.autograd.grad(value, x)
    differences = (value - far_value.near).abs(), (gradient - far_gradient.near).abs().max()
    return max(float(difference.detach()) for difference in differences)


def training_outcome():
    from nearfar.train import TrainConfig, evaluate_run, train

    objective = "TripletLoss(miner=BatchHard()) + AMSoftmaxLoss() + 0.1*JRS()"
    settings = {"steps": 2, "batch_size": 16, "image_size": 28, "augment": "affine(degrees=15), erasing", "ema": 0.9}
    with tempfile.TemporaryDirectory() as folder:
        run = train(TrainConfig.of(data="digits", objective=objective, **settings), f"{folder}/run", progress=False)
        device = json.loads((run.folder / "environment.json").read_text())["device"]
        evaluate_run(run.folder)
    return 0.0 if device == "far" else f"trained on {device}"


def augment_outcome():
    from nearfar.data.augment import Augment

    images, parts = torch.rand(6, 3, 12, 10), ", ".join(Augment.PARTS)
    found, expected = (Augment.parse(parts, torch.Generator().manual_seed(0))(x) for x in (there(images), images))
    return float((found.cpu() - expected).abs().max())


def main():
    # not at the top: older versions of PyTorch lack it, and doctests import this file
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    import nearfar
    from nearfar.evaluation import evaluate, verify
    from tests.test_losses import TERMS, batch, make

    _setup_privateuseone_for_python_backend("far")
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    x, y, pooled = batch(24, labels=[0, 0, 1, 1, 1, 2, 3, 4, 4, 5, -1, -1] * 2)
    results = {m.name: outcome(lambda m=m: term_outcome(lambda: make(m), x, y, pooled)) for m in TERMS}
    for miner in (
        "BatchAll",
        "BatchHard",
        "BatchSemiHard",
        "EasyPositive",
        "ExtremeDistance",
        "InformativePairs",
        "EasyHard",
        "PairMargins",
        "WideAngles",
    ):
        mined = partial(nearfar.TripletLoss, miner=getattr(nearfar, miner)())
        results[miner] = outcome(lambda mined=mined: term_outcome(mined, x, y, pooled))
    settings = {"semihard": {"triplets": "semihard"}, "hard": {"triplets": "hard"}}
    for kind, how in (settings | {"soft": {"soft": True}, "swap": {"swap": True}}).items():
        some = partial(nearfar.TripletLoss, **how)
        results[kind] = outcome(lambda some=some: term_outcome(some, x, y, pooled))
    memory = partial(nearfar.CrossBatchMemory, nearfar.ContrastiveLoss(), size=40, embedding_dim=x.shape[1])
    results["CrossBatchMemory"] = outcome(lambda: term_outcome(lambda: memory().double(), x, y, pooled))
    with Factories():
        results["evaluate"] = outcome(lambda: abs(evaluate(there(x), there(y)).map_at_r - evaluate(x, y).map_at_r))
        results["verify"] = outcome(lambda: abs(verify(there(x), there(y)).auc - verify(x, y).auc))
        results["augment"] = outcome(augment_outcome)
        results["train"] = outcome(training_outcome)
    print(json.dumps(results))
    sys.stdout.flush()
    os._exit(0)  # PyTorch cannot end in order with such a device


if __name__ == "__main__":
    main()
