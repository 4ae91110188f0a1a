"""What readers look for on the site leads to the page that answers it."""

import re
from functools import cache
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
SHOWN = 3  # results at the top, among which the page must be
TITLE, PART_OF_TITLE, WORD = 15, 7, 5  # what the search of Sphinx gives a page for a word in its titles, or in its text
STOP = re.findall(
    r"\w+",
    "a and are as at be but by for if in into is it near no not of on or such that the their then there "
    "these they this to was will with how do i my what why which when where can does",
)
PHRASES = {
    "install": "install",
    "install cuda": "install",
    "install windows": "install",
    "macos": "install",
    "conda": "install",
    "pip extras": "install",
    "cpu only torch": "install",
    "offline install": "install",
    "upgrade": "install",
    "quick start": "first",
    "first model": "first",
    "tutorial": "first",
    "what is an embedding": "basics",
    "what do the scores mean": "evaluation",
    "nan loss": "troubleshooting",
    "loss constant": "troubleshooting",
    "loss not decreasing": "troubleshooting",
    "collapse": "troubleshooting",
    "out of memory": "troubleshooting",
    "training slow": "troubleshooting",
    "worse than raw": "troubleshooting",
    "import error": "troubleshooting",
    "no module named": "troubleshooting",
    "faq": "faq",
    "questions": "faq",
    "license": "faq",
    "need a gpu": "faq",
    "reproducible": "faq",
    "how many images": "faq",
    "vector database": "faq",
    "glossary": "glossary",
    "trunk": "glossary",
    "anchor": "glossary",
    "cite": "cite",
    "bibtex": "cite",
    "changelog": "changelog",
    "release notes": "changelog",
    "contributing": "contributing",
    "add a method": "contributing",
    "vulnerability": "security",
    "security": "security",
    "which loss": "objectives",
    "own loss": "own_loss",
    "own training loop": "own_loop",
    "what a run keeps": "keeping",
    "choose settings": "settings",
    "miner": "objectives",
    "which learner": "learners",
    "fine-tuning": "pretrained",
    "pretrained weights": "pretrained",
    "resume": "training",
    "onnx export": "export",
    "shell completion": "commands",
    "several gpus": "gpus",
    "threshold": "evaluation",
    "verification": "evaluation",
    "identification": "evaluation",
    "duplicates": "searching",
    "wrong labels": "searching",
    "approximate search": "searching",
    "milvus": "service",
    "faces": "faces",
    "pytorch-metric-learning": "switching",
    "csv columns": "data",
    "zip archives": "data",
    "few-shot": "items",
    "kernel": "learners",
    "cosine similarity": "glossary",
    "how many images per class": "faq",
    "export to onnx int8": "export",
    "face verification threshold": "faces",
    "deduplicate images": "glossary",
    "siamese network": "glossary",
    "person re-identification": "evaluation",
    "hyperparameter search": "glossary",
    "class imbalance": "glossary",
    "overfitting": "glossary",
    "unsupervised": "glossary",
    "anomaly detection": "glossary",
    "entity resolution": "glossary",
    "reverse image search": "glossary",
    "speaker recognition": "glossary",
    "confidence interval": "glossary",
    "qdrant": "faq",
    "rest api": "glossary",
    "quantization": "glossary",
    "early stopping": "glossary",
    "data leakage": "glossary",
    "active learning": "glossary",
    "pgvector": "service",
    "which loss to use": "objectives",
    "jupyter notebook": "install",
    "docker": "install",
    "docker gpu": "install",
    "dockerfile": "install",
    "colab": "install",
    "google colab": "install",
    "jupyter": "install",
    "kubernetes": "install",
    "slurm": "searching",
    "windows": "install",
    "wsl": "install",
    "apple silicon": "install",
    "mac m1": "install",
    "mps": "install",
    "amd rocm": "install",
    "multi gpu": "glossary",
    "distributed training": "gpus",
    "ddp": "glossary",
    "fsdp": "glossary",
    "resume training": "training",
    "imbalanced": "glossary",
    "threshold for verification": "evaluation",
    "onnx": "export",
    "tensorrt": "glossary",
    "hugging face": "export",
    "commercial use": "faq",
    "telemetry": "faq",
    "python version": "install",
    "gpu memory": "gpus",
    "mixed precision": "glossary",
    "learning rate": "settings",
    "batch size": "training",
    "augmentation": "settings",
    "lora": "photos",
    "vision transformer": "pretrained",
    "dinov2": "pretrained",
    "clip": "items",
    "whisper": "sounds",
    "wandb": "settings",
    "mlflow": "settings",
    "tensorboard": "settings",
    "excel": "install",
    "s3": "data",
    "t-sne": "glossary",
    "umap": "glossary",
    "faiss": "service",
    "hnsw": "service",
    "pinecone": "faq",
    "elasticsearch": "faq",
    "lancedb": "service",
    "triplet loss": "objectives",
    "infonce": "glossary",
    "confusion matrix": "evaluation",
    "roc curve": "glossary",
    "missing values": "tables",
    "categorical columns": "glossary",
    "sklearn pipeline": "tables",
    "grid search": "learners",
    "cross validation": "learners",
    "time series": "items",
    "multi-label": "glossary",
    "save model": "export",
    "load model": "export",
    "deploy": "glossary",
    "mobile": "glossary",
    "javascript": "export",
    "lightning": "own_loop",
    "progress bar": "evaluation",
    "model card": "export",
    "visualize embeddings": "glossary",
    "feature importance": "glossary",
    "custom loss": "own_loss",
    "custom dataset": "glossary",
    "api key": "service",
    "authentication": "glossary",
    "hybrid search": "glossary",
    "transfer learning": "glossary",
    "freeze layers": "glossary",
    "knowledge distillation": "glossary",
    "larger than memory": "learners",
    "tensorflow": "glossary",
    "keras": "glossary",
    "debug": "troubleshooting",
    "report a bug": "troubleshooting",
    "uninstall": "install",
    "yaml": "glossary",
    "stop training": "training",
    "how long does training take": "training",
    "near duplicates": "searching",
    "face detection": "glossary",
    "product search": "products",
    "recommendation": "glossary",
    "statistical significance": "glossary",
    "few shot": "items",
    "mislabeled": "glossary",
    "use your own network": "pretrained",
    "own data": "data",
    "filter by price": "service",
}


def words_of(text):
    """Return the words of a text without endings, roughly as the index of Sphinx has them."""
    words = re.findall(r"\w+", text.lower())
    return {re.sub(r"(ies|y)$", "i", re.sub(r"(ing|ed|es|(?<!s)s|e)$", "", word)) for word in words if word not in STOP}


@cache
def pages():
    """Return the words of each guide: those of its title, of its headings, and of its text."""
    found = {}
    for path in DOCS.glob("*.md"):
        text = path.read_text()
        included = re.findall(r"^```\{include\} \.\./(\S+)$", text, re.M)
        text = "\n".join([text, *((DOCS.parent / name).read_text() for name in included)])
        headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M)
        headings += (
            re.findall(r"^(\w.*)\n  \w", text, re.M) if path.stem == "glossary" else []
        )  # terms are in the index
        found[path.stem] = words_of(headings[0]), words_of(" ".join(headings[1:])), words_of(text)
    return found


def results(phrase):
    """Return the guides that have all words of a phrase, the best first."""
    wanted = words_of(phrase)
    scores = {}
    for name, (title, headings, text) in pages().items():
        if wanted <= text | title | headings:
            scores[name] = sum(
                TITLE * (word in title) + PART_OF_TITLE * (word in headings) + WORD * (word in text) for word in wanted
            )
    return sorted(scores, key=lambda name: -scores[name])


def test_there_are_many_phrases():
    assert len(PHRASES) >= 180


@pytest.mark.parametrize("phrase", PHRASES)
def test_a_phrase_leads_to_the_page_that_answers_it(phrase):
    found = results(phrase)
    assert PHRASES[phrase] in found[:SHOWN], found


def test_a_phrase_that_no_page_has_is_not_found():
    assert not results("zeppelin maintenance")
