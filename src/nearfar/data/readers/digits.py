"""The 1,797 handwritten digits that scikit-learn ships: 0 to 4 seen, 5 to 9 unseen."""

from __future__ import annotations

import numpy as np

from ..dataset import ArrayReader, Dataset, Source
from ..decode import fit


def read_digits(*, image_size: int | None = None) -> Source:
    """Read the digits as gray images.

    Parameters
    ----------
    image_size : int, optional
        Side in pixels, to which images are enlarged with a bilinear filter. By default, the original 8.

    Returns
    -------
    Source
        1,797 images in 10 classes; 0 to 4 are training classes, 5 to 9 test classes.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    array = np.round(digits.images * (255 / 16)).astype(np.uint8)[..., None]  # (1797, 8, 8, 1)
    if image_size not in (None, 8):
        array = np.stack([fit(image, image_size) for image in array])
    labels = digits.target.astype(np.int64)
    items = Dataset(
        name="digits",
        labels=labels,
        classes=tuple("0123456789"),
        kind="image",
        read=ArrayReader(array),
        names=tuple(f"digit {label}, image {i}" for i, label in enumerate(labels)),
        array=array,
    )
    roles = np.where(labels < 5, "train", "test").astype(np.str_)
    return Source(items, roles, "digits 0 to 4 seen in training, 5 to 9 unseen")
