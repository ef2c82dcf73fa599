"""learnable: a model soon learns to attend to the token k places back.

The error would be the steps to 99 % accuracy in a recorded race on that task. No such race is
stored yet, so this is null for every encoding.
"""

from __future__ import annotations

from ropewalk.checks.measurement import Measurement, judge, measure, not_applicable
from ropewalk.core import Encoding


@measure(None)
def learnable_error(encoding: Encoding) -> Measurement:
    """Null: no recorded race on attending k places back."""
    return not_applicable("no recorded race on attending to the token k places back")


def assert_learnable(encoding: Encoding) -> Measurement:
    """Raise AssertionError: nothing is recorded."""
    return judge("learnable", encoding, learnable_error(encoding))
