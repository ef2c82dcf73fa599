"""The contract: what every encoding must hold, as a test case to inherit.

A new encoding says how it is made, and gets all the laws::

    from ropewalk.checks import EncodingContract

    class TestMine(EncodingContract):
        def create(self):
            return Mine(64)

pytest collects the ``test_*`` methods; with ``unittest.TestCase`` as a second base unittest does.
The laws are in :mod:`ropewalk.checks.laws`, each written once over a view of the four families.

Source: the habit of linear_operator and gpytorch, whose operators inherit their tests from a case
that the package ships. The laws are those that separate right from wrong in published rotary code
without knowing the encoding: dynamic NTK fails history, tables of the first call's dtype too.
"""

from __future__ import annotations

from ropewalk.checks.laws.case import LAWS, require
from ropewalk.checks.laws.compiled import CompileLaws
from ropewalk.checks.laws.module import ModuleLaws
from ropewalk.checks.laws.purity import PurityLaws
from ropewalk.checks.laws.tokens import TokenLaws
from ropewalk.checks.laws.values import ValueLaws


class EncodingContract(ValueLaws, TokenLaws, PurityLaws, ModuleLaws, CompileLaws):
    """The laws of an encoding; inherit, and say in ``create()`` how it is made.

    Override where the encoding needs it:

    - ``waivers``: law → why this encoding is exempt, the law's name being that of its method
      without ``test_``. A waived law must fail, so that no waiver outlives its reason.
    - ``positions``: positions to compare with the reference. By default from 0 to 2³¹+5 and
      negative ones; for an encoding with a finite table, which says in an int ``positions`` how
      many it serves, those inside it.
    - ``drift``: error allowed for each unit of position, relative to the values. Integer phases
      need 1.7e-19; phases that are float64 products need about 1e-15.
    - ``slack``: relative difference allowed where the same token is computed in another batch,
      length or memory layout. 0 asks for equal bits.
    - ``step``: of the difference quotients that gradients are compared with.
    - ``device``: where it runs.
    - ``siblings()``: the encoding in other configurations, for the law of history.

    A rotary encoding whose keys turn otherwise than its queries gives ``reference_k`` beside
    ``reference``. A contextual one has no literal reference and is compared with itself, one query
    at a time in float64.
    """

    def test_waivers(self) -> None:
        """Waivers name laws."""
        unknown = sorted(set(self.waivers) - set(LAWS))
        require(not unknown, f"waivers name no law: {unknown}; the laws are {', '.join(LAWS)}")


__all__ = ["LAWS", "EncodingContract"]
