"""Which weights of a pretrained trunk are trained, how fast, and where the embedding layer starts."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")

from safetensors.torch import load_file, save_file
from torch import nn

import nearfar
from nearfar.data import open_items
from nearfar.deep.networks.adapters import adaptable, add_adapters, merged
from nearfar.deep.networks.depth import last_stage, layer_numbers
from nearfar.deep.networks.embedder import Embedder
from nearfar.deep.networks.recomputing import checkpoint_gradients
from nearfar.deep.networks.trunks import TrunkError, make_trunk
from nearfar.models import load_embedder
from nearfar.train import TrainConfig, TrainError, embed_run, train
from nearfar.train import setup as building
from nearfar.train.features import cached_features, sizes_of
from nearfar.train.mirroring import Mirroring
from nearfar.train.optim import param_groups
from nearfar.train.start import feature_layer, whitening_layer
from tests.towers import write_bert
from tests.train.test_runs import assert_same, broken_off

SPEED = {"steps": 3, "batch_size": 8, "embedding_dim": 4, "validation": 0.0, "device": "cpu", "ks": (1,), "lr": 1e-2}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder of small photos of four classes."""
    folder = tmp_path_factory.mktemp("tuning") / "photos"
    rng = np.random.default_rng(0)
    for c, name in enumerate("abcd"):
        (folder / name).mkdir(parents=True)
        for i in range(5):
            pixels = rng.integers(0, 200, (48, 48, 3)) + 12 * c
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{i}.png")
    return folder


@pytest.fixture
def weights(timm, tmp_path):
    """A file of weights of a small network, whose batch normalizations have seen something."""
    torch.manual_seed(0)
    model = timm.create_model("test_resnet", num_classes=0)
    with torch.no_grad():
        model(torch.rand(8, 3, 48, 48))
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"


@pytest.fixture
def config(photos, weights):
    return TrainConfig.of(data=str(photos), trunk="timm:test_resnet", pretrained=weights, **SPEED)


class Blocks(nn.Module):
    """A network with a list of blocks, as transformers have one."""

    num_features = 3

    def __init__(self, shape):
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1))
        self.start = nn.Linear(shape[0], 3)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)) for _ in range(3)])
        self.norm = nn.LayerNorm(3)

    def forward(self, x):
        x = self.start(x)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


def test_layers_are_numbered_from_the_input(timm, transformers) -> None:
    numbers = layer_numbers(Blocks((2,)))
    assert numbers["cls_token"] == numbers["start.weight"] == 0
    assert [numbers[f"blocks.{k}.2.weight"] for k in range(3)] == [1, 2, 3]
    assert numbers["norm.weight"] == 4
    for name in ("test_resnet", "test_vit", "test_efficientnet", "test_convnext"):
        trunk = make_trunk(f"timm:{name}", (3, 160, 160))
        numbers = layer_numbers(trunk)
        assert numbers.keys() == {parameter for parameter, _ in trunk.named_parameters()}
        assert sorted(set(numbers.values())) == list(range(max(numbers.values()) + 1))
        assert max(numbers.values()) >= 2, name
    settings = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=3, num_attention_heads=2, intermediate_size=8, image_size=32, patch_size=16
    )
    numbers = layer_numbers(transformers.ViTModel(settings, add_pooling_layer=False))
    blocks = [number for name, number in numbers.items() if name.endswith("mlp.fc1.weight") or "intermediate" in name]
    assert sorted(set(blocks)) == sorted(blocks)[:: len(blocks) // len(set(blocks))]
    assert len(set(blocks)) == 3
    assert numbers["embeddings.cls_token"] == 0


def test_early_layers_have_smaller_rates() -> None:
    embedder = Embedder(Blocks((2,)), 2)
    config = TrainConfig.of(data="digits", lr=1.0, layer_decay=0.5, lr_embedding=3.0)
    rates = {group["name"]: group["lr"] for group in param_groups(embedder, nn.Identity(), config)}
    assert rates == {
        "trunk 0": 1 / 16,
        "trunk 1": 1 / 8,
        "trunk 2": 1 / 4,
        "trunk 3": 1 / 2,
        "trunk 4": 1,
        "embedding": 3,
    }
    alike = param_groups(embedder, nn.Identity(), config.replace(layer_decay=1.0))
    assert [group["name"] for group in alike] == ["trunk", "embedding"]


def test_the_last_stage_holds_half_of_the_weights(timm) -> None:
    for name in ("test_resnet", "test_vit"):
        trunk = make_trunk(f"timm:{name}", (3, 160, 160))
        chosen = last_stage(trunk)
        sizes = {parameter: value.numel() for parameter, value in trunk.named_parameters()}
        held = sum(sizes[parameter] for parameter in chosen) / sum(sizes.values())
        assert 0.5 <= held < 1
        numbers = layer_numbers(trunk)
        assert min(numbers[parameter] for parameter in chosen) > max(numbers[p] for p in sizes.keys() - chosen)


@pytest.mark.parametrize("freeze_bn", [None, False])
def test_a_run_of_the_last_stage_leaves_the_rest_as_it_was(config, weights, tmp_path, freeze_bn) -> None:
    run = train(config.replace(last_stage=True, freeze_bn=freeze_bn), tmp_path / "run", progress=False)
    trunk = load_embedder(run).trunk
    chosen = last_stage(trunk)
    before = load_file(weights)
    inner = {name: value for name, value in trunk.module.inner.state_dict().items() if "num_batches" not in name}
    moved = {name for name, value in inner.items() if not torch.equal(value, before[name])}
    trained = {name.removeprefix("module.inner.") for name in chosen}
    assert moved
    assert {name.rpartition(".")[0] for name in moved} <= {name.rpartition(".")[0] for name in trained}
    statistics = [name for name in moved if "running" in name]
    assert bool(statistics) == (freeze_bn is False)


def test_batch_normalization_of_pretrained_trunks_stands_still_by_default(config, weights, tmp_path) -> None:
    assert building.build(config).config.freeze_bn is True
    assert building.build(config.replace(pretrained=False)).config.freeze_bn is False
    assert building.build(config.replace(pretrained=False, lora=4)).config.freeze_bn is True
    run = train(config.replace(ema=0.5), tmp_path / "run", progress=False)
    kept = load_embedder(run).trunk.module.inner.state_dict()
    for name, value in load_file(weights).items():
        if "running" in name or ".bn" in name:
            assert torch.equal(kept[name], value), name
    assert json.loads((run.folder / "config.json").read_text())["freeze_bn"] is True


def test_adapters_are_added_in_as_peft_does(timm, peft) -> None:
    for name in ("test_resnet", "test_vit", "test_efficientnet"):
        torch.manual_seed(1)
        trunk = make_trunk(f"timm:{name}", (3, 160, 160)).eval()
        plain = {key: value.clone() for key, value in trunk.state_dict().items()}
        images = torch.rand(2, 3, 160, 160)
        before = trunk(images)
        chosen = add_adapters(trunk, 4, 8.0)
        assert {key for key, parameter in trunk.named_parameters() if parameter.requires_grad} == {
            f"{layer}.lora_{side}.default.weight" for layer in chosen for side in "AB"
        }
        torch.testing.assert_close(trunk(images), before)  # B is zero at the start
        with torch.no_grad():
            for key, parameter in trunk.named_parameters():
                if ".lora_B" in key:
                    parameter.normal_(std=0.1)
        after = trunk(images)
        assert not torch.allclose(after, before, rtol=1e-2)
        state = merged(trunk.state_dict(), 2.0)
        assert state.keys() == plain.keys()
        again = make_trunk(f"timm:{name}", (3, 160, 160)).eval()
        again.load_state_dict(state)
        torch.testing.assert_close(again(images), after, rtol=1e-4, atol=1e-5)


def test_ranks_that_no_layer_takes_are_refused() -> None:
    with pytest.raises(
        TrunkError, match="rank 9: every layer of the trunk is too small for it; the largest takes up to rank 2"
    ):
        add_adapters(Blocks((2,)), 9, 1.0)
    with pytest.raises(TrunkError, match="no linear layer"):
        add_adapters(nn.Conv2d(3, 4, 3), 2, 1.0)


def test_attention_of_torch_is_not_adapted() -> None:
    """It reads the weight of its output layer without calling it, so that an adapter there would never learn."""
    module = nn.Sequential(
        nn.MultiheadAttention(8, 2), nn.Linear(8, 8), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1, groups=2)
    )
    assert set(adaptable(module)) == {"1", "2"}


def test_a_run_with_adapters_is_a_plain_network_with_its_adapters_beside_it(
    timm, peft, config, weights, tmp_path
) -> None:
    config = config.replace(lora=4, ema=0.5)
    run = train(config, tmp_path / "run", progress=False)
    tensors = load_file(run.folder / "best.safetensors")
    assert not any("lora" in name or "base_layer" in name for name in tensors)
    before = load_file(weights)
    inner = load_embedder(run).trunk.module.inner
    moved = {name for name, value in inner.state_dict().items() if not torch.equal(value, before[name])}
    assert moved
    assert all(name.endswith("weight") and before[name].ndim == 4 for name in moved)
    adapter = run.folder / "adapter"
    assert (adapter / "adapter_model.safetensors").stat().st_size < (run.folder / "best.safetensors").stat().st_size
    model = timm.create_model("test_resnet", num_classes=0)
    model.load_state_dict(before)
    model = peft.PeftModel.from_pretrained(model, str(adapter)).eval()
    images = torch.rand(2, 3, 48, 48)
    torch.testing.assert_close(model(images), inner(images), rtol=1e-4, atol=1e-5)
    rows = {which: embed_run(run, open_items(config.data), which=which) for which in ("best", "last")}
    assert np.isfinite(rows["last"]).all()
    assert not np.allclose(rows["best"], rows["last"])  # the averages, and the weights themselves


def test_adapters_of_a_text_model_open_in_peft_and_here(transformers, peft, tmp_path) -> None:
    base = write_bert(transformers, tmp_path / "base", ("[PAD]", "[UNK]", "red", "blue", "hat", "shoe"))
    rows = "".join(f"{color} {thing},{thing}\n" for thing in ("hat", "shoe") for color in ("red", "blue") * 4)
    (tmp_path / "texts.csv").write_text("text,label\n" + rows)
    data = str(tmp_path / "texts.csv")
    config = TrainConfig.of(data=data, split="rows", trunk=f"transformers:{base}", lora=2, lr_embedding=1e-2, **SPEED)
    run = train(config, tmp_path / "run", progress=False)
    inner = load_embedder(run).trunk.module.inner
    adapter = run.folder / "adapter"
    model = transformers.AutoModel.from_pretrained(base, add_pooling_layer=False)
    model = peft.PeftModel.from_pretrained(model, str(adapter)).eval()
    ids = torch.tensor([[2, 4, 5], [3, 5, 4]])
    expected = inner(input_ids=ids).last_hidden_state
    torch.testing.assert_close(model(input_ids=ids).last_hidden_state, expected, rtol=1e-5, atol=1e-5)
    again = make_trunk(f"transformers:{base}", (3,), weights=adapter).eval()
    torch.testing.assert_close(again.module.inner(input_ids=ids).last_hidden_state, expected, rtol=1e-5, atol=1e-5)
    plain = make_trunk(f"transformers:{base}", (3,)).eval().module.inner(input_ids=ids).last_hidden_state
    assert not torch.allclose(plain, expected, atol=1e-4)
    assert json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"] == "base"


def test_a_run_with_adapters_goes_on_where_it_was_cut_off(config, peft, tmp_path, monkeypatch) -> None:
    config = config.replace(lora=2, steps=None, epochs=3, layer_decay=0.5)
    whole = train(config, tmp_path / "whole", progress=False)
    broken_off(monkeypatch, tmp_path / "broken", whole.step // 2, config)
    assert_same(whole.folder, train(None, tmp_path / "broken", resume=True, progress=False).folder)


@pytest.mark.parametrize("name", ["test_vit", "test_resnet"])
def test_activations_that_are_computed_again_give_the_same_gradient(timm, name) -> None:
    torch.manual_seed(0)
    trunk = make_trunk(f"timm:{name}", (3, 160, 160)).eval()
    images = torch.rand(2, 3, 160, 160)
    gradients = []
    for again in (False, True):
        if again:
            checkpoint_gradients(trunk.train())
            for norm in trunk.modules():
                if isinstance(norm, nn.BatchNorm2d):
                    norm.eval()
        trunk.zero_grad()
        trunk(images).square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in trunk.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)
    with pytest.raises(TrunkError, match="gradient_checkpointing: this trunk does not support it"):
        checkpoint_gradients(Blocks((2,)))


def test_a_layer_starts_as_the_whitening_of_features() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 5)
    rows = (rng.normal(size=(6, 8))[labels] + 0.5 * rng.normal(size=(30, 8))).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    expected = (
        nearfar.DiscriminantWhitening(normalize=True).fit(rows.astype(float), labels).transform(rows.astype(float))
    )
    weight, bias = whitening_layer(rows, labels, 8)
    found = rows @ weight.T + bias
    scale = np.linalg.norm(found) / np.linalg.norm(expected)
    np.testing.assert_allclose(found @ found.T, scale**2 * expected @ expected.T, rtol=1e-3, atol=1e-3 * scale**2)
    assert np.sqrt(np.mean(weight**2)) == pytest.approx(1 / np.sqrt(24))
    wide, more = whitening_layer(rows, labels, 11)
    np.testing.assert_array_equal(wide[:8], weight)
    assert not wide[8:].any()
    assert not more[8:].any()
    narrow, _ = whitening_layer(rows, labels, 3)
    np.testing.assert_allclose(narrow / narrow[0, 0], weight[:3] / weight[0, 0], rtol=1e-6)


def test_a_layer_starts_as_the_features_or_as_their_principal_components(config) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 3)) @ rng.normal(size=(3, 8))
    narrow = feature_layer(rows, 3)  # all that there is
    for weight in (narrow, feature_layer(rows, 8), feature_layer(rows, 11)):
        found = rows @ weight.T
        np.testing.assert_allclose(found @ found.T, rows @ rows.T, rtol=1e-9)
        assert weight.shape[1] == 8
    loop = building.build(config.replace(embedding_start="features"))
    features = cached_features(loop.trainable.embedder, loop.data.train, **sizes_of(loop.config))
    layer = loop.trainable.embedder.layer
    weight = feature_layer(np.asarray(features.array), loop.config.embedding_dim)
    np.testing.assert_allclose(layer.weight.detach(), weight, rtol=1e-4, atol=1e-6)
    assert not layer.bias.detach().any()


def test_a_run_starts_from_the_whitening_and_is_the_same_where_it_goes_on(config, tmp_path, monkeypatch) -> None:
    config = config.replace(embedding_start="whitening", steps=None, epochs=2)
    loop = building.build(config)
    features = cached_features(loop.trainable.embedder, loop.data.train, **sizes_of(loop.config))
    weight, bias = whitening_layer(np.asarray(features.array), features.labels, 4)
    np.testing.assert_allclose(loop.trainable.embedder.layer.weight.detach(), weight, rtol=1e-4)
    np.testing.assert_allclose(loop.trainable.embedder.layer.bias.detach(), bias, rtol=1e-4)
    whole = train(config, tmp_path / "whole", progress=False)
    broken_off(monkeypatch, tmp_path / "broken", whole.step // 2, config)
    assert_same(whole.folder, train(None, tmp_path / "broken", resume=True, progress=False).folder)


def test_a_resumed_run_mirrors_images_as_it_began(config, tmp_path, monkeypatch) -> None:
    config = config.replace(steps=None, epochs=2, schedule="constant")
    config = TrainConfig.of(**{name: value for name, value in config.to_dict().items() if name in config.given})
    asked = []

    def harmful(*_):
        asked.append(True)
        return Mirroring(0.5, 0.3, 0.0)

    monkeypatch.setattr("nearfar.train.mirroring.compare_mirrored", harmful)
    whole = train(config, tmp_path / "whole", progress=False)
    assert whole.config.augment == "resized_crop(area=(0.6, 1))"
    broken_off(monkeypatch, tmp_path / "broken", whole.step // 2, config)
    count = len(asked)
    assert_same(whole.folder, train(config, tmp_path / "broken", resume=True, progress=False).folder)
    assert len(asked) == count
    given = train(config.replace(augment="mirror"), tmp_path / "given", progress=False)
    assert given.config.augment == "mirror"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"lora": 4, "freeze_trunk": True}, "freeze_trunk and lora both set which weights are trained"),
        ({"lora": 4, "last_stage": True}, "last_stage and lora both set which weights are trained"),
        ({"lora": 4, "episodes": "maml"}, "episodes train all weights, so lora must not"),
        ({"lora_alpha": 4}, "so lora, their rank, must be given"),
        ({"embedding_start": "whitening", "network_weights": "a"}, "network_weights contain an embedding layer"),
        ({"layer_decay": 1.5}, "layer_decay"),
        ({"lora": 0}, "lora"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(fields, said) -> None:
    with pytest.raises(TrainError, match=said):
        TrainConfig.of(data="digits", **fields)
