r"""norm: encoding a vector keeps its length.

.. math:: \max \bigl|\, \|T(p)\,x\| \,/\, (a\,\|x\|) - 1 \,\bigr| \;\le\; 10^{-12}

for Gaussian x at positions up to 2³¹, where a is the attention factor (a figure). For additive
encodings T(p) x = x + E(p), which keeps no length. A contextual encoding with logits qᵀ T(i, j) k
is asked for every singular value of T, between positions up to 2³¹, or along a sequence of random
hidden states.
"""

from __future__ import annotations

import torch

from ropewalk.checks import probes
from ropewalk.checks.bounded import sampled
from ropewalk.checks.content import gaussian
from ropewalk.checks.measurement import Measurement, at_most, judge, measure, not_applicable
from ropewalk.checks.reach import FAR, reach
from ropewalk.core import Additive, Contextual, Encoding, Rotary

TOLERANCE = 1e-12
_VECTORS = 256
_TOKENS = 32


@measure(TOLERANCE)
def norm_error(encoding: Encoding) -> Measurement:
    """The largest |‖Tx‖ / (a‖x‖) − 1|; null for biases."""
    if isinstance(encoding, Contextual) and encoding.bilinear:
        return _of_pairs(encoding)
    if not isinstance(encoding, (Additive, Rotary)):
        return not_applicable("q and k are untouched")
    places = sampled(min(FAR, reach(encoding).count), _VECTORS, encoding.axes)
    if isinstance(encoding, Additive):
        x = gaussian(len(places), encoding.dim, seed=40)
        after = (x + probes.codes(encoding, places))[None]
        factor = 1.0
    else:
        x = gaussian(len(places), encoding.head_dim, seed=40)
        after = torch.cat([probes.vectors(encoding, x, places, side) for side in probes.SIDES])
        factor = float(encoding.attention_factor)
    ratio = after.norm(dim=-1) / (factor * x.norm(dim=-1))
    return at_most((ratio - 1).abs().max().item(), TOLERANCE, {"attention_factor": factor})


def _of_pairs(encoding: Contextual) -> Measurement:
    """The singular values of T(i, j)."""
    content = probes.hidden_tokens(encoding, _TOKENS, seed=41)
    if content is None:
        line = sampled(FAR, _TOKENS, encoding.axes)
        places = line[:: max(len(line) // _TOKENS, 1)].sort(dim=0).values
    else:
        places = probes.on_axes(torch.arange(_TOKENS), encoding.axes)
    pairs = probes.pair_operators(encoding, places, places, content)
    seen = torch.ones(len(places), len(places), dtype=torch.bool).tril()
    factor = float(getattr(encoding, "attention_factor", 1.0))
    ratio = torch.linalg.svdvals(pairs[:, seen]) / factor
    return at_most((ratio - 1).abs().max().item(), TOLERANCE, {"attention_factor": factor})


def assert_norm(encoding: Encoding) -> Measurement:
    """Raise AssertionError unless the length of vectors is kept."""
    return judge("norm", encoding, norm_error(encoding))
