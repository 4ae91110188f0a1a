"""Which text model `trunk="auto"` is, of those whose files are in the local cache of the hub."""

from __future__ import annotations

from pathlib import Path

from ..deep.networks.tokens import TOKENIZER

TEXT_TRUNKS = (
    "sentence-transformers/all-mpnet-base-v2",
    "sentence-transformers/all-MiniLM-L6-v2",
    "BAAI/bge-small-en-v1.5",
    "intfloat/e5-small-v2",
    "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
)
"""Models of the hub for "auto" and texts: the first one whose files are in the cache; the second was measured."""
FILES = (TOKENIZER, "config.json", "model.safetensors")


def cached_text_trunk() -> str | None:
    """Return the first of `TEXT_TRUNKS` in the cache of the hub as a trunk, "transformers:FOLDER"; None without any."""
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    for name in TEXT_TRUNKS:
        files = [try_to_load_from_cache(name, file) for file in FILES]
        if all(isinstance(file, str) for file in files):
            return f"transformers:{Path(str(files[0])).parent}"
    return None
