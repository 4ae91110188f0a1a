"""Texts as rows of token numbers, made by the tokenizer in a model's folder. Nothing in that folder is run as code.

A row has a fixed number of tokens, padded with -1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...io.untrusted import parse_json
from ...quoting import shorten
from .text_settings import read_text_settings
from .weights import TrunkError

TOKENIZER = "tokenizer.json"
NO_TOKEN = -1
TOKENIZER_CONFIG = "tokenizer_config.json"
UNLIMITED = 2**20
"""Tokenizers without a limit state one above this."""
REASON = 200
MAX_TOKENS = 128  # per text, if neither tokenizer nor model has a limit: the cost of attention grows with the square


class Tokens:
    """A tokenizer, as stored in `tokenizer.json`.

    Parameters
    ----------
    content : str
        Content of the file.
    source : str
        Name of the model in messages.
    prompt : str
        Text that is put in front of each text.
    prompts : dict of str to (str, int), optional
        The same for queries and documents, if it differs between them, with the number of its tokens that pooling
        leaves out.

    Raises
    ------
    TrunkError
        If the package tokenizers is not installed, or `content` is not a tokenizer.
    """

    def __init__(
        self, content: str, source: str, prompt: str = "", prompts: Mapping[str, tuple[str, int]] | None = None
    ) -> None:
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
        self.prompt = prompt
        self.prompts = dict(prompts or {})
        limit = self._tokenizer.truncation
        self.max_tokens = int(limit["max_length"]) if limit else MAX_TOKENS
        self._side = limit["direction"] if limit else "right"
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    @classmethod
    def of_folder(cls, folder: Path, options: Mapping[str, Any] | None = None) -> Tokens:
        """Read the tokenizer of a model's folder, with the prompt and the maximum number of tokens of the model.

        Parameters
        ----------
        folder : Path
            Folder of the model.
        options : mapping, optional
            Options of the user, as in `read_text_settings`.
        """
        file = folder / TOKENIZER
        settings = read_text_settings(folder, options or {})  # which names modules that are not supported
        if not file.is_file():
            detail = "save it with AutoTokenizer.from_pretrained(...).save_pretrained(FOLDER)"
            raise TrunkError(f"trunk transformers:{folder}: has no {TOKENIZER}, which texts need; {detail}")
        try:
            content = file.read_text("utf-8")
        except ValueError as error:
            raise TrunkError(f"{file}: not a tokenizer ({error})") from error
        tokens = cls(content, str(file), settings.prompt)
        if (folder / TOKENIZER_CONFIG).is_file():
            tokens._set_up(folder)
        if settings.lower_case:
            tokens._lower_case()
        tokens.max_tokens = min(settings.max_tokens or tokens.max_tokens, _positions(folder))
        fewest = tokens._tokenizer.num_special_tokens_to_add(False) + 1
        if tokens.max_tokens < fewest:
            raise TrunkError(f"trunk transformers:{folder}: expected at least {fewest} tokens, got {tokens.max_tokens}")
        tokens._tokenizer.enable_truncation(tokens.max_tokens, direction=tokens._side)
        tokens.content = tokens._tokenizer.to_str()  # a checkpoint stores what was set here, too
        tokens._tokenizer.no_truncation()
        for role, prompt in settings.prompts.items():
            count = 0 if settings.pools_prompt else tokens.count_prompt(prompt)
            tokens.prompts[role] = (prompt, count)
        return tokens

    def _set_up(self, folder: Path) -> None:
        """Set up the tokenizer as transformers does: its settings add marks at the ends, and limit the length."""
        try:
            from transformers import AutoTokenizer

            whole = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
            self._tokenizer = whole.backend_tokenizer
            kinds = set(whole("a")["token_type_ids"] if "token_type_ids" in whole.model_input_names else [0])
            length = whole.model_max_length
        except Exception as error:  # a damaged folder makes it raise nearly anything
            reason = shorten(" ".join(str(error).split()) or type(error).__name__, REASON)
            raise TrunkError(f"{folder / TOKENIZER_CONFIG}: its tokenizer cannot be used ({reason})") from error
        if kinds - {0}:
            raise TrunkError(f"{folder / TOKENIZER_CONFIG}: tokens of several types are not supported")
        if isinstance(length, int) and 1 <= length < UNLIMITED:
            self.max_tokens = length
        self._side = whole.truncation_side
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def _lower_case(self) -> None:
        """Convert texts to lower case before anything else, as sentence-transformers does."""
        from tokenizers.normalizers import Lowercase, Sequence

        before = self._tokenizer.normalizer
        self._tokenizer.normalizer = Lowercase() if before is None else Sequence([Lowercase(), before])

    def count_prompt(self, prompt: str) -> int:
        """Return the number of tokens at the start of a text that belong to a prompt, with the mark before it."""
        if not prompt:
            return 0
        with_marks = self._tokenizer.encode(prompt)
        return len(with_marks.ids) - with_marks.special_tokens_mask[-1]

    @property
    def vocabulary_size(self) -> int:
        """Number of different tokens."""
        return int(self._tokenizer.get_vocab_size())

    @property
    def truncation_side(self) -> str:
        """The end at which long texts are cut off, "left" or "right"."""
        return str(self._side)

    def text_of(self, numbers: Sequence[int]) -> str:
        """Return the text of tokens."""
        return str(self._tokenizer.decode(list(numbers)))

    def padded(self) -> str:
        """Return the content of a `tokenizer.json` that cuts long texts off, and pads short ones at the right."""
        self._tokenizer.enable_truncation(self.max_tokens, direction=self._side)
        self._tokenizer.enable_padding(direction="right")
        try:
            return str(self._tokenizer.to_str())
        finally:
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()

    def rows(self, texts: Sequence[str], length: int | None = None) -> NDArray[np.float32]:
        """Return the token numbers of texts, (n, length), padded with -1; the parameters are those of `read`."""
        return self.read(texts, length)[0]

    def read(self, texts: Sequence[str], length: int | None = None) -> tuple[NDArray[np.float32], int]:
        """Return the token numbers of texts, (n, length), padded with -1, and how many texts are cut off.

        Parameters
        ----------
        texts : sequence of str
            Texts to tokenize.
        length : int, optional
            Number of tokens of a row. Longer texts are truncated, but keep the marks that the tokenizer adds at the
            end. By default, the length of the longest of these texts, up to the limit of tokenizer and model.
        """
        self._tokenizer.enable_truncation(self.max_tokens if length is None else length, direction=self._side)
        whole = [f"{self.prompt}{text}" for text in texts]
        try:
            encoded = self._tokenizer.encode_batch_fast(whole)
        finally:
            self._tokenizer.no_truncation()
        # tokenizers keep what truncation cut off in `overflowing`
        numbers = [one.ids for one in encoded]
        cut_off = sum(bool(one.overflowing) for one in encoded)
        if length is None:
            length = max((len(ids) for ids in numbers), default=1)
        rows = np.full((len(numbers), max(length, 1)), NO_TOKEN, dtype=np.float32)
        for row, ids in zip(rows, numbers, strict=True):
            row[: len(ids)] = ids
        return rows, cut_off


def _positions(folder: Path) -> int:
    """Return how many tokens the text model in a folder takes, or `MAX_TOKENS` if its settings state no number."""
    try:
        config = parse_json((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return MAX_TOKENS
    settings = config.get("text_config", config) if isinstance(config, dict) else {}
    if not isinstance(settings, dict):
        return MAX_TOKENS
    number = settings.get("max_position_embeddings")
    if number is None and "t5" not in str(settings.get("model_type")):  # whose positions are relative
        number = settings.get("n_positions")  # of GPT-2 and its family
    if not isinstance(number, int) or number < 1:
        return MAX_TOKENS
    padding = settings.get("pad_token_id")
    if "roberta" in str(settings.get("model_type")) and isinstance(padding, int):
        return number - (padding + 1)  # models like RoBERTa number positions from the padding token + 1
    return number
