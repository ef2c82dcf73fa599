"""The tasks: one file and one import line each."""

from ropewalk.lab.tasks import characters
