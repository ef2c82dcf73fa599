"""JAX: the usual form, jitted; in place by donating the argument."""

# pyright: reportMissingImports=false
from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch import Tensor

from ropewalk.bench.rotor import Cannot, Rotor
from ropewalk.spectra import Spectrum


class JaxJit(Rotor):
    """Computed in float32 from exact float32 tables, rounded once."""

    def __init__(self, spectrum: Spectrum, positions: Tensor, dtype: torch.dtype) -> None:
        super().__init__(spectrum, positions, dtype)
        if dtype == torch.float64:
            raise Cannot("float64 is switched off by default")
        cosine, sine = (jnp.asarray(table.numpy()) for table in self.tables(torch.float32))
        first, second = spectrum.lanes
        interleaved = spectrum.layout == "interleaved"

        def turn(x: jax.Array) -> jax.Array:
            wide = x.astype(jnp.float32)
            u, v = wide[..., first], wide[..., second]
            a, b = u * cosine - v * sine, u * sine + v * cosine
            if interleaved:
                y = jnp.stack((a, b), axis=-1).reshape(x.shape)
            else:
                before, after = wide[..., : first.start], wide[..., second.stop :]
                y = jnp.concatenate((before, a, b, after), axis=-1)
            return y.astype(x.dtype)

        def trained(x: jax.Array, g: jax.Array) -> tuple[jax.Array, jax.Array]:
            y, backward = jax.vjp(turn, x)
            return y, backward(g)[0]

        def pair(q: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
            return turn(q), turn(k)

        self._turn, self._turn_ = jax.jit(turn), jax.jit(turn, donate_argnums=0)
        self._pair, self._pair_ = jax.jit(pair), jax.jit(pair, donate_argnums=(0, 1))
        self._trained = jax.jit(trained)

    def take(self, x: Tensor) -> jax.Array:
        return jnp.array(jnp.from_dlpack(x), copy=True).block_until_ready()

    def give(self, y: jax.Array) -> Tensor:
        return torch.from_dlpack(y).clone()

    def fresh(self, x: jax.Array) -> Any:
        return jax.block_until_ready(self._turn(x))

    def in_place(self, x: jax.Array) -> Any:
        return jax.block_until_ready(self._turn_(x))

    def trained(self, x: jax.Array, g: jax.Array) -> Any:
        return jax.block_until_ready(self._trained(x, g))

    def pair(self, q: jax.Array, k: jax.Array) -> Any:
        return jax.block_until_ready(self._pair(q, k))

    def pair_in_place(self, q: jax.Array, k: jax.Array) -> Any:
        return jax.block_until_ready(self._pair_(q, k))
