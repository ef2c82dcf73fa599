"""The lab: small models trained side by side, the same but for their encoding.

:mod:`~ropewalk.lab.transformer` is the model, :mod:`~ropewalk.lab.task` what it learns,
:mod:`~ropewalk.lab.trial` one training run as a pure function from a configuration to a record,
:mod:`~ropewalk.lab.race` many of them, kept in a :mod:`~ropewalk.lab.store` and run by
:mod:`~ropewalk.lab.executors`; :mod:`~ropewalk.lab.statistics` is what several seeds say together,
and :mod:`~ropewalk.lab.outcome` the document that says it.
"""
