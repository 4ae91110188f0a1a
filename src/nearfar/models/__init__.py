"""Models that embed items: loading them, pretrained encoders, and export.

>>> import nearfar
>>> nearfar.load("missing.safetensors")
Traceback (most recent call last):
FileNotFoundError: missing.safetensors: does not exist; expected the folder of a run or a saved learner
"""

from .loading import load, load_embedder, load_learner
from .model import Model, embed_as

__all__ = ["Model", "embed_as", "load", "load_embedder", "load_learner"]
