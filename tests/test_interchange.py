"""The training loops of other libraries on the page of the exchange run as printed, where these are installed."""

import os
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from .processes import run_in_processes

PAGE = Path(__file__).parent.parent / "docs" / "interchange.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
PACKAGES = ("pandas", "datasets", "transformers", "skorch", "pytorch_lightning", "sentence_transformers")


def test_every_loop_has_fewer_than_forty_lines():
    assert len(BLOCKS) == 7
    assert all(len(block.splitlines()) < 40 for block in BLOCKS)


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split("\n")[0][:30])
def test_the_code_of_the_page_runs(block, tmp_path, monkeypatch):
    for package in PACKAGES:
        if re.search(rf"(?:import|from) {package}\b", block):
            pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    if "text-model" in block:
        make_text_model(tmp_path / "text-model")
    found = {}
    exec(block, found)
    if "trained-model" in block:
        assert (tmp_path / "trained-model" / "modules.json").is_file()
    if "value" in found:
        assert torch.isfinite(found["value"])


@pytest.mark.slow
@pytest.mark.parametrize(("loop", "package"), [("# skorch", "skorch"), ("# Lightning", "pytorch_lightning")])
def test_two_processes_train_what_one_does(loop, package):
    """The loops of libraries whose scripts in `examples/` are not tested in two processes, or only there."""
    pytest.importorskip(package)
    pytest.importorskip("accelerate")
    (block,) = (block for block in BLOCKS if block.startswith(loop))
    alone, together = (run_in_processes(train_by, world, block, imported=package) for world in (1, 2))
    last = re.compile(r"loss at the end: (\S+)")
    assert len(last.findall(alone)) == 1
    assert last.findall(together) == last.findall(alone) * 2


def train_by(rank, world, block):
    """Run a loop of the page in one of several processes, and print the loss of its last epoch."""
    os.environ |= {"LOCAL_WORLD_SIZE": str(world), "TORCHELASTIC_RUN_ID": "none"}
    torch.manual_seed(0)
    found = {}
    exec(block, found)
    print(f"loss at the end: {float(found['value']):.4f}", flush=True)


def make_text_model(folder):
    """Write a tiny model of sentence-transformers with random weights."""
    from sentence_transformers import SentenceTransformer, models
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers import models as kinds
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "the", "one", "more", "red", "blue", "shoe", "hat"]
    tokenizer = Tokenizer(kinds.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "model_max_length": 8}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder / "bert")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    BertModel(BertConfig(vocab_size=len(words), max_position_embeddings=8, **sizes)).save_pretrained(folder / "bert")
    inner = models.Transformer(str(folder / "bert"))
    SentenceTransformer(modules=[inner, models.Pooling(8)]).save(str(folder))
