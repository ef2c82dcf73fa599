"""The process that measures: a plan as JSON on stdin; progress, then the document, on stdout."""

from __future__ import annotations

import json
import os
import sys
import warnings


def main() -> None:
    """Run the plan; whatever else libraries print is dropped."""
    told = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    warnings.simplefilter("ignore")  # those of the peers are theirs

    def say(**words: object) -> None:
        told.write(json.dumps(words) + "\n")

    from ropewalk.bench.rotate import Plan, run

    try:
        document = run(Plan.of(json.load(sys.stdin)), lambda done, of: say(done=done, of=of))
    except (ValueError, TypeError, MemoryError) as error:
        say(refused=str(error) or type(error).__name__)
        return
    say(**document)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # nobody listens any more
        os._exit(1)
