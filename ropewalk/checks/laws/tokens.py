"""Tokens: which positions they get, and that they do not see one another."""

from __future__ import annotations

import torch

from ropewalk.checks.laws.case import Case, cut, cut_inputs, equal, law, like, require, rows_of


class TokenLaws(Case):
    """Tokens: see the module."""

    @law
    def test_positions(self) -> None:
        """None is 0 … T−1, offset counts on from there, and any integer dtype or stride serves."""
        encoding = self._made()
        seen = self._view(encoding)
        inputs = seen.inputs(3, 6)
        start = torch.tensor([0, 4, 2], device=seen.device)
        for what, offset in (("None", None), ("an int", 3), ("an int per row", start)):
            places = seen.place(0 if offset is None else offset, 6)
            self._same(
                seen.apply(inputs, None, offset),
                seen.apply(inputs, places),
                f"offset={what} and the same positions written out",
                exact=True,
            )
        places = seen.place(start, 6)
        expected = seen.apply(inputs, places)
        spread = torch.full((*places.shape, 2), -9, device=seen.device)
        spread[..., 0] = places
        for what, other in (
            ("int32", places.to(torch.int32)),
            ("uint8", places.to(torch.uint8)),
            ("strided", spread[..., 0]),
        ):
            self._same(seen.apply(inputs, other), expected, f"{what} positions", exact=True)
        for what, other in (("float", places.float()), ("bool", places > 1)):
            try:
                seen.apply(inputs, other)
            except TypeError as error:
                require("positions" in str(error), f"the message names no positions: {error}")
            else:
                raise AssertionError(f"{what} positions are accepted; raise a TypeError")

    @law
    def test_offset(self) -> None:
        """Starting at an offset gives a slice of the longer result."""
        seen = self._view(self._made())
        tokens, short = 11, 4
        inputs = seen.inputs(3, tokens)
        full = seen.apply(inputs)
        for start in (0, 1, tokens - short):
            self._same(
                seen.apply(cut_inputs(seen, inputs, start, short), None, start),
                cut(seen, full, start, short),
                f"offset={start} and the slice from there",
            )
        starts = torch.tensor([5, 0, 2], device=seen.device)
        rows = [
            cut_inputs(seen, [x[i : i + 1] for x in inputs], int(start), short)
            for i, start in enumerate(starts)
        ]
        found = seen.apply([torch.cat(parts) for parts in zip(*rows, strict=True)], None, starts)
        for i, start in enumerate(starts.tolist()):
            self._same(
                rows_of(found, i),
                rows_of(cut(seen, full, start, short), i),
                f"row {i} at its offset",
            )

    @law
    def test_prefix(self) -> None:
        """What comes later does not change what came before."""
        encoding = self._made()
        seen = self._view(encoding)
        tokens = self._long(encoding)
        inputs = seen.inputs(2, tokens)
        full = seen.apply(inputs)
        for short in sorted({1, 2, 3, 8, 17, tokens // 2, tokens - 1}):
            self._same(
                seen.apply(cut_inputs(seen, inputs, 0, short)),
                cut(seen, full, 0, short),
                f"{short} tokens alone and the first {short} of {tokens}",
            )

    @law
    def test_batch(self) -> None:
        """Rows of a batch, each with its own positions, do not see one another."""
        seen = self._view(self._made())
        inputs = seen.inputs(3, 9)
        starts = torch.tensor([3, 0, 6], device=seen.device)
        together = seen.apply(inputs, seen.place(starts, 9))
        for i in range(3):
            alone = seen.apply([x[i : i + 1] for x in inputs], seen.place(starts[i : i + 1], 9))
            self._same(rows_of(together, i), alone, f"row {i} in a batch and alone")
        spoiled = [x.clone() for x in inputs]
        for x in spoiled:
            x[1] = float("nan")
        beside = seen.apply(spoiled, seen.place(starts, 9))
        for i in (0, 2):
            self._same(rows_of(together, i), rows_of(beside, i), f"row {i} beside a row of NaN")
        line = seen.place(2, 9)
        self._same(
            seen.apply(inputs, line),
            seen.apply(inputs, line.expand(3, *line.shape)),
            "positions [tokens] and the same ones for every row",
            exact=True,
        )

    @law
    def test_ragged(self) -> None:
        """Any number of tokens and rows, none included, keeps shape and dtype."""
        encoding = self._made()
        seen = self._view(encoding)
        some = {name: y.shape for name, y in seen.apply(seen.inputs(2, 6)).items()}
        for rows, tokens in ((2, 0), (0, 5), (1, 1), (2, 3), (1, self._long(encoding))):
            inputs = [x.requires_grad_() for x in seen.inputs(rows, tokens)]
            for name, y in seen.apply(inputs).items():
                shape = [rows, *some[name][1:]]
                for dim in seen.token_dims:
                    shape[dim] = tokens
                require(
                    list(y.shape) == shape,
                    f"{name} of {rows} rows of {tokens} tokens has shape {list(y.shape)}, "
                    f"not {shape}",
                )
                require(y.dtype == torch.float32, f"{name} of float32 has dtype {y.dtype}")
                require(bool(torch.isfinite(y).all()), f"{name} is not finite")
                if y.requires_grad:
                    y.backward(like(y, 5), retain_graph=True)
        inputs = seen.inputs(2, 5)
        line = seen.place(1, 5)
        batch = seen.raw(inputs, line)
        if seen.reads_rows:
            flat = seen.raw([x[0] for x in inputs], line)
            deep = seen.raw([x[None] for x in inputs], line)
            for name, y in batch.items():
                rowed = y.dim() == seen.rank(name)
                one, two = (y[0], y[None]) if rowed else (y, y)
                equal(flat[name], one, f"{name} without a batch dimension", self.slack)
                equal(deep[name], two, f"{name} with two of them", self.slack)
