"""The lab: small models trained side by side, the same but for their encoding.

:mod:`~ropewalk.lab.transformer` is the model, :mod:`~ropewalk.lab.text` the task,
:mod:`~ropewalk.lab.trial` one training run as a pure function from a configuration to a record,
:mod:`~ropewalk.lab.statistics` what several seeds say together.
"""
