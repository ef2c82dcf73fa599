"""The laws of the contract, by topic; :mod:`ropewalk.checks.contract` puts them together."""
