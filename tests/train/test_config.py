"""The record of settings."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from nearfar import TripletLoss
from nearfar.train import TrainConfig, TrainError, train


def test_json_round_trip(tmp_path, small) -> None:
    config = small(test_classes=["3"], lr_proxies=0.5, clip=1.0)
    path = tmp_path / "config.json"
    path.write_text(config.to_json())
    assert TrainConfig.from_json(path) == config


def test_config_that_an_editor_saved_with_a_mark_of_its_encoding(tmp_path, small) -> None:
    config = small(data="Würfel/")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config.to_dict(), ensure_ascii=False), encoding="utf-8-sig")
    assert TrainConfig.from_json(path) == config


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epoch": 3}, "unknown setting 'epoch'; did you mean epochs"),
        ({"learning_rate": 0.1}, "unknown setting 'learning_rate'; use lr$"),
        ({"cls": 1}, "unknown setting 'cls'"),
        ({"epochs": 0}, "epochs: .*>= 1.*got 0"),
        ({"epochs": "many"}, "epochs: Expected `int`, got 'many'"),
        ({"optimizer": "adem"}, "optimizer: Expected one of adam, adamw, sgd, rmsprop, got 'adem'"),
        (
            {"device": "cuda:1"},
            r"device: Expected one of auto, cpu \(auto takes a GPU if there is one; CUDA_VISIBLE_DEVICES chooses among "
            r"several\), got 'cuda:1'",
        ),
        ({"select": "map"}, "select: Expected one of recall_at_1, map_at_r, got 'map'"),
        ({"seed": 2**63}, "seed: Expected `int` <= 9223372036854775807"),
        ({"validation": 1.0}, "validation: .*got 1.0"),
        ({"ks": [2, 4]}, "ks must contain 1"),
        ({"lr": float("inf")}, "lr: Expected a finite number, got inf"),
        ({"freeze_trunk": True, "augment": "mirror"}, "augment does not work with a frozen trunk"),
        ({"freeze_trunk": True, "freeze_epochs": 1}, "freeze_trunk applies to the whole run"),
        ({"image_size": 224, "resize": 200}, "resize needs an image_size of at most 200, got 224"),
        ({"resize": 200}, "resize needs an image_size"),
        ({"chunk": 256}, "chunk: 256 items at a time are more than a batch of 128"),
        ({"chunk": 8, "episodes": "maml"}, "episodes need the whole batch, so chunk must not be given"),
        ({"test": np.zeros(3)}, "config: test: expected numbers, lists or text .*, got ndarray"),
        ({"objective": TripletLoss()}, r"config: objective: expected .* text \('TripletLoss\(\)'\), got TripletLoss"),
    ],
)
def test_wrong_settings_are_one_line(fields, message) -> None:
    with pytest.raises(TrainError, match=message) as caught:
        TrainConfig.of(data="digits", **fields)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("config", ["digits", {"data": "digits"}])
def test_training_takes_a_config(tmp_path, config) -> None:
    with pytest.raises(TypeError, match=r"config: expected a TrainConfig, as TrainConfig.of\(data=...\) makes, got "):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_paths_and_numbers_of_numpy_are_taken() -> None:
    config = TrainConfig.of(
        data=Path("some/photos"), seed=np.int64(3), lr=np.float32(0.5), ks=np.array([1, 5]).tolist()
    )
    assert (config.data, config.seed, config.lr, config.ks) == ("some/photos", 3, 0.5, (1, 5))
    assert config == TrainConfig.of(**json.loads(config.to_json()))


def test_no_data() -> None:
    with pytest.raises(TrainError, match="missing required field `data`"):
        TrainConfig.of(epochs=3)


def test_digest_names_what_changes_the_result(small) -> None:
    assert small().digest == small(workers=2).digest
    assert small().digest != small(lr=0.1).digest
    assert small().digest != small(patience=3).digest
    assert small().differences(small(lr=0.1, seed=2, workers=1)) == ["seed: 0 / 2", "lr: 0.001 / 0.1"]


class Later(TrainConfig):
    """Settings of a later version, with one more."""

    label_column: str = "classes"


def test_a_new_setting_leaves_the_digests_of_older_runs_alone(small) -> None:
    assert Later.of(**small(lr=0.1).to_dict()).digest == small(lr=0.1).digest
    assert Later.of(data="x", label_column="species").digest != Later.of(data="x").digest


def test_the_digest_tells_every_value_from_the_default() -> None:
    others = {
        "label": "classes",
        "split": "rows",
        "sampler": "none",
        "augment": "random",
        "test": "honest",
        "clip": 1.0,
    }
    others |= {"freeze_bn": False, "ks": [1], "embedding_start": "whitening", "test_classes": ["none"]}
    config = TrainConfig.of(data="x")
    digests = {config.digest, *(config.replace(**{name: value}).digest for name, value in others.items())}
    assert len(digests) == 1 + len(others)
    assert config.digest == TrainConfig.of(data="x", **TrainConfig.defaults()).digest


def test_settings_that_only_look_as_if_they_clashed() -> None:
    assert TrainConfig.of(data="digits", freeze_trunk=True).augment == ""
    assert TrainConfig.of(data="digits", augment="mirror").augment == "mirror"
    assert TrainConfig.of(data="digits", image_size=200, resize=200).resize == 200


def test_unreadable_files(tmp_path) -> None:
    path = tmp_path / "config.json"
    with pytest.raises(TrainError, match=f"^{re.escape(str(tmp_path))}: is not the folder of a run"):
        TrainConfig.from_json(path)
    with pytest.raises(TrainError, match=r"none: no such run$"):
        TrainConfig.from_json(tmp_path / "none" / "config.json")
    path.write_text("{")
    with pytest.raises(TrainError, match="not readable as a config"):
        TrainConfig.from_json(path)
    path.write_text("[1]")
    with pytest.raises(TrainError, match="expected a JSON object"):
        TrainConfig.from_json(path)
