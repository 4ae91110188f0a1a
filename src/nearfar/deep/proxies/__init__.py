"""Samples against learnable class centers: logits, margins, classification heads."""

from .class_proxies import ClassProxyLoss

__all__ = ["ClassProxyLoss"]
