"""The encodings: one idea a file, in the folder of the door it uses into attention.

An encoding joins the catalogue by its import line in its folder's ``__init__``.
"""

from ropewalk.encodings import additive, bias, rotary

__all__ = ["additive", "bias", "rotary"]
