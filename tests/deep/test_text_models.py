"""Folders of text models: they embed as they say that they do, or are refused."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
tokenizers = pytest.importorskip("tokenizers")

from safetensors.torch import load_file, save_file

import nearfar
from nearfar.data import open_items
from nearfar.deep.networks import transformers_text_trunk
from nearfar.deep.networks.tokens import Tokens
from nearfar.deep.networks.transformers_text_trunk import pool_tokens
from nearfar.deep.networks.trunks import find_preprocessing, make_trunk
from nearfar.deep.networks.weights import TrunkError
from nearfar.index import Index
from nearfar.numerics.distances import unit_rows
from nearfar.train import embed_run
from tests.commands import run

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "blue", "green", "shoe", "hat", "coat", "query", "passage", ":"]
TEXTS = ["red shoe", "a green hat and a blue coat", "shoe", "Red HAT", "blue " * 40, "coat : red"]
SMALL = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
OF_ST = "sentence_transformers.models."
MODULES = ["Transformer", "Pooling"]
DENSE = {"in_features": 8, "out_features": 5, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh"}
PROMPTS = {"prompts": {"query": "query : ", "document": "passage : "}, "default_prompt_name": None}


def pooled(mode):
    return {"1_Pooling/config.json": {"word_embedding_dimension": 8, f"pooling_mode_{mode}": True}}


CASES = {
    # files of the folder, kind of model, options of the trunk, prompt's name for the oracle
    "no modules": ({}, "bert", "", None),
    "no modules, for texts that go on": ({}, "llama", "", None),
    "cls": (pooled("cls_token"), "bert", "", None),
    "mean": (pooled("mean_tokens"), "bert", "", None),
    "max": (pooled("max_tokens"), "bert", "", None),
    "mean of the root": (pooled("mean_sqrt_len_tokens"), "bert", "", None),
    "weighted mean": (pooled("weightedmean_tokens"), "bert", "", None),
    "weighted mean, padded left": (pooled("weightedmean_tokens"), "llama, left", "", None),
    "last token": (pooled("lasttoken"), "llama", "", None),
    "last token, padded left": (pooled("lasttoken"), "llama, left", "", None),
    "last token of a BERT": (pooled("lasttoken"), "bert", "", None),
    "new spelling": ({"1_Pooling/config.json": {"embedding_dimension": 8, "pooling_mode": "cls"}}, "bert", "", None),
    "two poolings": ({"1_Pooling/config.json": {"pooling_mode": ["max", "cls"]}}, "bert", "", None),
    "dense": (pooled("mean_tokens") | {"2_Dense/config.json": DENSE}, "bert", "", None),
    "dense without activation or bias": (
        pooled("cls_token")
        | {
            "2_Dense/config.json": DENSE | {"bias": False, "activation_function": "torch.nn.modules.linear.Identity"},
            "3_Normalize/config.json": {},
        },
        "bert",
        "",
        None,
    ),
    "dense as a pickle": (
        pooled("mean_tokens") | {"2_Dense/config.json": DENSE | {"activation_function": "torch.nn.GELU"}},
        "bert, pickled",
        "",
        None,
    ),
    "normalized": (pooled("mean_tokens") | {"2_Normalize/config.json": {}}, "bert", "", None),
    "layer norm": (pooled("mean_tokens") | {"2_LayerNorm/config.json": {"dimension": 8}}, "bert", "", None),
    "dropout": (pooled("cls_token") | {"2_Dropout/config.json": {"dropout": 0.5}}, "bert", "", None),
    "lower case": (
        pooled("mean_tokens") | {"sentence_bert_config.json": {"do_lower_case": True, "max_seq_length": None}},
        "bert",
        "",
        None,
    ),
    "maximum length": (
        pooled("lasttoken") | {"sentence_bert_config.json": {"max_seq_length": 5, "do_lower_case": False}},
        "bert",
        "",
        None,
    ),
    "cut off at the left": (
        pooled("mean_tokens") | {"sentence_bert_config.json": {"max_seq_length": 5}},
        "bert, cut left",
        "",
        None,
    ),
    "longest text of the tokenizer": (pooled("mean_tokens"), "bert, short", "", None),
    "query prompt": (
        pooled("mean_tokens") | {"config_sentence_transformers.json": PROMPTS},
        "bert",
        "(prompt='query')",
        "query",
    ),
    "document prompt": (
        pooled("cls_token") | {"config_sentence_transformers.json": PROMPTS},
        "bert",
        "(prompt='document')",
        "document",
    ),
    "no prompt": (pooled("mean_tokens") | {"config_sentence_transformers.json": PROMPTS}, "bert", "", None),
    "default prompt": (
        pooled("mean_tokens") | {"config_sentence_transformers.json": PROMPTS | {"default_prompt_name": "query"}},
        "bert",
        "",
        None,
    ),
    "prompt that is not pooled": (
        {
            "1_Pooling/config.json": {"pooling_mode_mean_tokens": True, "include_prompt": False},
            "config_sentence_transformers.json": PROMPTS,
        },
        "bert",
        "(prompt='query')",
        "query",
    ),
    "prompt that is not pooled, weighted": (
        {
            "1_Pooling/config.json": {"pooling_mode": ["weightedmean", "cls", "max"], "include_prompt": False},
            "config_sentence_transformers.json": PROMPTS,
        },
        "bert",
        "(prompt='query')",
        "query",
    ),
    "fewer dimensions": (
        pooled("mean_tokens") | {"config_sentence_transformers.json": {"truncate_dim": 3}},
        "bert",
        "",
        None,
    ),
    "half precision": (pooled("cls_token"), "bert, half", "", None),
    "RoBERTa": (pooled("mean_tokens"), "roberta", "", None),
    "encoder of T5": (pooled("mean_tokens") | {"2_Dense/config.json": DENSE}, "t5", "", None),
    "positions that are learned": (pooled("weightedmean_tokens"), "gpt2", "", None),
}


def write_model(folder, kind, files):
    """Write a tiny random model with its tokenizer, and files beside it."""
    name, _, how = kind.partition(", ")
    folder.mkdir()
    model = new_model(name)
    (model.half() if how == "half" else model).save_pretrained(folder)
    write_tokenizer(folder, how, marks=name in ("bert", "roberta"))
    layers = [place.split("/")[0] for place in files if place[0] in "234"]
    modules = [*MODULES, *(layer.split("_")[1] for layer in layers)]
    listed = [
        {"idx": i, "name": str(i), "type": OF_ST + kind, "path": place}
        for i, (kind, place) in enumerate(zip(modules, ["", "1_Pooling", *layers], strict=True))
    ]
    if files:
        (folder / "modules.json").write_text(json.dumps(listed))
    for place, content in files.items():
        (folder / place).parent.mkdir(exist_ok=True)
        content = {"word_embedding_dimension": 8, **content} if place.startswith("1_Pooling") else content
        (folder / place).write_text(json.dumps(content))
    write_layers(folder, files, how)
    return folder


def new_model(name):
    """Return a tiny random model."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": len(WORDS), "pad_token_id": 0, "max_position_embeddings": 48}
    if name == "bert":
        model = transformers.BertModel(transformers.BertConfig(**SMALL, **sizes))
    elif name == "roberta":
        model = transformers.RobertaModel(transformers.RobertaConfig(**SMALL, **sizes))
    elif name == "t5":
        config = transformers.T5Config(d_model=8, d_kv=4, d_ff=16, num_layers=2, num_heads=2, **sizes)
        model = transformers.T5Model(config)
    elif name == "gpt2":
        config = transformers.GPT2Config(n_embd=8, n_layer=2, n_head=2, n_positions=48, vocab_size=len(WORDS))
        model = transformers.GPT2Model(config)
    else:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, **sizes))
    with torch.no_grad():  # larger than at the start of a training, so that texts differ
        for parameter in model.parameters():
            parameter.mul_(3)
    return model


def write_layers(folder, files, how):
    """Write the weights of the layers after the pooling."""
    for place, content in files.items():
        if "Dense" in place:
            weights = {"linear.weight": torch.randn(5, 8)}
            if content["bias"]:
                weights["linear.bias"] = torch.randn(5)
        elif "LayerNorm" in place:
            weights = {"norm.weight": torch.randn(8), "norm.bias": torch.randn(8)}
        else:
            continue
        if how == "pickled":
            torch.save(weights, (folder / place).with_name("pytorch_model.bin"))
        else:
            save_file(weights, (folder / place).with_name("model.safetensors"))


def write_tokenizer(folder, how="", *, marks=True):
    """Write a tokenizer of words, with marks at both ends as BERT has them, or without."""
    transformers = pytest.importorskip("transformers")
    words = {word: i for i, word in enumerate(WORDS)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    if marks:
        marked = {"special_tokens": [("[CLS]", 2), ("[SEP]", 3)]}
        made.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A [SEP]", **marked)
    sides = {"padding_side": "left" if how == "left" else "right"}
    sides |= {"truncation_side": "left" if how == "cut left" else "right"}
    if how == "short":
        sides |= {"model_max_length": 6}
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, **names, **sides).save_pretrained(folder)


def embedded(folder, options=""):
    """Embed the texts with the model in a folder."""
    name = f"transformers:{folder}{options}"
    given = {} if not options else {"prompt": options.split("'")[1]}
    rows = Tokens.of_folder(folder, given).rows(TEXTS)
    trunk = make_trunk(name, (rows.shape[1],)).eval()
    with torch.no_grad():
        found = trunk(torch.from_numpy(rows)).numpy()
    assert found.shape[1] == trunk.num_features
    return found


@pytest.mark.slow  # the import of the peer takes seconds
@pytest.mark.parametrize("case", CASES)
def test_texts_are_embedded_as_by_sentence_transformers(tmp_path, case):
    peer = pytest.importorskip("sentence_transformers")
    files, kind, options, prompt = CASES[case]
    folder = write_model(tmp_path / "model", kind, files)
    model = peer.SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    # one text at a time, because padding at the left moves learned positions
    expected = np.stack([model.encode([text], prompt_name=prompt)[0] for text in TEXTS])
    np.testing.assert_allclose(embedded(folder, options), expected, rtol=1e-5, atol=1e-5)
    assert np.abs(expected - expected[0]).max() > 1e-3


OF_ROLES = {
    "both": {"prompts": {"query": "query : ", "document": "passage : "}},
    "query only": {"prompts": {"query": "query : "}},
    "passage": {"prompts": {"query": "query : ", "passage": "passage : "}},
    "three, and a default": {
        "prompts": {"query": "query : ", "document": "passage : ", "passage": "red ", "other": "blue "},
        "default_prompt_name": "other",
    },
    "document only, and a default": {
        "prompts": {"document": "passage : ", "other": "blue "},
        "default_prompt_name": "other",
    },
}


@pytest.mark.slow  # the import of the peer takes seconds
@pytest.mark.parametrize("pools_prompt", [True, False])
@pytest.mark.parametrize("case", OF_ROLES)
def test_queries_and_documents_have_the_prompts_that_sentence_transformers_gives_them(
    tmp_path, capsys, monkeypatch, case, pools_prompt
):
    peer = pytest.importorskip("sentence_transformers")
    files = {
        "1_Pooling/config.json": {"pooling_mode_mean_tokens": True, "include_prompt": pools_prompt},
        "config_sentence_transformers.json": OF_ROLES[case],
    }
    folder = write_model(tmp_path / "model", "bert", files)
    table = tmp_path / "texts.csv"
    texts = [f"{TEXTS[i % 6]} {WORDS[4 + i % 5]}" for i in range(24)]
    lines = [f'"{text}",{"abcdefgh"[i % 8]}' for i, text in enumerate(texts)]
    table.write_text("\n".join(["text,label", *lines]))
    made, file = tmp_path / "run", tmp_path / "texts.index"
    trained = ["train", table, "--trunk", f"transformers:{folder}", "--rung", "frozen", "--out", made, "--quiet"]
    for words in (trained, ["index", made, table, "-o", file]):
        code, _, err = run(capsys, monkeypatch, *words)
        assert code == 0, err
    model = peer.SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    items = open_items(table)
    close = {"rtol": 1e-5, "atol": 1e-5}
    documents = model.encode_document(texts)
    if case == "passage":  # version 6.2 documents this, but takes an empty prompt, which it adds itself
        documents = model.encode(texts, prompt_name="passage")
    np.testing.assert_allclose(Index.load(file).embeddings, documents, **close)
    queries = model.encode_query(texts)
    np.testing.assert_allclose(embed_run(made, items, prompt="query"), queries, **close)
    np.testing.assert_allclose(embed_run(made, items), model.encode(texts), **close)
    assert np.abs(queries - documents).max() > 1e-2
    expected = 1 - unit_rows(queries) @ unit_rows(documents).T
    others = expected.copy()
    np.fill_diagonal(others, np.inf)
    for words, distances in (
        ([texts[7], "-k", 24], expected[[7]]),
        ([table, "-k", 24], expected),
        ([table, "-k", 23, "--exclude-self"], others),
    ):
        code, _, err = run(capsys, monkeypatch, "search", file, *words, "-o", tmp_path / "hits.csv", "--overwrite")
        assert code == 0, err
        found = np.genfromtxt(tmp_path / "hits.csv", delimiter=",", skip_header=1, usecols=2)
        sorted_rows = np.sort(distances, axis=1)
        np.testing.assert_allclose(found, sorted_rows[np.isfinite(sorted_rows)], atol=1e-5)
        (tmp_path / "hits.csv").unlink()


def test_a_prompt_that_is_given_is_that_of_queries_and_documents_too(tmp_path):
    files = pooled("mean_tokens") | {"config_sentence_transformers.json": PROMPTS}
    folder = write_model(tmp_path / "model", "bert", files)
    assert Tokens.of_folder(folder).prompts == {"query": ("query : ", 0), "document": ("passage : ", 0)}
    assert Tokens.of_folder(folder, {"prompt": "query"}).prompts == {}


def test_texts_of_similar_length_are_computed_together(tmp_path, monkeypatch):
    """Features and gradients are those of each text alone, and few places are padding, also in a training."""
    trunk = transformers_text_trunk.build_text_trunk(new_model("bert").eval(), None, {})
    lengths = torch.randint(1, 40, (24,), generator=torch.Generator().manual_seed(0))
    lengths[5] = 0
    rows = torch.where(torch.arange(40) < lengths[:, None], 5.0, -1.0)
    alone = torch.cat([trunk(row[None]) for row in rows])
    alone.square().sum().backward()
    expected = [parameter.grad.clone() for parameter in trunk.parameters() if parameter.grad is not None]
    trunk.zero_grad()
    monkeypatch.setattr(transformers_text_trunk, "TOKENS_ON_PROCESSOR", 80)
    shapes = []
    trunk.inner.register_forward_pre_hook(
        lambda _, args, given: shapes.append(given["input_ids"].shape), with_kwargs=True
    )
    together = trunk(rows)
    together.square().sum().backward()
    found = [parameter.grad for parameter in trunk.parameters() if parameter.grad is not None]
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    assert all(shape.numel() <= 80 for shape in shapes)
    assert sum(shape.numel() for shape in shapes) < 1.2 * lengths.sum()


def test_a_text_is_cut_off_where_the_positions_of_its_model_end(tmp_path):
    for name in ("bert", "roberta", "gpt2"):
        folder = write_model(tmp_path / name, name, {})
        limit = Tokens.of_folder(folder).max_tokens
        assert limit == (47 if name == "roberta" else 48), name
        make_trunk(f"transformers:{folder}", (limit,))


def test_pooling_counts_only_the_tokens_of_each_text():
    tokens = torch.tensor([[[1.0], [4.0], [-7.0]], [[2.0], [9.0], [9.0]]])
    counted = torch.tensor([[True, True, True], [True, False, False]])
    expected = {
        "mean": [-2 / 3, 2.0],
        "cls": [1.0, 2.0],
        "max": [4.0, 2.0],
        "mean_sqrt_len_tokens": [-2 / 3**0.5, 2.0],
        "weightedmean": [-12 / 6, 2.0],
        "lasttoken": [-7.0, 2.0],
    }
    for mode, values in expected.items():
        found = pool_tokens(tokens, counted, mode)
        torch.testing.assert_close(found, torch.tensor(values)[:, None], msg=mode)


def test_a_pooling_may_be_given(transformers, tmp_path):
    folder = write_model(tmp_path / "model", "bert", pooled("mean_tokens"))
    name = f"transformers:{folder}(pool='cls')"
    assert find_preprocessing(name) is None
    rows = torch.from_numpy(Tokens.of_folder(folder).rows(TEXTS))
    with torch.no_grad():
        trunk = make_trunk(name, (rows.shape[1],)).eval()
        torch.testing.assert_close(trunk(rows), trunk.module.maps(rows)[:, 0])
    assert "cls" in repr(trunk)


REFUSED = {
    # file, its content, words of the error
    "unknown module": ("modules.json", [OF_ST + "Transformer", OF_ST + "Pooling", OF_ST + "CNN"], "CNN is not supp"),
    "own code": ("modules.json", [OF_ST + "Transformer", OF_ST + "Pooling", "mine.Layer"], "files must not run code"),
    "no pooling": ("modules.json", [OF_ST + "Transformer", OF_ST + "Normalize"], "begin with Transformer and Pooling"),
    "one module": ("modules.json", [OF_ST + "CLIPModel"], "expected 2 to 16 modules, got 1"),
    "no list": ("modules.json", {}, "expected a list of modules"),
    "unknown pooling": ("1_Pooling/config.json", {"pooling_mode": "median"}, "must be one of cls, max, mean"),
    "other flag": ("1_Pooling/config.json", {"pooling_mode_median": True}, "pooling_mode_median is not supported"),
    "another model": ("config_sentence_transformers.json", {"model_type": "CrossEncoder"}, "got 'CrossEncoder'"),
    "prompts": ("config_sentence_transformers.json", {"prompts": ["a"]}, "expected a text for each name"),
    "default": ("config_sentence_transformers.json", {"default_prompt_name": "q"}, "the name of a prompt, got 'q'"),
    "dimensions": ("config_sentence_transformers.json", {"truncate_dim": -1}, "truncate_dim: Expected `int` >= 1"),
    "length": ("sentence_bert_config.json", {"max_seq_length": "many"}, "max_seq_length: expected a positive integer"),
    "short": ("sentence_bert_config.json", {"max_seq_length": 2}, "expected at least 3 tokens, got 2"),
    "case": ("sentence_bert_config.json", {"do_lower_case": 1}, "do_lower_case: expected true or false"),
    "task": ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "expected 'feature-extraction'"),
    "expansion": ("sentence_bert_config.json", {"query_expansion": {"length": 3}}, "query_expansion=.* is not supp"),
    "no JSON": ("1_Pooling/config.json", "{", "config.json is damaged"),
    "deep": ("1_Pooling/config.json", "[" * 5000, "are nested in each other"),
    "tokens": ("tokenizer_config.json", {"tokenizer_class": 7}, "its tokenizer cannot be used"),
}


def test_a_folder_that_lacks_a_file_is_refused_or_embeds_the_same(transformers, tmp_path):
    """An unfinished download embeds nothing in another way: only files that change nothing here may be missing."""
    files = pooled("cls_token") | {"2_LayerNorm/config.json": {"dimension": 8}, "3_Dense/config.json": DENSE}
    files |= {"4_Normalize/config.json": {}, "config_sentence_transformers.json": PROMPTS}
    folder = write_model(tmp_path / "model", "bert", files)
    expected = nearfar.load(f"transformers:{folder}").embed(TEXTS)
    told = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        kept = file.read_bytes()
        file.unlink()
        name = file.relative_to(folder).as_posix()
        try:
            np.testing.assert_allclose(nearfar.load(f"transformers:{folder}").embed(TEXTS), expected, atol=1e-6)
        except TrunkError as error:
            told[name] = str(error)
        file.write_bytes(kept)
    layers = ["1_Pooling/config.json", "2_LayerNorm/config.json", "2_LayerNorm/model.safetensors"]
    layers += ["3_Dense/config.json", "3_Dense/model.safetensors"]
    assert list(told) == [*layers, "config.json", "model.safetensors", "modules.json", "tokenizer.json"]
    for name, words in told.items():
        assert name.rpartition("/")[2] in words
        assert len(words.splitlines()) == 1


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_reproduced_is_refused_in_one_line(transformers, tmp_path, case):
    file, content, says = REFUSED[case]
    folder = write_model(tmp_path / "model", "bert", pooled("mean_tokens"))
    if file == "modules.json" and isinstance(content, list):
        paths = ["", "1_Pooling", "2_More"]
        content = [{"type": kind, "path": path} for kind, path in zip(content, paths, strict=False)]
    (folder / file).write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(TrunkError, match=says) as refused:
        Tokens.of_folder(folder)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("path", ["../secret", "/etc", "a/../../b", 7, "C:\\x", "\0"])
def test_modules_lie_inside_the_folder(transformers, tmp_path, path):
    folder = write_model(tmp_path / "model", "bert", pooled("mean_tokens"))
    modules = [{"type": OF_ST + "Transformer", "path": ""}, {"type": OF_ST + "Pooling", "path": path}]
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(TrunkError, match="expected the path of a folder inside that of the model"):
        Tokens.of_folder(folder)


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        ({"activation_function": "os.system"}, "expected one of torch.nn, got 'os.system'"),
        ({"activation_function": "torch.nn.modules.loading.Any"}, "Invalid enum value 'Any'"),
        ({"use_residual": True}, "use_residual is not supported"),
        ({"in_features": 10**12}, "in_features: Expected `int` <= 65536"),
        ({"module_input_name": "token_embeddings"}, "expected 'sentence_embedding'"),
        ({"in_features": 7}, "does not fit|not fit"),
    ],
)
def test_layers_are_checked(transformers, tmp_path, layer, says):
    files = pooled("mean_tokens") | {"2_Dense/config.json": DENSE}
    folder = write_model(tmp_path / "model", "bert", files)
    (folder / "2_Dense" / "config.json").write_text(json.dumps(DENSE | layer))
    with pytest.raises(TrunkError, match=says):
        make_trunk(f"transformers:{folder}", (8,))


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("pool='median'", "pool: expected model or one of cls, max"),
        ("prompt='qurey'", "the folder has the prompts document, query, got 'qurey'; a prompt itself ends with"),
        ("prompt=3", "prompt: expected a text, got 3"),
    ],
)
def test_options_are_checked(transformers, tmp_path, option, says):
    files = pooled("mean_tokens") | {"config_sentence_transformers.json": PROMPTS}
    folder = write_model(tmp_path / "model", "bert", files)
    with pytest.raises(TrunkError, match=says):
        make_trunk(f"transformers:{folder}({option})", (8,))


def test_weights_in_several_files_lie_in_the_folder(transformers, tmp_path):
    folder = write_model(tmp_path / "model", "bert", pooled("mean_tokens"))
    rows = torch.tensor([[1.0, 2.0, 3.0]])
    expected = make_trunk(f"transformers:{folder}", (3,)).eval()(rows)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = {name: f"model-{number % 2}.safetensors" for number, name in enumerate(weights)}
    for file in set(names.values()):
        part = {name: weights[name] for name in weights if names[name] == file}
        save_file(part, folder / file, metadata={"format": "pt"})
    save_file(weights, tmp_path / "secret.safetensors", metadata={"format": "pt"})
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": names}))
    torch.testing.assert_close(make_trunk(f"transformers:{folder}", (3,)).eval()(rows), expected)
    for place in ("../secret.safetensors", str(tmp_path / "secret.safetensors"), 7):
        index.write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(names, place)}))
        with pytest.raises(TrunkError, match="expected names of files in its folder, got"):
            make_trunk(f"transformers:{folder}", (3,))
    index.write_text(json.dumps({"metadata": {}, "weight_map": names}))
    (folder / "model-1.safetensors").unlink()
    with pytest.raises(TrunkError, match=r"model-1.safetensors is missing; download all files of the model"):
        find_preprocessing(f"transformers:{folder}")


def test_a_router_is_refused_by_its_name(transformers, tmp_path):
    folder = write_model(tmp_path / "model", "bert", pooled("mean_tokens"))
    (folder / "tokenizer.json").unlink()
    (folder / "modules.json").write_text(json.dumps([{"type": OF_ST + "Router", "path": ""}] * 2))
    with pytest.raises(ValueError, match="Router"):
        nearfar.load(f"transformers:{folder}")


def test_names_of_the_hub_need_a_folder(transformers):
    with pytest.raises(TrunkError, match="hf download some/model --local-dir FOLDER"):
        make_trunk("transformers:some/model", (8,), pretrained=True)
