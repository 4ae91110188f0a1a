"""Embedders and trunks."""

import sys
from inspect import signature
from types import ModuleType

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import nearfar
from nearfar.deep.networks import timm_trunk
from nearfar.deep.networks.embedder import Embedder
from nearfar.deep.networks.trunks import make_trunk, parse_trunk
from nearfar.deep.networks.weights import TrunkError, pickles_are_safe


def state_of(module: nn.Module) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in module.state_dict().items()}


def test_conv4_is_the_usual_one() -> None:
    trunk = make_trunk("conv4", (1, 28, 28))
    images = torch.rand(3, 1, 28, 28)
    assert trunk(images).shape == (3, 64)
    assert trunk.maps(images).shape == (3, 64, 3, 3)
    assert sum(p.numel() for p in trunk.parameters()) == 9 * 64 + 3 * 9 * 64 * 64 + 4 * 2 * 64
    assert make_trunk("conv4(width=8)", (3, 40, 32))(torch.rand(2, 3, 40, 32)).shape == (2, 8)
    with pytest.raises(ValueError, match="16x16"):
        trunk(torch.rand(2, 1, 8, 8))


def test_pooled_is_the_mean_of_the_last_maximum_where_the_map_is_large() -> None:
    trunk = make_trunk("conv4(width=4)", (1, 64, 64)).eval()
    images = torch.rand(2, 1, 64, 64)
    expected = nn.functional.max_pool2d(trunk.maps(images), 2).mean((2, 3))
    torch.testing.assert_close(trunk(images), expected)


def test_bn_inception_has_the_public_layout() -> None:
    trunk = make_trunk("bn_inception", (3, 224, 224)).eval()
    assert sum(p.numel() for p in trunk.parameters()) == 11_295_240 - 1000 * 1025  # less the classifier
    shapes = {key: tuple(value.shape) for key, value in trunk.state_dict().items()}
    assert shapes["conv1_7x7_s2.weight"] == (64, 3, 7, 7)
    assert shapes["inception_4c_double_3x3_2.weight"] == (160, 160, 3, 3)
    assert shapes["inception_4d_pool_proj.weight"] == (128, 608, 1, 1)
    assert shapes["inception_5a_1x1_bn.running_mean"] == (352,)
    assert "inception_3c_1x1.weight" not in shapes
    with torch.no_grad():
        assert trunk.maps(torch.rand(1, 3, 96, 96)).shape == (1, 1024, 3, 3)


def test_bn_inception_input_is_blue_green_red() -> None:
    trunk = make_trunk("bn_inception", (3, 64, 64)).eval()
    seen = []
    trunk.conv1_7x7_s2.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    red = torch.zeros(1, 3, 64, 64)
    red[:, 0] = 1.0
    with torch.no_grad():
        trunk(red)
    assert seen[0][0, :, 0, 0].tolist() == [-104.0, -117.0, 255.0 - 128.0]


PICKLED = pytest.mark.skipif(not pickles_are_safe(), reason="this PyTorch is too old to read .pth safely")


@pytest.mark.parametrize("suffix", [".safetensors", pytest.param(".pth", marks=PICKLED)])
def test_weights_of_a_public_file(tmp_path, suffix) -> None:
    source, target = make_trunk("conv4(width=4)", (1, 28, 28)), make_trunk("conv4(width=4)", (1, 28, 28))
    state = {f"module.{key}": value.clone() for key, value in source.state_dict().items()}
    state = {key: value for key, value in state.items() if not key.endswith("num_batches_tracked")}
    state["module.blocks.0.1.running_mean"] = torch.arange(4.0)[None]  # old files have (1, C)
    state["module.last_linear.weight"] = torch.zeros(10, 4)
    path = tmp_path / f"weights{suffix}"
    save_file(state, path) if suffix == ".safetensors" else torch.save({"state_dict": state}, path)
    target = make_trunk("conv4(width=4)", (1, 28, 28), weights=path)
    assert torch.equal(target.blocks[3][0].weight, source.blocks[3][0].weight)
    assert target.blocks[0][1].running_mean.tolist() == [0, 1, 2, 3]


def test_weights_that_do_not_fit(tmp_path) -> None:
    path = tmp_path / "weights.safetensors"
    with pytest.raises(TrunkError, match="no such file"):
        make_trunk("conv4", (1, 28, 28), weights=path)
    save_file(state_of(make_trunk("conv4(width=4)", (1, 28, 28))), path)
    with pytest.raises(TrunkError, match=r"does not fit this trunk, conv4\(width=8\): blocks\.\S+ is \(4,"):
        make_trunk("conv4(width=8)", (1, 28, 28), weights=path)
    with pytest.raises(TrunkError, match=r"lacks 'conv1_7x7_s2\.bias'"):
        make_trunk("bn_inception", (3, 28, 28), weights=path)
    path.write_bytes(b"not weights")
    with pytest.raises(TrunkError, match="not readable as weights"):
        make_trunk("conv4", (1, 28, 28), weights=path)
    other = tmp_path / "list.pth"
    torch.save([1, 2], other)
    with pytest.raises(TrunkError, match="no state dict" if pickles_are_safe() else r"weights as \.safetensors"):
        make_trunk("conv4", (1, 28, 28), weights=other)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("conv5", "did you mean 'conv4'"),
        ("transformer", "expected conv4, mlp"),
        ("conv4(32)", "name=value"),
        ("conv4(width=open('x'))", "literal"),
        ("conv4(depth=3)", "depth"),
        ("conv4(", "at its end, expected a name or a value"),
        ("no.such.module:factory", "no.such.module:factory: No module named 'no'; the folder .* PYTHONPATH"),
        ("pytest:factory", "pytest:factory: module 'pytest' has no attribute"),
        ("subprocess:Popen", "expected a class of modules, or a function"),
        ("pip._internal:main", "expected a class of modules, or a function"),
        ("torch.nn:Flatten", "start_dim"),
        ("numpy:zeros", "expected a class of modules, or a function"),
        ("torch.hub:load", "expected a class of modules, or a function"),
        ("pytest:Item", "expected a class of modules, or a function"),
        ("tests.deep.test_networks:test_options_are_literals", "must take the shape of an item"),
        ("timm:resnet18(checkpoint_path='x.pth')", "checkpoint_path is refused"),
        ("transformers:vit(trust_remote_code=True)", "trust_remote_code is refused"),
        ("timm:no", "timm"),
    ],
)
def test_bad_names(text: str, message: str) -> None:
    with pytest.raises(TrunkError, match=message):
        make_trunk(text, (1, 28, 28))


def test_options_are_literals() -> None:
    assert parse_trunk("timm:resnet18.a1(drop_rate=0.1, act='gelu')") == (
        "timm:resnet18.a1",
        {"drop_rate": 0.1, "act": "gelu"},
    )


def test_images_only_trunks_refuse_rows() -> None:
    with pytest.raises(TrunkError, match="takes images, got rows of 5 numbers"):
        make_trunk("conv4", (5,))
    assert make_trunk("mlp(width=7, depth=3)", (5,))(torch.rand(2, 5)).shape == (2, 7)
    assert make_trunk("identity", (1, 4, 4))(torch.rand(2, 1, 4, 4)).shape == (2, 16)


@pytest.mark.parametrize("text", ["conv4(width=0)", "conv4(width=-3)", "mlp(width=0)", "mlp(depth=0)"])
def test_sizes_of_networks_are_at_least_one(text):
    with pytest.raises(ValueError, match=r"(Conv4|MLP): (width|depth) must be at least 1, got (0|-3)"):
        make_trunk(text, (1, 28, 28))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_trunk_may_compute_in_a_precision_of_its_own(dtype) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(6, 5, dtype=dtype)

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return self.inner(rows.to(dtype))

    trunk = Own()
    trunk.num_features = 5
    embedder = Embedder(trunk, 3)
    rows = torch.rand(4, 6)
    pooled, embedding = embedder(rows)
    assert pooled.dtype == embedding.dtype == torch.float32
    assert embedding.equal(embedder.layer(trunk(rows).float()))
    embedding.sum().backward()
    assert trunk.inner.weight.grad.abs().sum() > 0
    with torch.autocast("cpu", torch.bfloat16):  # which converts by itself
        assert embedder(rows).embedding.dtype == torch.bfloat16


def own_module(monkeypatch, name: str, **functions) -> None:
    """Make a module in which functions seem to be written."""
    module = ModuleType(name)
    for function in functions.values():
        function.__module__ = name
    module.__dict__.update(functions)
    monkeypatch.setitem(sys.modules, name, module)


def test_a_factory_of_ones_own(monkeypatch, tmp_path) -> None:
    own_module(monkeypatch, "own_trunks", small=lambda shape, width=3: nn.Conv2d(shape[0], width, 3))
    trunk = make_trunk("own_trunks:small(width=5)", (2, 9, 9))
    assert (trunk.num_features, trunk.in_channels, trunk.training) == (5, 2, True)
    images = torch.rand(3, 2, 9, 9)
    torch.testing.assert_close(trunk(images), trunk.maps(images).mean((2, 3)))
    path = tmp_path / "own.safetensors"
    save_file({"weight": torch.ones(5, 2, 3, 3), "bias": torch.zeros(5)}, path)
    assert make_trunk("own_trunks:small(width=5)", (2, 9, 9), weights=path).inner.weight.eq(1).all()
    save_file({f"features.{key}": value for key, value in trunk.inner.state_dict().items()}, path)
    with pytest.raises(TrunkError, match=r"lacks 'bias' and has 'features\.bias' \(2 missing, 2 unexpected\)"):
        make_trunk("own_trunks:small(width=5)", (2, 9, 9), weights=path)


class Nested(nn.Module):
    """A trunk of one's own with parts of the names that wrappers have."""

    def __init__(self, shape: tuple[int, ...], *, alone: bool) -> None:
        super().__init__()
        self.inner = nn.Conv2d(shape[0], 4, 3)
        self.last = nn.Identity() if alone else nn.Conv2d(4, 5, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.last(self.inner(images))


@pytest.mark.parametrize("name", ["plain", "nested", "nested(alone=True)"])
def test_a_run_with_a_trunk_of_ones_own_gives_its_weights(monkeypatch, tmp_path, name) -> None:
    own_module(
        monkeypatch,
        "own_trunks",
        plain=lambda shape: nn.Conv2d(shape[0], 5, 3),
        nested=lambda shape, alone=False: Nested(shape, alone=alone),
    )
    trunk, path = make_trunk(f"own_trunks:{name}", (2, 9, 9)), tmp_path / "best.safetensors"
    save_file({f"embedder.trunk.{key}": value for key, value in state_of(trunk).items()}, path)
    again = make_trunk(f"own_trunks:{name}", (2, 9, 9), weights=path)
    images = torch.rand(3, 2, 9, 9)
    assert torch.equal(again(images), trunk(images))


def test_timm_is_asked_for_no_download(monkeypatch, tmp_path) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.rand(()))

        def forward_features(self, images):
            return self.scale * images[:, :2]

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.forward_features(images).mean((2, 3))

    asked = {}
    timm = ModuleType("timm")
    timm.is_model = lambda name: name == "tiny"
    timm.list_models = lambda: ["tiny"]
    timm.create_model = lambda name, **options: asked.update(options) or Model()
    monkeypatch.setitem(sys.modules, "timm", timm)
    trunk = make_trunk("timm:tiny", (3, 8, 8))
    assert asked == {"pretrained": False, "num_classes": 0, "in_chans": 3}
    assert trunk.num_features == 2
    assert trunk.maps(torch.rand(1, 3, 8, 8)).shape == (1, 2, 8, 8)
    path = tmp_path / "best.safetensors"  # of a run
    save_file({f"embedder.trunk.{key}": value for key, value in state_of(trunk).items()}, path)
    assert make_trunk("timm:tiny", (3, 8, 8), weights=path).inner.scale == trunk.inner.scale
    with pytest.raises(TrunkError, match="did you mean 'tiny'"):
        make_trunk("timm:tinny", (3, 8, 8))


def test_embedder_gives_both_layers_raw() -> None:
    embedder = Embedder(make_trunk("conv4(width=8)", (1, 28, 28)), 5)
    pooled, embedding = embedder(torch.rand(4, 3, 28, 28))  # color is averaged for a gray trunk
    assert (pooled.shape, embedding.shape) == ((4, 8), (4, 5))
    torch.testing.assert_close(embedding, embedder.layer(pooled))
    assert Embedder(make_trunk("identity", (6,)), None)(torch.ones(2, 6)).embedding.eq(1).all()
    assert embedder.feature_map(torch.rand(1, 1, 28, 28)).shape == (1, 8, 3, 3)
    with pytest.raises(ValueError, match="no convolutional feature map"):
        Embedder(make_trunk("mlp", (6,)), 2).feature_map(torch.rand(1, 6))


def test_channels() -> None:
    color = Embedder(make_trunk("conv4(width=4)", (3, 16, 16)), 2).eval()
    gray = torch.rand(2, 1, 16, 16)
    torch.testing.assert_close(color(gray).embedding, color(gray.repeat(1, 3, 1, 1)).embedding)
    with pytest.raises(ValueError, match="takes 3 channels, got images with 4"):
        color(torch.rand(1, 4, 16, 16))


def test_frozen_batch_norm_does_not_move() -> None:
    embedder = Embedder(make_trunk("conv4(width=4)", (1, 16, 16)), 2, freeze_bn=True)
    before = state_of(embedder)
    loss = embedder(torch.rand(4, 1, 16, 16)).embedding.square().sum()
    loss.backward()
    torch.optim.SGD([p for p in embedder.parameters() if p.requires_grad], 0.1).step()
    moved = {key for key, value in embedder.state_dict().items() if not torch.equal(value, before[key])}
    assert moved == {*(f"trunk.blocks.{k}.0.weight" for k in range(4)), "layer.weight", "layer.bias"}


def test_frozen_trunk_trains_the_layer_only() -> None:
    embedder = Embedder(make_trunk("conv4(width=4)", (1, 16, 16)), 2, freeze_trunk=True)
    assert not embedder.trunk.training
    embedder.eval().train()
    assert not embedder.trunk.training
    assert {name for name, p in embedder.named_parameters() if p.requires_grad} == {"layer.weight", "layer.bias"}
    assert not embedder(torch.rand(2, 1, 16, 16)).pooled.requires_grad


def test_dropout_is_before_the_layer_and_only_in_training() -> None:
    embedder = Embedder(make_trunk("identity", (100,)), None, dropout=0.5)
    rows = torch.ones(4, 100)
    pooled, embedding = embedder.train()(rows)
    assert pooled.eq(1).all()
    assert set(embedding.unique().tolist()) == {0.0, 2.0}
    assert embedder.eval()(rows).embedding.eq(1).all()


class Tokens(nn.Module):
    """A trunk whose features are the mean of tokens, as those of vision transformers."""

    def maps(self, images: torch.Tensor) -> torch.Tensor:
        return images.flatten(2).transpose(1, 2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.maps(images).mean(1)


def test_trunks_of_tokens_have_no_feature_map(monkeypatch: pytest.MonkeyPatch) -> None:
    own_module(monkeypatch, "own", tokens=lambda shape: Tokens())
    trunk = make_trunk("own:tokens", (3, 8, 8))
    assert trunk.num_features == 3
    assert not Embedder(trunk, 2).has_feature_map
    assert Embedder(trunk, 2).places(torch.rand(2, 3, 4, 4)).shape == (2, 4, 4, 2)
    assert Embedder(make_trunk("conv4", (1, 28, 28)), 2).has_feature_map


class Whole(nn.Module):
    """A trunk with features of the whole image, or of several resolutions in a list, as some transformers have."""

    def __init__(self, resolutions: int) -> None:
        super().__init__()
        self.resolutions = resolutions

    def maps(self, images: torch.Tensor) -> torch.Tensor | list[torch.Tensor]:
        return [images] * self.resolutions if self.resolutions else self(images)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.mean((2, 3))


@pytest.mark.parametrize("resolutions", [0, 2])
def test_trunks_without_a_map_and_patches_have_no_places(monkeypatch: pytest.MonkeyPatch, resolutions: int) -> None:
    own_module(monkeypatch, "own", whole=lambda shape: Whole(resolutions))
    embedder = Embedder(make_trunk("own:whole", (3, 8, 8)), 2)
    assert not embedder.has_feature_map
    with pytest.raises(NotImplementedError, match=r"^Whole has no map of images, and no patches$"):
        embedder.places(torch.rand(2, 3, 8, 8))


def test_places_go_through_the_embedding_layer() -> None:
    images = torch.rand(2, 3, 32, 32)
    for layer in (None, 5):
        embedder = Embedder(make_trunk("conv4(width=4)", (3, 32, 32)), layer).eval()
        places = embedder.places(images)
        assert places.shape == (2, 4, 4, layer or 4)
        one = embedder.trunk.maps(images)[:, :, 1, 2]
        torch.testing.assert_close(places[:, 1, 2], embedder.head(one).embedding)
    tokens = Tokens()
    tokens.num_features = 3
    tokens.prefix = 1  # a class token, in front of 5 x 5 patches
    patches = Embedder(tokens, None).places(torch.rand(2, 3, 2, 13))
    assert patches.shape == (2, 5, 5, 3)
    for trunk, items in ((tokens, torch.rand(2, 3, 2, 12)), (make_trunk("mlp", (6,)), torch.rand(2, 6))):
        with pytest.raises(NotImplementedError, match=r"Tokens has 23 patches, which are not a square|MLP has no map"):
            Embedder(trunk, None).places(items)


@pytest.mark.parametrize("trunk", ["mlp", "identity", "conv4"])
def test_images_are_brought_to_the_channels_of_any_trunk(trunk: str) -> None:
    embedder = Embedder(make_trunk(trunk, (1, 16, 16)), 2).eval()
    gray = torch.rand(2, 1, 16, 16)
    torch.testing.assert_close(embedder(gray.expand(-1, 3, -1, -1)).embedding, embedder(gray).embedding)


@pytest.mark.parametrize(
    "name", ["BiMap", "ReEig", "LogEig", "MultiScaleRelationNet", "ContinuousSimilarityNet", "EpisodicTrainer"]
)
def test_settings_of_networks_are_held_against_their_annotations(name: str) -> None:
    kind = getattr(nearfar, name)
    for setting, parameter in signature(kind).parameters.items():
        if parameter.annotation in ("int", "float", "bool"):
            with pytest.raises(ValueError, match=f"^{name}: {setting} must be .*; got '1'"):
                kind(**{setting: "1"})


def test_a_folder_named_timm_has_no_models(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", ModuleType("timm"))
    assert not timm_trunk.has_model("resnet18")


def test_models_of_timm_are_suggested_where_it_is_not_installed():
    with pytest.raises(TrunkError, match="unknown trunk 'resnet18'; did you mean 'timm:resnet18'"):
        make_trunk("resnet18", (3, 32, 32))
    with pytest.raises(TrunkError, match="unknown trunk 'conv5'; did you mean 'conv4'"):
        make_trunk("conv5", (3, 32, 32))
