"""Fixtures that tests ask for by name, and the options of the whole run."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("ropewalk", deadline=None, print_blob=True)
settings.load_profile("ropewalk")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="where the contract runs: cpu, cuda, …")
    parser.addoption("--dtype", default="float64", help="default dtype of tests that use `wide`")


@pytest.fixture
def device(request: pytest.FixtureRequest) -> str:
    """The device of ``--device``."""
    return str(request.config.getoption("--device"))


@pytest.fixture
def wide(request: pytest.FixtureRequest):
    """The default dtype is that of ``--dtype``, float64 unless said, while the test runs."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, str(request.config.getoption("--dtype"))))
    yield torch.get_default_dtype()
    torch.set_default_dtype(before)


@pytest.fixture
def poisoned():
    """``torch.empty`` and its kin hand out NaN, and huge integers, while the test runs."""
    from ropewalk.checks.laws.poison import poisoned_memory

    with poisoned_memory():
        yield
