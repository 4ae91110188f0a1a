"""Processes that decode do not change what is learned."""

import io

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from nearfar.data.open import open_task
from nearfar.train import train

Image = pytest.importorskip("PIL.Image")


def write_photos(root):
    rng = np.random.default_rng(0)
    for c in range(8):
        (root / f"c{c}").mkdir(parents=True)
        for i in range(4):
            picture = Image.fromarray(rng.integers(0, 255, (20 + i, 24, 3), np.uint8))
            buffer = io.BytesIO()
            picture.save(buffer, "JPEG")
            (root / f"c{c}" / f"{i}.jpg").write_bytes(buffer.getvalue())
    return root


@pytest.mark.slow
def test_any_number_of_workers_gives_the_same_weights(tmp_path, small):
    photos = write_photos(tmp_path / "photos")
    task = open_task(str(photos))
    assert task.train.array is None
    weights = []
    for workers in (0, 2):
        config = small(
            data=str(photos), sampler="m_per_class:2", batch_size=4, image_size=16, augment="mirror", workers=workers
        )
        run = tmp_path / f"run{workers}"
        train(config, run)
        weights.append(load_file(run / "last.safetensors"))
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
