r"""Attention with any encoding, by the fastest path that is exact.

.. math:: y_i = \sum_j \operatorname{softmax}_j\bigl(s\,\langle q_i, k_j\rangle + b_{ij}\bigr)\,v_j

=============  ====================================================================
fused          q and k are turned, one fused kernel does the rest
factored       a bias becomes channels of q and k
flex           FlexAttention computes the bias and the rules inside its kernel
blockwise      a block of bias or mask at a time: memory grows with T and not with T²
=============  ====================================================================
"""

from ropewalk.attention.entry import attend
from ropewalk.attention.modifiers import mask, score_mod
from ropewalk.attention.paths import PATHS, Path, path

__all__ = ["PATHS", "Path", "attend", "mask", "path", "score_mod"]
