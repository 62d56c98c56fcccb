"""A worker of shifts.py: times `imagecorruptions` in the environment that holds it, one image at a time.

Reads requests from standard input, a line of JSON each, and answers each with a line: how many images in how many
seconds, of wall time or of processor time. A worker goes round its images until the time is up, after one at least.
"""

import json
import sys
import time

import numpy as np
from imagecorruptions import corrupt


def main() -> None:
    """Answer requests until there are no more."""
    for line in sys.stdin:
        request = json.loads(line)
        images = np.load(request["images"])
        clock = time.process_time if request["clock"] == "cpu" else time.perf_counter
        done, start = 0, clock()
        while done == 0 or clock() - start < request["seconds"]:
            corrupt(images[done % len(images)], severity=request["severity"], corruption_name=request["name"])
            done += 1
        print(json.dumps({"images": done, "seconds": clock() - start}), flush=True)


if __name__ == "__main__":
    main()
