"""Texts as rows of token numbers, made by the tokenizer in a model's folder. Nothing in that file is run as code.

A row has a fixed number of tokens, padded with -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...io.untrusted import parse_json
from .weights import TrunkError

TOKENIZER = "tokenizer.json"
NO_TOKEN = -1
MAX_TOKENS = 128  # per text, if neither tokenizer nor model has a limit: the cost of attention grows with the square


class Tokens:
    """A tokenizer, as stored in `tokenizer.json`.

    Parameters
    ----------
    content : str
        Content of the file.
    source : str
        Name of the model in messages.

    Raises
    ------
    TrunkError
        If the package tokenizers is not installed, or `content` is not a tokenizer.
    """

    def __init__(self, content: str, source: str) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise TrunkError(f"{source}: texts need the package tokenizers: pip install transformers") from error
        try:
            self._tokenizer: Any = Tokenizer.from_str(content)
        except Exception as error:  # the package raises no narrower type
            raise TrunkError(f"{source}: not a tokenizer ({str(error).splitlines()[0]:.150})") from error
        self.content = content
        self.source = source
        limit = self._tokenizer.truncation
        self.max_tokens = int(limit["max_length"]) if limit else MAX_TOKENS
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    @classmethod
    def of_folder(cls, folder: Path) -> Tokens:
        """Read the tokenizer of a model's folder, and the maximum number of tokens of the model."""
        file = folder / TOKENIZER
        if not file.is_file():
            detail = "save it with AutoTokenizer.from_pretrained(...).save_pretrained(FOLDER)"
            raise TrunkError(f"trunk transformers:{folder}: has no {TOKENIZER}, which texts need; {detail}")
        tokens = cls(file.read_text("utf-8"), str(file))
        tokens.max_tokens = min(tokens.max_tokens, _positions(folder))
        return tokens

    def rows(self, texts: Sequence[str], length: int | None = None) -> NDArray[np.float32]:
        """Return the token numbers of texts, (n, length), padded with -1.

        Parameters
        ----------
        texts : sequence of str
            Texts to tokenize.
        length : int, optional
            Number of tokens of a row. Longer texts are truncated, but keep the marks that the tokenizer adds at the
            end. By default, the length of the longest of these texts, up to the limit of tokenizer and model.
        """
        self._tokenizer.enable_truncation(self.max_tokens if length is None else length)
        try:
            numbers = [encoded.ids for encoded in self._tokenizer.encode_batch([str(text) for text in texts])]
        finally:
            self._tokenizer.no_truncation()
        if length is None:
            length = max((len(ids) for ids in numbers), default=1)
        rows = np.full((len(numbers), max(length, 1)), NO_TOKEN, dtype=np.float32)
        for row, ids in zip(rows, numbers, strict=True):
            row[: len(ids)] = ids
        return rows


def _positions(folder: Path) -> int:
    """Return how many tokens the text model in a folder takes, or `MAX_TOKENS` if its settings state no number."""
    try:
        config = parse_json((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return MAX_TOKENS
    settings = config.get("text_config", config) if isinstance(config, dict) else {}
    number = settings.get("max_position_embeddings") if isinstance(settings, dict) else None
    if not isinstance(number, int) or number < 1:
        return MAX_TOKENS
    padding = settings.get("pad_token_id")
    if "roberta" in str(settings.get("model_type")) and isinstance(padding, int):
        return number - (padding + 1)  # models like RoBERTa number positions from the padding token + 1
    return number
