"""What settings that are not given become for photographs, and for everything else."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")

from PIL import PngImagePlugin
from safetensors.torch import save_file

from nearfar.data import Task, decode, open_dataset
from nearfar.deep.networks.preprocessing import Preprocessing
from nearfar.train import DeepMetric, TrainConfig, TrainError, defaults, recipe, train
from nearfar.train import setup as building
from nearfar.train import task as task_module
from nearfar.train.defaults import chosen_trunk
from nearfar.train.rungs.by_default import default_ladder
from nearfar.train.settle import settle
from nearfar.train.task import _sizes_of_trunk
from nearfar.train.text_trunks import TEXT_TRUNKS

SHORT = {"steps": 2, "batch_size": 8, "device": "cpu", "ks": (1,), "validation": 0.0}


def photos_of(folder, size, mode="RGB", classes="abcd"):
    rng = np.random.default_rng(0)
    for name in classes:
        (folder / name).mkdir(parents=True)
        for i in range(4):
            pixels = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
            Image.fromarray(pixels).convert(mode).save(folder / name / f"{i}.png")
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return photos_of(tmp_path_factory.mktemp("defaults") / "photos", (64, 72))


@pytest.fixture
def weights(timm, tmp_path):
    torch.manual_seed(0)
    save_file(timm.create_model("test_resnet", num_classes=0).state_dict(), tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"


def settled(asked: TrainConfig) -> tuple[Task, TrainConfig]:
    """Return the data and the settings of the plan for a config."""
    plan = settle(asked)
    return plan.task, plan.config


def test_the_documentation_lists_the_trunks_to_choose_from():
    """In their order, each in a row of one table, with those of texts."""
    page = (Path(__file__).parents[2] / "docs" / "pretrained.md").read_text()
    rows = re.findall(r"^\| .*? ?\| `(\S+)` \| (.*) \|$", page[page.index("(`--trunk auto`)") :], re.MULTILINE)
    listed = [name for name, _ in rows][: len(defaults.PHOTO_TRUNKS) + len(TEXT_TRUNKS) + 2]
    assert listed == [*(f"timm:{name}" for name in defaults.PHOTO_TRUNKS), *TEXT_TRUNKS, "conv4", "mlp"]


def test_the_trunks_to_choose_from_are_models_with_weights(timm):
    for name in defaults.PHOTO_TRUNKS:
        assert timm.get_pretrained_cfg(name).hf_hub_id


@pytest.fixture(autouse=True)
def _nothing_cached(monkeypatch):
    monkeypatch.setattr(defaults, "cached_model", lambda: None)


def test_settings_of_photographs_with_a_pretrained_trunk_are_those_of_the_recipe(photos, weights) -> None:
    asked = TrainConfig.of(data=str(photos), trunk="timm:test_resnet", pretrained=weights, lr=0.5, **SHORT)
    task, config = settled(asked)
    expected = recipe("photos/finetune")
    assert config.lr == 0.5  # what is given wins
    assert config.batch_size == 8
    assert config.steps == 2
    for name in expected.keys() - {"lr", "batch_size", "epochs", "precision"}:
        assert getattr(config, name) == expected[name], name
    assert defaults.defaults_note(asked, config, task) == (
        "Settings that were not given have the values of the recipe photos/finetune, because the trunk is pretrained; "
        "--recipe names other settings, --set changes one."
    )
    _, again = settled(config)
    assert again == config
    assert settled(asked.replace(lora=4))[1].lr_embedding == recipe("photos/lora")["lr_embedding"]
    assert settled(asked.replace(freeze_trunk=True))[1].augment == ""
    task, whole = settled(asked.replace(**expected))
    assert defaults.defaults_note(asked.replace(**expected), whole, task) == ""


def test_other_data_and_trunks_keep_the_general_settings(photos, weights) -> None:
    plain = TrainConfig.of(data=str(photos), **SHORT)
    for asked in (plain, plain.replace(trunk="timm:test_resnet"), plain.replace(data="digits")):
        task, config = settled(asked)
        assert config.objective == "SupConLoss()"
        assert (config.lr, config.embedding_dim, config.layer_decay) == (1e-3, 64, None)
        assert not defaults.defaults_note(asked, config, task).startswith("Settings")


@pytest.mark.parametrize("mode", ["RGB", "L", "1"])
@pytest.mark.parametrize("size", [(64, 72), (28, 28), (20, 90)])
def test_a_pretrained_trunk_has_its_recipe_and_its_ladder_whatever_the_images(
    mode, size, weights, tmp_path, monkeypatch
) -> None:
    folder = photos_of(tmp_path / "images", size, mode, classes="abcdefgh")
    asked = TrainConfig.of(
        data=str(folder), trunk="timm:test_resnet", pretrained=weights, test_classes=("a", "b"), **SHORT
    )
    task, config = settled(asked)
    assert (config.objective, config.lr) == (recipe("photos/finetune")["objective"], recipe("photos/finetune")["lr"])
    assert "recipe photos/finetune" in defaults.defaults_note(asked, config, task)
    assert default_ladder(asked).runs
    named = asked.replace(trunk="auto", pretrained=True)
    assert chosen_trunk(named, task)["trunk"] == f"timm:{defaults.PHOTO_TRUNKS[0]}"


@pytest.mark.parametrize(
    ("sizes", "mode", "why"),
    [
        ([(64, 80)] * 4, "RGB", ""),
        ([(64, 80)] * 4, "L", ""),
        ([*[(64, 80)] * 19, (90, 40)], "L", ""),
        ([*[(64, 80)] * 8, (90, 40), (40, 90)], "RGB", "20% of them have a side below 64 pixels"),
        ([(90, 40)] * 4, "RGB", "all have a side below 64 pixels"),
        ([(64, 80)] * 4, "1", "they are black and white, without shades"),
    ],
)
def test_photographs_are_told_from_other_images_by_nine_of_ten_headers(sizes, mode, why, tmp_path) -> None:
    rng = np.random.default_rng(0)
    for number, size in enumerate(sizes):
        folder = tmp_path / str(number % 2)
        folder.mkdir(exist_ok=True)
        pixels = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
        Image.fromarray(pixels).convert(mode).save(folder / f"{number}.png")
    looks = defaults.looks_of(open_dataset(tmp_path))
    assert looks.photographs is not bool(why)
    if why:
        assert looks.why == why


def test_images_that_are_not_taken_for_photographs_say_how_to_change_that(tmp_path) -> None:
    folder = photos_of(tmp_path / "small", (28, 28))
    asked = TrainConfig.of(data=str(folder), **SHORT)
    task, config = settled(asked)
    assert defaults.defaults_note(asked, config, task) == (
        "The images are taken for characters or drawings, because all have a side below 64 pixels, and train the "
        "small network conv4 from random weights; for photographs, --trunk timm:mobilenetv1_100 --pretrained true (or "
        "a local file) is much better."
    )
    assert defaults.defaults_note(asked.replace(trunk="conv4"), config, task) == ""


def test_sizes_of_a_thousand_images_are_read_from_headers(tmp_path, monkeypatch) -> None:
    folder = photos_of(tmp_path / "images", (64, 72))
    monkeypatch.setattr(decode, "IMAGE_MEMORY_BYTES", 0)
    dataset = open_dataset(folder)
    monkeypatch.setattr(PngImagePlugin.PngImageFile, "load", lambda image: pytest.fail("an image is decoded"))
    assert task_module.sampled_sizes(dataset) == [(64, 72)] * 16
    monkeypatch.setattr(task_module, "SIZE_SAMPLE", 5)
    assert len(task_module.sampled_sizes(dataset)) == 5


def test_rows_have_no_pretrained_network_by_default(tmp_path) -> None:
    np.savez(tmp_path / "rows.npz", X=np.zeros((8, 3)), y=np.arange(8) % 4)
    with pytest.raises(TrainError, match=r"pretrained: there is no pretrained network for any rows; .* name a trunk"):
        settled(TrainConfig.of(data=str(tmp_path / "rows.npz"), pretrained=True, **SHORT))


def test_a_config_that_is_read_keeps_all_it_was_written_with(photos, weights, tmp_path) -> None:
    """Settings that the file of a run lacks have their defaults, and not the values of a recipe."""
    asked = TrainConfig.of(
        data=str(photos), trunk="timm:test_resnet", pretrained=weights, objective="TripletLoss()", **SHORT
    )
    fields = asked.replace(freeze_bn=False).to_dict()
    del fields["layer_decay"]
    del fields["embedding_start"]
    (tmp_path / "config.json").write_text(json.dumps(fields))
    _, config = settled(TrainConfig.from_json(tmp_path / "config.json"))
    assert (config.objective, config.layer_decay, config.embedding_start) == ("TripletLoss()", None, "random")


def test_auto_takes_a_pretrained_trunk_where_weights_are_there(timm, photos, tmp_path, monkeypatch) -> None:
    asked = TrainConfig.of(data=str(photos), **SHORT)
    task, config = settled(asked)
    assert config.trunk == "conv4"
    assert "pip install 'nearfar[vision]'" in defaults.defaults_note(asked, config, task)
    assert chosen_trunk(asked.replace(pretrained=True), task)["trunk"] == f"timm:{defaults.PHOTO_TRUNKS[0]}"
    monkeypatch.setattr(defaults, "cached_model", lambda: "test_resnet")
    task, config = settled(asked.replace(image_size=64))
    assert (config.trunk, config.pretrained) == ("timm:test_resnet", True)
    assert config.preprocessing is not None
    assert task.train.read(0).shape == (64, 72, 3)  # as the trunk's own pipeline takes them
    assert chosen_trunk(asked.replace(pretrained=False), task)["trunk"] == "conv4"  # random weights were asked for
    assert settled(TrainConfig.of(data="digits", **SHORT))[1].trunk == "conv4"
    folder = tmp_path / "rows.npz"
    np.savez(folder, X=np.zeros((8, 3)), y=np.arange(8) % 4)
    assert settled(TrainConfig.of(data=str(folder), **SHORT))[1].trunk == "mlp"


def test_weights_are_looked_for_in_the_cache_of_the_hub(timm, monkeypatch) -> None:
    monkeypatch.undo()  # of the fixture above
    import huggingface_hub

    found = {}
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda repository, file: found.get(repository))
    assert defaults.cached_model() is None
    name = defaults.PHOTO_TRUNKS[1]
    found[timm.get_pretrained_cfg(name).hf_hub_id] = "model.safetensors"
    assert defaults.cached_model() == name


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([(64, 80), (90, 70)], (160, 160)),  # small photos keep their borders
        ([(64, 64)], (160, 160)),
        ([(64, 80), (200, 300)], (160, 182)),  # the crop of the trunk's own pipeline
        ([(300, 300)], (160, 182)),
        ([(160, 160)], (None, None)),
    ],
)
def test_images_get_the_size_that_the_network_was_made_for(sizes, expected) -> None:
    record = Preprocessing(mean=(0.5,) * 3, std=(0.5,) * 3, image_size=(160, 160), resize=182)
    found = _sizes_of_trunk(record, [set(sizes)], "timm:test_resnet(mean=0.5)")
    assert (found.get("image_size"), found.get("resize")) == expected


def test_small_photos_are_cropped_where_the_trunk_says_so() -> None:
    record = Preprocessing(mean=(0.5,) * 3, std=(0.5,) * 3, image_size=(160, 160), resize=200)
    found = _sizes_of_trunk(record, [{(64, 80)}], "timm:test_resnet(crop=0.8)")
    assert found == {"image_size": 160, "resize": 200}


def test_the_first_line_tells_the_settings(photos, weights, tmp_path, capsys) -> None:
    asked = TrainConfig.of(data=str(photos), trunk="timm:test_resnet", pretrained=weights, **SHORT)
    run = train(asked, tmp_path / "run")
    assert (
        "Settings that were not given have the values of the recipe photos/finetune, because" in capsys.readouterr().err
    )
    assert run.config.objective == recipe("photos/finetune")["objective"]
    train(asked.replace(steps=None, epochs=1), tmp_path / "two", progress=False)
    with pytest.raises(TrainError, match="resumed with other settings"):
        train(asked.replace(steps=None, epochs=1, lr=0.3), tmp_path / "two", resume=True, progress=False)


def test_an_estimator_takes_the_same_defaults(photos, weights) -> None:
    paths = sorted(str(path) for path in photos.glob("*/*.png"))
    labels = [path.split("/")[-2] for path in paths]
    settings = {"pretrained": str(weights), "device": "cpu"}
    metric = DeepMetric(trunk="timm:test_resnet", epochs=1, batch_size=8, settings=settings, random_state=0)
    metric.fit(np.array(paths, dtype=object), labels)
    assert metric.config_.objective == recipe("photos/finetune")["objective"]
    assert metric.config_.embedding_dim == recipe("photos/finetune")["embedding_dim"]
    assert building.build(metric.config_.replace(data=str(photos), pretrained=False)).config.embedding_dim == 512
