"""Models of timm and transformers: their features equal those of their own pipelines, and their weights are named."""

import json
import re
import sys
import zipfile
from types import ModuleType

import numpy as np
import pytest

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")

from safetensors.torch import save_file

from nearfar.data.decode import Resizing, fit
from nearfar.deep.networks.embedder import Embedder
from nearfar.deep.networks.normalize import Normalize
from nearfar.deep.networks.preprocessing import Preprocessing, of_factory, of_processor
from nearfar.deep.networks.trunks import find_preprocessing, make_trunk
from nearfar.deep.networks.weights import TrunkError, load_weights

VIT = "timm:test_vit"
CNN = "timm:test_resnet"


def photos(n: int = 3) -> list[np.ndarray]:
    """Smooth pictures of several shapes, as decoded ones are."""
    rng = np.random.default_rng(0)
    shapes = [(230, 307), (301, 200), (97, 131)][:n]
    small = [rng.integers(0, 256, (9, 12, 3), dtype=np.uint8) for _ in shapes]
    return [
        np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC))
        for pixels, (height, width) in zip(small, shapes, strict=True)
    ]


def features_of(text: str, images: list[np.ndarray], **how) -> tuple[torch.Tensor, Embedder]:
    """What the library gives for decoded images."""
    record = find_preprocessing(text)
    size = record.image_size[0]
    torch.manual_seed(0)
    trunk = make_trunk(text, (3, size, size), preprocessing=record, **how)
    embedder = Embedder(trunk, None, scale=Normalize(record.mean, record.std)).eval()
    resizing = Resizing(record.interpolation, record.squash, record.round_down)
    batch = np.stack([fit(image, record.resize, size, resizing) for image in images])
    with torch.no_grad():
        return embedder.features(torch.from_numpy(batch).permute(0, 3, 1, 2) / 255), embedder


@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_efficientnet", "test_vit2"])
def test_features_are_those_of_timms_own_pipeline(timm, name):
    images = photos()
    found, embedder = features_of(f"timm:{name}", images)
    model = embedder.trunk.inner
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model), is_training=False)
    with torch.no_grad():
        expected = model(torch.stack([transform(Image.fromarray(image)) for image in images]))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert expected.std() > 1e-3


@pytest.mark.parametrize("size", [(230, 307), (301, 200), (97, 131), (128, 128), (131, 97)])
@pytest.mark.parametrize("kind", ["bilinear", "bicubic"])
def test_images_are_resized_as_timm_does(timm, size, kind):
    image = np.random.default_rng(1).integers(0, 256, (*size, 3), dtype=np.uint8)
    transform = timm.data.create_transform((3, 96, 96), interpolation=kind, crop_pct=0.875, normalize=False)
    expected = transform(Image.fromarray(image)).permute(1, 2, 0).numpy()
    assert np.array_equal(fit(image, 109, 96, Resizing(kind)), expected)


def test_overrides_of_the_text_take_the_place_of_the_data_config(timm):
    told = find_preprocessing(CNN)
    assert told.mean != (0.4, 0.4, 0.4)
    record = find_preprocessing(f"{CNN}(mean=0.4, std=(0.1, 0.2, 0.3), interpolation='bicubic', crop=0.5, pool='gem')")
    assert (record.mean, record.std, record.interpolation) == ((0.4,) * 3, (0.1, 0.2, 0.3), "bicubic")
    assert (record.resize, record.pool) == (2 * record.image_size[0], "gem")
    assert "as given" in record.source


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("mean='a'", "mean: expected a number or one per channel, got 'a'"),
        ("mean=(0.1, 0.2)", "mean: expected one number or 3"),
        ("std=0", "std: expected numbers above 0"),
        ("interpolation='cubic'", "interpolation: expected one of nearest, lanczos"),
        ("crop=2", "crop: expected a share"),
        ("pool='max'", "pool: expected model, cls, avg or gem, got 'max'"),
    ],
)
def test_wrong_overrides_are_named(timm, option, told):
    with pytest.raises(TrunkError, match=r"trunk .*test_resnet") as error:
        find_preprocessing(f"{CNN}({option})")
    assert told in str(error.value)


def test_pools_of_a_vision_transformer_leave_its_prefix_out(timm):
    images = torch.rand(2, 3, 160, 160)
    for name, prefix in (("test_vit", 1), ("test_vit3", None)):
        trunks = {pool: _pooled(f"timm:{name}", pool) for pool in ("model", "avg", "gem")}
        model = trunks["model"].inner
        prefix = model.num_prefix_tokens if prefix is None else prefix
        assert prefix == model.num_prefix_tokens
        with torch.no_grad():
            tokens = model.forward_features(images)
            torch.testing.assert_close(trunks["avg"](images), model.fc_norm(tokens[:, prefix:].mean(1)))
            mean = tokens[:, prefix:].clamp(min=1e-6).pow(3).mean(1).pow(1 / 3)
            torch.testing.assert_close(trunks["gem"](images), model.fc_norm(mean))
            torch.testing.assert_close(trunks["model"](images), model(images))
    with torch.no_grad():
        first = _pooled("timm:test_vit", "cls")
        torch.testing.assert_close(first(images), first.inner.fc_norm(first.inner.forward_features(images)[:, 0]))


def _pooled(text: str, pool: str):
    torch.manual_seed(0)
    record = find_preprocessing(f"{text}(pool='{pool}')")
    return make_trunk(f"{text}(pool='{pool}')", (3, 160, 160), preprocessing=record).eval()


def test_a_class_token_is_asked_of_a_convolutional_network(timm):
    record = find_preprocessing(f"{CNN}(pool='cls')")
    with pytest.raises(TrunkError, match="pool='cls' needs a class token"):
        make_trunk(f"{CNN}(pool='cls')", (3, 64, 64), preprocessing=record)


def test_average_of_a_map(timm):
    trunk = _pooled(CNN, "avg")
    images = torch.rand(2, 3, 96, 96)
    with torch.no_grad():
        torch.testing.assert_close(trunk(images), trunk.maps(images).mean((2, 3)))


def test_gray_photos_are_repeated_for_a_trunk_of_colors_and_colors_averaged_for_a_gray_one(timm):
    record = find_preprocessing(CNN)
    trunk = make_trunk(CNN, (1, 64, 64), preprocessing=record)
    embedder = Embedder(trunk, None, scale=Normalize(record.mean, record.std)).eval()
    gray = torch.rand(2, 1, 64, 64)
    torch.testing.assert_close(embedder.features(gray), embedder.features(gray.expand(-1, 3, -1, -1)))
    record = find_preprocessing(f"{CNN}(in_chans=1)")
    assert record.channels == len(record.mean) == 1
    trunk = make_trunk(f"{CNN}(in_chans=1)", (3, 64, 64), preprocessing=record)
    embedder = Embedder(trunk, None, scale=Normalize(record.mean, record.std)).eval()
    color = torch.rand(2, 3, 64, 64)
    torch.testing.assert_close(embedder.features(color), embedder.features(color.mean(1, keepdim=True)))


def test_attention_maps_see_normalized_images(timm):
    record = find_preprocessing(CNN)
    embedder = Embedder(
        make_trunk(CNN, (3, 64, 64), preprocessing=record), None, scale=Normalize((0.5,) * 3, (0.5,) * 3)
    )
    images = torch.rand(1, 3, 64, 64)
    embedder.eval()
    torch.testing.assert_close(embedder.feature_map(images), embedder.trunk.maps(2 * images - 1))


def places_are_where_the_pixels_are(text: str, side: int, count: int) -> None:
    """What is changed in one part of an image changes the descriptor of that part most, in each corner."""
    torch.manual_seed(0)
    trunk = make_trunk(text, (3, side, side), preprocessing=find_preprocessing(text))
    embedder = Embedder(trunk, 5).eval()
    image = torch.rand(1, 3, side, side)
    with torch.no_grad():
        places = embedder.places(image)
        assert places.shape == (1, count, count, 5)
        part = side // count
        for row, column in ((0, count - 1), (count - 1, 0), (1, 2)):
            changed = image.clone()
            changed[:, :, row * part : (row + 1) * part, column * part : (column + 1) * part] = 0.5
            difference = (embedder.places(changed) - places).norm(dim=3)[0]
            assert divmod(int(difference.argmax()), count) == (row, column)


@pytest.mark.parametrize(
    ("name", "side", "count"), [("test_vit", 160, 10), ("test_vit3", 160, 10), ("test_resnet", 96, 3)]
)
def test_places_of_timm_are_where_the_pixels_are(timm, name, side, count):
    places_are_where_the_pixels_are(f"timm:{name}", side, count)


def test_places_of_several_resolutions_are_refused(timm):
    embedder = Embedder(make_trunk("timm:crossvit_tiny_240(depth=((1, 1, 0),))", (3, 240, 240)), 5)
    with pytest.raises(NotImplementedError, match="CrossVit has no map of images, and no patches"):
        embedder.places(torch.rand(1, 3, 240, 240))


@pytest.mark.parametrize(("text", "side"), [(VIT, 8), ("timm:deit_tiny_patch16_224(depth=1)", 64)])
def test_images_too_small_or_of_another_size_are_one_line(timm, text, side):
    record = find_preprocessing(text)
    with pytest.raises(TrunkError, match=rf"does not take images of {side} x {side} pixels .*made for") as error:
        make_trunk(text, (3, side, side), preprocessing=record)
    assert "\n" not in str(error.value)


def test_a_file_of_weights_is_cast_and_its_classifier_left_out(timm, tmp_path):
    record = find_preprocessing(CNN)
    model = timm.create_model("test_resnet", num_classes=7)
    path = tmp_path / "weights.safetensors"
    half = {key: value.half() if value.is_floating_point() else value for key, value in model.state_dict().items()}
    save_file(half, path, metadata={"license": "apache-2.0"})
    trunk = make_trunk(CNN, (3, 64, 64), weights=path, preprocessing=record)
    assert {parameter.dtype for parameter in trunk.parameters()} == {torch.float32}
    assert torch.equal(trunk.inner.conv1[0].weight, half["conv1.0.weight"].float())
    assert trunk.provenance.left_out == ("fc.bias", "fc.weight")
    sentence = trunk.provenance.sentence(CNN, 1)
    assert "license apache-2.0; its classifier (fc.bias, fc.weight) is left out" in sentence
    assert "random" in make_trunk(CNN, (3, 64, 64), preprocessing=record).provenance.sentence(CNN, 1)


def test_weights_that_do_not_fit_are_counted(timm, tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file(timm.create_model("test_vit", num_classes=0).state_dict(), path)
    with pytest.raises(
        TrunkError, match=r"lacks 'bn1.bias' and has 'blocks.0.attn.proj.bias' \(\d+ missing, \d+ unexpected\)"
    ):
        make_trunk(CNN, (3, 64, 64), weights=path)
    save_file({"weight": torch.zeros(3, 2), "bias": torch.zeros(3)}, path)
    with pytest.raises(TrunkError, match=r"bias is \(3,\), expected \(4,\) \(2 of 2 weights have another shape\)"):
        load_weights(torch.nn.Linear(2, 4), path)


def test_pretrained_weights_that_cannot_be_had_are_one_line(timm, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    record = find_preprocessing(CNN)
    with pytest.raises(
        TrunkError, match=r"not in the local cache .*safetensors from https://huggingface.co/timm/"
    ) as error:
        make_trunk(CNN, (3, 64, 64), pretrained=True, preprocessing=record)
    assert "\n" not in str(error.value)
    assert "(HF_HUB_OFFLINE is set)" in str(error.value)
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("nearfar.io.hub_access.answers", lambda address: False)
    with pytest.raises(TrunkError, match=r"cannot be downloaded \(the hub does not answer\)"):
        make_trunk(CNN, (3, 64, 64), pretrained=True, preprocessing=record)
    with pytest.raises(TrunkError, match="Invalid pretrained tag"):
        make_trunk("timm:vit_tiny_patch16_224.nothing", (3, 224, 224), pretrained=True)
    with pytest.raises(TrunkError, match="timm has no pretrained weights of it; coatnet_"):
        make_trunk("timm:coatnet_nano_cc_224", (3, 224, 224), pretrained=True)
    with pytest.raises(TrunkError, match="conv4': pretrained=true: only timm:NAME"):
        make_trunk("conv4", (3, 64, 64), pretrained=True)
    with pytest.raises(TrunkError, match="pretrained is not an option of the model; use pretrained="):
        make_trunk(f"{CNN}(pretrained=True)", (3, 64, 64))


@pytest.mark.parametrize("kind", ["GatedRepoError", "RepositoryNotFoundError"])
def test_a_missing_token_is_one_line(timm, monkeypatch, kind):
    def refused(*args, **how):
        raise type(kind, (OSError,), {})("401 Client Error.\nRepository Not Found for url")

    record = find_preprocessing(CNN)
    monkeypatch.setattr(timm, "create_model", refused)
    with pytest.raises(TrunkError, match=r"hub does not show .*`hf auth login` or set HF_TOKEN"):
        make_trunk(CNN, (3, 64, 64), pretrained=True, preprocessing=record)


def test_names_that_do_not_exist_have_near_ones(timm):
    with pytest.raises(TrunkError, match="timm has no model 'resnet181'; did you mean 'resnet18"):
        find_preprocessing("timm:resnet181")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("resnet18", "unknown trunk 'resnet18'; did you mean 'timm:resnet18'?"),
        ("mobilenetv1_100", "did you mean 'timm:mobilenetv1_100'?"),
        ("conv5", "did you mean 'conv4'?"),
        ("torchvision:resnet18", "did you mean 'timm:resnet18'?"),
        ("torchvision.models:resnet18", "did you mean 'timm:resnet18'?"),
        ("timm:", "models of timm are written timm:NAME"),
        ("transformers:", "models of transformers are written transformers:NAME"),
        ("facebook/dinov2-small", "as in transformers:facebook/dinov2-small"),
        ("hf:facebook/dinov2-small", "as in transformers:facebook/dinov2-small"),
        ("timm/resnet18.a1_in1k", "as in timm:resnet18.a1_in1k"),
    ],
)
def test_names_as_other_libraries_write_them_lead_to_ours(timm, text, told):
    with pytest.raises(TrunkError) as error:
        make_trunk(text, (3, 64, 64))
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("padtype='same'", "trunk timm:test_resnet: the model has no option 'padtype'"),
        ("num_classes=10", "num_classes is not an option here, because a trunk has no classifier"),
    ],
)
def test_options_that_a_model_lacks_are_named(timm, options, told):
    with pytest.raises(TrunkError, match=re.escape(told)):
        make_trunk(f"{CNN}({options})", (3, 64, 64))


@pytest.mark.parametrize("options", ["mean=127.5", "std=57.4", "mean=(123.7, 116.3, 103.5)"])
def test_moments_of_pixels_up_to_255_are_refused(timm, options):
    with pytest.raises(TrunkError, match=r"expected values for pixels in \[0, 1\], got .*; divide by 255"):
        find_preprocessing(f"{CNN}({options})")


def test_weights_of_another_network_and_folders_of_weights_say_what_to_do(timm, tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file(timm.create_model("test_vit", num_classes=0).state_dict(), path)
    with pytest.raises(TrunkError, match=r"does not fit this trunk, conv4: .*network, which trunk= should name"):
        make_trunk("conv4", (3, 64, 64), weights=path)
    with pytest.raises(TrunkError, match=r"is a folder; expected a .safetensors, .pth or .caffemodel file$"):
        make_trunk(CNN, (3, 64, 64), weights=tmp_path)
    (tmp_path / "best.safetensors").touch()
    with pytest.raises(TrunkError, match=r"is a folder; .*, such as \S+best.safetensors$"):
        make_trunk(CNN, (3, 64, 64), weights=tmp_path)
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        archive.writestr("a.jpg", b"")
    with pytest.raises(TrunkError, match=r"photos.zip: not readable as weights \([^()]*(\([^()]*\)[^()]*)?[^. ]\)$"):
        make_trunk(CNN, (3, 64, 64), weights=tmp_path / "photos.zip")
    with pytest.raises(TrunkError, match="yes: no such file of weights; `true` takes the weights that timm"):
        make_trunk(CNN, (3, 64, 64), weights="yes")


def test_a_torchvision_of_another_torch_is_one_line(monkeypatch):
    def broken(name):
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr("nearfar.deep.networks.hubs.import_module", broken)
    with pytest.raises(TrunkError, match=r"do not fit each other; install the torchvision that was built for this"):
        make_trunk(CNN, (3, 64, 64))


def test_a_factory_of_ones_own_says_how_images_reach_it(monkeypatch):
    def small(shape):
        return torch.nn.Conv2d(shape[0], 4, 3)

    module = ModuleType("own_preprocessing")
    module.small = small
    small.__module__ = module.__name__
    monkeypatch.setitem(sys.modules, module.__name__, module)
    text = "own_preprocessing:small"
    assert find_preprocessing(text) is None
    small.preprocessing = {"mean": 0.5, "std": [0.1, 0.2, 0.3], "image_size": 32, "interpolation": "bicubic"}
    record = find_preprocessing(text)
    assert (record.mean, record.image_size, record.resize) == ((0.5,) * 3, (32, 32), 32)
    assert make_trunk(text, (1, 32, 32), preprocessing=record).in_channels == 3
    small.preprocessing = {"mean": 0.5}
    with pytest.raises(TrunkError, match="expected a dict with mean and std, std is missing"):
        find_preprocessing(text)


def test_trunks_of_this_library_take_pixels_as_they_are():
    for text in ("conv4", "mlp(width=8)", "identity", "bn_inception", "spd"):
        assert find_preprocessing(text) is None


# Image processors of transformers

PROCESSORS = [
    {"size": {"height": 40, "width": 40}, "resample": 2, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.4]},
    {
        "size": {"shortest_edge": 50},
        "crop_size": {"height": 40, "width": 40},
        "do_center_crop": True,
        "resample": 3,
        "image_mean": [0.48, 0.45, 0.4],
        "image_std": [0.26, 0.26, 0.27],
    },
    {"size": {"height": 40, "width": 40}, "do_normalize": False, "resample": 3},
    {
        "size": {"height": 40, "width": 40},
        "rescale_factor": 1 / 127.5,
        "image_mean": [1.0, 1.0, 1.0],
        "image_std": [1.0, 1.0, 1.0],
    },
]


@pytest.mark.parametrize("told", PROCESSORS)
def test_features_are_those_of_transformers_own_pipeline(transformers, tmp_path, told):
    folder = a_vit(transformers, tmp_path, told)
    found, embedder = features_of(f"transformers:{folder}", photos())
    kind = transformers.CLIPImageProcessor if "crop_size" in told else transformers.ViTImageProcessor
    kind = getattr(transformers, kind.__name__ + "Pil", kind)
    processor = kind.from_pretrained(folder)
    model = embedder.trunk.inner
    with torch.no_grad():
        pixels = torch.cat(
            [processor(Image.fromarray(image), return_tensors="pt")["pixel_values"] for image in photos()]
        )
        expected = model(pixels).pooler_output
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def a_vit(transformers, folder, processor, **how) -> str:
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=40, patch_size=8
    )
    torch.manual_seed(3)
    transformers.ViTModel(config, **how).save_pretrained(folder)
    if processor is not None:
        told = {"image_processor_type": "ViTImageProcessor", **processor}
        (folder / "preprocessor_config.json").write_text(json.dumps(told))
    return str(folder)


def test_the_pooler_is_used_where_it_is_trained_and_else_the_class_token(transformers, tmp_path):
    images = torch.rand(2, 3, 40, 40)
    for trained in (True, False):
        folder = tmp_path / str(trained)
        folder.mkdir()
        text = f"transformers:{a_vit(transformers, folder, PROCESSORS[0], add_pooling_layer=trained)}"
        trunk = make_trunk(text, (3, 40, 40), preprocessing=find_preprocessing(text)).eval()
        assert trunk.module.pool == ("pooler" if trained else "cls")
        with torch.no_grad():
            outputs = trunk.inner(images)
            expected = outputs.pooler_output if trained else outputs.last_hidden_state[:, 0]
            torch.testing.assert_close(trunk(images), expected)
        assert trunk.provenance.source == str(folder)
    text = f"transformers:{folder}(pool='avg')"
    trunk = make_trunk(text, (3, 40, 40), preprocessing=find_preprocessing(text)).eval()
    with torch.no_grad():
        torch.testing.assert_close(trunk(images), trunk.inner(images).last_hidden_state[:, 1:].mean(1))
    old = make_trunk(f"transformers:{folder}", (3, 40, 40)).eval()  # as runs were before there was a record
    with torch.no_grad():
        torch.testing.assert_close(old(images), old.inner(images).last_hidden_state.mean(1))


def test_registers_are_no_patches(transformers):
    options = "hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14"
    text = f"transformers:dinov2_with_registers({options}, num_register_tokens=3, pool='avg')"
    trunk = make_trunk(text, (3, 28, 28), preprocessing=find_preprocessing(text)).eval()
    images = torch.rand(2, 3, 28, 28)
    with torch.no_grad():
        tokens = trunk.inner(images).last_hidden_state
        assert tokens.shape[1] == 1 + 3 + 4
        torch.testing.assert_close(trunk(images), tokens[:, 4:].mean(1))


@pytest.mark.parametrize(
    "kind",
    [
        *("vit", "deit", "dinov2", "beit", "siglip_vision_model", "clip_vision_model"),
        "dinov2_with_registers",
    ],
)
def test_places_of_transformers_are_where_the_pixels_are(transformers, kind):
    options = "hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32"
    places_are_where_the_pixels_are(f"transformers:{kind}({options}, image_size=28, patch_size=7)", 28, 4)


def test_a_folder_without_a_processor_needs_mean_and_std(transformers, tmp_path):
    folder = a_vit(transformers, tmp_path, None)
    with pytest.raises(TrunkError, match=r"no preprocessor_config.json, .*give mean= and std="):
        find_preprocessing(f"transformers:{folder}")
    assert find_preprocessing(f"transformers:{folder}(mean=0.5, std=0.5)").mean == (0.5,) * 3


def test_folders_that_want_to_run_code_or_lack_a_file_are_one_line(transformers, tmp_path):
    folder = tmp_path / "vit"
    trunk = f"transformers:{a_vit(transformers, folder, None)}"
    settings = json.loads((folder / "config.json").read_text()) | {"auto_map": {"AutoModel": "modeling_evil.Evil"}}
    (folder / "config.json").write_text(json.dumps(settings))
    make_trunk(trunk, (3, 40, 40))  # transformers has this model, and runs no code of the folder
    (folder / "config.json").write_text(json.dumps(settings | {"model_type": "evil"}))
    with pytest.raises(TrunkError, match=r"its config.json names code to run, modeling_evil.Evil, and files must not"):
        make_trunk(trunk, (3, 40, 40))
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "model.safetensors").unlink()
    with pytest.raises(TrunkError, match=r"no file named model.safetensors.* found in directory") as found:
        make_trunk(trunk, (3, 40, 40))
    assert len(str(found.value).splitlines()) == 1
    with pytest.raises(TrunkError, match=r"nothing: no such folder$"):
        make_trunk(f"transformers:{tmp_path / 'nothing'}", (3, 40, 40))


def test_a_processor_without_mean_is_one_line():
    told = {"size": {"height": 40, "width": 40}, "image_std": [0.5, 0.5, 0.5]}
    with pytest.raises(ValueError, match="has no image_mean, so it is not known how to normalize"):
        of_processor(told, {}, "preprocessor_config.json")
    assert of_processor(told, {"mean": 0.4}, "it").mean == (0.4,) * 3
    with pytest.raises(ValueError, match="only squares are supported"):
        of_processor({**told, "size": {"height": 40, "width": 30}}, {"mean": 0.4}, "it")


def test_names_of_kinds_of_models(transformers):
    with pytest.raises(TrunkError, match="did you mean 'vit"):
        find_preprocessing("transformers:vitt")
    with pytest.raises(
        TrunkError, match="no such folder: 'facebook/dinov2-small'; for a model of the hub, give pretrained=True"
    ):
        find_preprocessing("transformers:facebook/dinov2-small")


def test_a_record_refuses_what_no_network_takes():
    good = {"mean": (0.5,), "std": (0.5,), "channels": 1}
    for wrong in ({"std": (0.0,)}, {"mean": (0.5, 0.5)}, {"mean": (float("nan"),)}, {"resize": 100}):
        with pytest.raises(ValueError, match="expected"):
            Preprocessing(**{**good, **wrong})
    with pytest.raises(ValueError, match=r"it.preprocessing: expected a dict of mean"):
        of_factory([0.5], "it")


def weights_with(path, timm, **header):
    save_file(timm.create_model("test_resnet", num_classes=0).state_dict(), path, metadata=header)
    return path


def test_the_header_of_weights_says_how_images_are_prepared(timm, tmp_path):
    file = weights_with(tmp_path / "w.safetensors", timm, mean="0.1,0.2,0.3", std="[0.25]", input_size="(3, 96, 96)")
    own = find_preprocessing(CNN)
    record = find_preprocessing(CNN, weights=file)
    assert (record.mean, record.std) == ((0.1, 0.2, 0.3), (0.25,) * 3)
    assert (record.image_size, record.resize) == ((96, 96), own.resize_for(96))
    assert record.source.endswith("; mean, std, input_size from the header of w.safetensors")
    assert record.interpolation == own.interpolation
    given = find_preprocessing(f"{CNN}(mean=0.4)", weights=file)
    assert (given.mean, given.std) == ((0.4,) * 3, (0.25,) * 3)  # what is typed takes precedence
    assert find_preprocessing(CNN, weights=tmp_path / "missing.safetensors") == own


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("mean", "gray", "expected numbers separated by commas, got 'gray'"),
        ("mean", "nan", "expected finite numbers"),
        ("std", "0", "expected numbers above 0"),
        ("std", "0.1,0.2", "expected one number or 3"),
        ("input_size", "224", "expected 3,SIDE,SIDE, got '224'"),
        ("input_size", "1,96,96", "expected 3,SIDE,SIDE"),
        ("input_size", "3,96,128", "expected 3,SIDE,SIDE"),
        ("input_size", "3,inf,inf", "expected 3,SIDE,SIDE"),
        ("input_size", "3,0,0", "input_size in its header is not used"),
    ],
)
def test_a_header_that_is_not_valid_is_named_and_not_used(timm, tmp_path, name, value, told):
    file = weights_with(tmp_path / "w.safetensors", timm, **{name: value})
    with pytest.warns(UserWarning, match=f"w.safetensors: the {name} in its header is not used") as warned:
        assert find_preprocessing(CNN, weights=file) == find_preprocessing(CNN)
    assert told in str(warned[0].message)


def test_weights_for_other_channels_are_one_error_and_no_warning(timm, tmp_path, recwarn):
    file = weights_with(tmp_path / "w.safetensors", timm, mean="0.5,0.5,0.5", std="0.5,0.5,0.5", input_size="3,96,96")
    gray = f"{CNN}(in_chans=1)"
    record = find_preprocessing(gray, weights=file)
    assert record == find_preprocessing(gray)
    with pytest.raises(TrunkError, match="does not fit this trunk"):
        make_trunk(gray, (3, 64, 64), weights=file, preprocessing=record)
    assert not [warned for warned in recwarn if "in its header" in str(warned.message)]


def test_a_network_of_one_size_keeps_it(timm, tmp_path):
    path = tmp_path / "vit.safetensors"
    save_file(timm.create_model("test_vit", num_classes=0).state_dict(), path, metadata={"input_size": "3,96,96"})
    with pytest.warns(UserWarning, match="takes images of 160 pixels only"):
        assert find_preprocessing("timm:test_vit", weights=path).image_size == (160, 160)
