"""Adapters of peft are added to their base as peft adds them, and what cannot be added is refused in one line."""

import json

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import save_file
from torch import nn

import nearfar
from nearfar.deep.networks.peft_folder import add_adapter_of
from nearfar.deep.networks.trunks import find_preprocessing, make_trunk
from nearfar.deep.networks.weights import Provenance, TrunkError
from nearfar.train import TrainConfig
from nearfar.train.network import make_embedder

from ..towers import write_bert

WORDS = ("[PAD]", "[UNK]", "red", "blue", "hat")
ROWS = torch.tensor([[2.0, 3.0, 4.0, 1.0], [4.0, 2.0, -1.0, -1.0]])
SETTINGS = {
    "plain": {"target_modules": ["query", "value"]},
    "every layer": {"target_modules": "all-linear", "lora_alpha": 3},
    "rank stabilized": {"target_modules": ["value"], "use_rslora": True, "r": 4},
    "several ranks": {"target_modules": ["query", "key"], "rank_pattern": {"key": 1}},
    "biases too": {"target_modules": ["query"], "bias": "all"},
    "words": {"target_modules": ["word_embeddings", "dense"]},
    "a layer as a whole": {"target_modules": ["query"], "modules_to_save": ["LayerNorm"]},
}


def randomized(model):
    """The model with random numbers in what peft trains, where an adapter changes nothing at first."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


@pytest.mark.parametrize("kind", SETTINGS)
def test_an_adapter_is_added_as_peft_adds_it(transformers, peft, tmp_path, kind):
    base = write_bert(transformers, tmp_path / "base", WORDS)
    model = transformers.AutoModel.from_pretrained(base, add_pooling_layer=False)
    adapted = randomized(peft.get_peft_model(model, peft.LoraConfig(**{"r": 2, **SETTINGS[kind]})))
    adapted.save_pretrained(tmp_path / "adapter")
    trunk = make_trunk(f"transformers:{base}", (4,), weights=tmp_path / "adapter").eval()
    ids = ROWS.clamp(min=0).long()
    with torch.no_grad():
        expected = adapted(input_ids=ids, attention_mask=(ROWS >= 0).long()).last_hidden_state
        found = trunk.module.maps(ROWS)
        plain = make_trunk(f"transformers:{base}", (4,)).eval().module.maps(ROWS)
    torch.testing.assert_close(found[ROWS >= 0], expected[ROWS >= 0], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(found[ROWS >= 0], plain[ROWS >= 0], atol=1e-3)
    assert str(tmp_path / "adapter") in trunk.provenance.source


class Conv1D(nn.Module):
    """The linear layer of GPT-2."""

    def __init__(self, d, k):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(d, k))


class Tower(nn.Module):
    """One layer of each kind."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.wide = nn.Conv2d(4, 3, 2)
        self.of_gpt = Conv1D(4, 3)
        self.words = nn.Embedding(5, 4)
        self.classifier = nn.Linear(3, 2)


def factors(*layers, prefix="", rank=2):
    """The factors of layers of `Tower`, under the names of peft."""
    generator = torch.Generator().manual_seed(1)
    shapes = {
        "linear": ((rank, 4), (3, rank)),
        "wide": ((rank, 4, 2, 2), (3, rank, 1, 1)),
        "of_gpt": ((rank, 4), (3, rank)),
        "words": ((rank, 5), (4, rank)),
    }
    names = {"words": ("lora_embedding_A", "lora_embedding_B")}
    return {
        f"base_model.model.{prefix}{layer}.{name}": torch.randn(shape, generator=generator)
        for layer in layers
        for name, shape in zip(names.get(layer, ("lora_A.weight", "lora_B.weight")), shapes[layer], strict=True)
    }


def write_adapter(folder, tensors, **settings):
    """Write an adapter as peft does."""
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 6, **settings}))
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


@pytest.mark.parametrize("prefix", ["", "bert.", "vision_model.encoder."])
def test_the_product_is_that_of_each_kind_of_layer(tmp_path, prefix):
    torch.manual_seed(0)
    tower = Tower()
    before = {name: value.clone() for name, value in tower.state_dict().items()}
    tensors = factors("linear", "wide", "of_gpt", "words", prefix=prefix)
    head = {f"base_model.model.classifier.{name}": torch.ones(2) for name in ("weight", "bias")}
    add_adapter_of(write_adapter(tmp_path / "adapter", tensors | head), tower, Provenance())
    after = tower.state_dict()
    forms = {"linear": "kr,rd->kd", "wide": "kruv,rcij->kcij", "of_gpt": "kr,rd->dk", "words": "kr,rd->dk"}
    for layer, form in forms.items():
        down, up = (value for name, value in tensors.items() if f"{layer}.lora" in name)
        change = after[f"{layer}.weight"] - before[f"{layer}.weight"]
        torch.testing.assert_close(change, 3 * torch.einsum(form, up, down))  # alpha / r = 3
    for name in ("linear.bias", "classifier.weight", "classifier.bias"):
        torch.testing.assert_close(after[name], before[name])


LINEAR = "base_model.model.linear.lora_"
REFUSED = {
    "another method": ({"peft_type": "IA3"}, {}, "peft_type: expected LORA, got 'IA3'"),
    "directions and lengths": ({"use_dora": True}, {}, "use_dora is not supported; merge the adapter"),
    "own scales": ({"alpha_pattern": {"(a+)+$": 3}}, {}, "alpha_pattern is not supported"),
    "another start": ({"init_lora_weights": "pissa"}, {}, "init_lora_weights 'pissa' has changed the base"),
    "no rank": ({"r": -2}, {}, "r: .*>= 1|`r`|Expected `int` >= 1"),
    "one factor": ({}, {f"{LINEAR}A.weight": torch.ones(2, 4)}, "only one of the factors"),
    "two ranks": (
        {},
        {f"{LINEAR}A.weight": torch.ones(2, 4), f"{LINEAR}B.weight": torch.ones(3, 1)},
        "factors of rank 2 and 1: damaged",
    ),
    "another width": (
        {},
        {f"{LINEAR}A.weight": torch.ones(2, 7), f"{LINEAR}B.weight": torch.ones(3, 2)},
        r"another base: its weight is \(3, 7\), and this model's is \(3, 4\)",
    ),
    "another layer": (
        {"base_model_name_or_path": "some/base"},
        {
            "base_model.model.other.lora_A.weight": torch.ones(2, 4),
            "base_model.model.other.lora_B.weight": torch.ones(3, 2),
        },
        "an adapter of another base, 'some/base': it adapts 'other', which this model lacks",
    ),
    "no factors": ({}, {"base_model.model.prompt": torch.ones(2)}, "has no low-rank factors"),
    "another weight": ({}, {"base_model.model.prompt": torch.ones(2), **factors("linear")}, "'prompt' belongs to no w"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_added_is_refused_and_changes_nothing(tmp_path, case):
    settings, tensors, says = REFUSED[case]
    folder = write_adapter(tmp_path / "adapter", tensors or factors("linear"), **settings)
    tower = Tower()
    before = {name: value.clone() for name, value in tower.state_dict().items()}
    with pytest.raises(TrunkError, match=says) as refused:
        add_adapter_of(folder, tower, Provenance())
    assert "\n" not in str(refused.value)
    assert all(torch.equal(value, before[name]) for name, value in tower.state_dict().items())


def test_a_model_with_an_adapter_embeds_and_begins_a_training(transformers, tmp_path):
    base = write_bert(transformers, tmp_path / "base", WORDS)
    names = dict(transformers.AutoModel.from_pretrained(base, add_pooling_layer=False).named_parameters())
    layer = "encoder.layer.0.attention.self.value"
    down, up = torch.ones(2, 8), torch.ones(8, 2)
    tensors = {f"base_model.model.bert.{layer}.lora_A.weight": down, f"base_model.model.bert.{layer}.lora_B.weight": up}
    adapter = write_adapter(tmp_path / "adapter", tensors)
    model = nearfar.load(f"transformers:{base}(pretrained='{adapter}')")
    weight = dict(model.network_.trunk.named_parameters())[f"module.inner.{layer}.weight"]
    torch.testing.assert_close(weight, names[f"{layer}.weight"] + 6)
    assert model.embed(["red hat", "blue hat"]).shape == (2, 8)
    config = TrainConfig.of(data="texts", trunk=f"transformers:{base}", pretrained=adapter)
    torch.testing.assert_close(make_embedder(config, (4,)).trunk.module.inner.get_parameter(f"{layer}.weight"), weight)


def test_files_that_are_damaged_or_missing_are_one_line(tmp_path):
    folder = write_adapter(tmp_path / "adapter", factors("linear"))
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(TrunkError, match=r"without adapter_model.safetensors; weights in other files may run code"):
        add_adapter_of(folder, Tower(), Provenance())
    (folder / "adapter_config.json").write_text("{")
    with pytest.raises(TrunkError, match=r"adapter_config.json: not the settings of an adapter"):
        add_adapter_of(folder, Tower(), Provenance())


def test_an_adapter_without_its_base_is_one_line(transformers, tmp_path):
    folder = write_adapter(tmp_path / "adapter", factors("linear"), base_model_name_or_path="some/base")
    says = "give its base, transformers:FOLDER, the folder of 'some/base', and the adapter as pretrained"
    for shape in ((4,), (3, 16, 16)):
        with pytest.raises(TrunkError, match=says):
            make_trunk(f"transformers:{folder}", shape)
    with pytest.raises(TrunkError, match=says):
        find_preprocessing(f"transformers:{folder}")
    with pytest.raises(TrunkError, match="an adapter needs a base with weights"):
        make_trunk("conv4", (1, 28, 28), weights=folder)
    write_bert(transformers, folder, WORDS)  # transformers would follow the name of another base
    with pytest.raises(TrunkError, match=r"a folder without adapter_config.json"):
        make_trunk(f"transformers:{folder}", (4,))
