"""What a trained model does with positions: measured on text, without training it further.

:mod:`~ropewalk.lab.trained.passages` is the text, :mod:`~ropewalk.lab.trained.losses` a loss for
every token of it, :mod:`~ropewalk.lab.trained.spread` what several passages say together.
"""
