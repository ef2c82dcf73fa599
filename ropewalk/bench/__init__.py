"""Benchmarks: every figure a ratio taken in one run, behind a check that the result is right.

:mod:`~ropewalk.bench.cases` says what is rotated, :mod:`~ropewalk.bench.problem` holds the numbers
and the float64 truth, :mod:`~ropewalk.bench.peers` the ways to rotate, one file each,
:mod:`~ropewalk.bench.timing` the clockwork, :mod:`~ropewalk.bench.rotate` the benchmark as a
function from a :class:`~ropewalk.bench.rotate.Plan` to a document, and
:mod:`~ropewalk.bench.processes` runs that in processes of their own.
"""
