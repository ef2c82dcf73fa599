"""Encodings that add a number to each logit."""

from ropewalk.encodings.bias.alibi import ALiBi, alibi_slopes

__all__ = ["ALiBi", "alibi_slopes"]
