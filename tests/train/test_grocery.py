"""Known figures on real photos with pretrained weights, where these lie beside the repository."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
PHOTOS = SHARED / "photos" / "grocery.zip"
WEIGHTS = SHARED / "weights" / "mobilenetv2_100_imagenet.safetensors"


@pytest.mark.slow
@pytest.mark.skipif(not PHOTOS.exists() or not WEIGHTS.exists(), reason="no photos and weights beside the repository")
def test_frozen_features_of_grocery_photos_have_the_known_score(timm):
    """Every second of the sorted classes, from the second on: MAP@R 0.265, by a plain loop with timm."""
    from nearfar.data import open_dataset
    from nearfar.deep.networks.embedder import Embedder
    from nearfar.deep.networks.normalize import Normalize
    from nearfar.deep.networks.trunks import find_preprocessing, make_trunk
    from nearfar.evaluation import evaluate
    from nearfar.train.features import embed

    text = "timm:mobilenetv2_100(pad_type='same', mean=0.5, std=0.5, interpolation='bilinear')"
    record = find_preprocessing(text)
    trunk = make_trunk(text, (3, 128, 128), weights=WEIGHTS, preprocessing=record)
    assert trunk.provenance.license == "Apache-2.0"
    embedder = Embedder(trunk, None, scale=Normalize(record.mean, record.std)).to(memory_format=torch.channels_last)
    photos = open_dataset(PHOTOS)
    names = np.sort(photos.classes)[1::2]
    unseen = photos.subset(np.isin(np.asarray(photos.classes)[photos.labels], names))
    rows = embed(embedder, unseen, image_size=128)
    assert evaluate(rows, unseen.labels, ks=(1,), clustering=False).map_at_r == pytest.approx(0.265, abs=0.005)
