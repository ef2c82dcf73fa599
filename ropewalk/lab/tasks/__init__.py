"""The tasks: one file and one import line each."""

from ropewalk.lab.tasks.addition import Addition
from ropewalk.lab.tasks.back import Back
from ropewalk.lab.tasks.characters import Characters
from ropewalk.lab.tasks.copy import Copy
from ropewalk.lab.tasks.digits import Digits
from ropewalk.lab.tasks.indexing import Indexing
from ropewalk.lab.tasks.pictures import Pictures
from ropewalk.lab.tasks.previous import Previous
from ropewalk.lab.tasks.recall import Recall
from ropewalk.lab.tasks.reverse import Reverse
