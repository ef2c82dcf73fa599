"""Encodings whose logits read content."""

__all__: list[str] = []
