"""The walk: from two equal tokens to rotation along several axes, step by step."""
