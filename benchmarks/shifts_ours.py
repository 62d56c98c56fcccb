"""A worker of shifts.py: times this package, a batch at a time; requests and answers are those of shifts_peer.py."""

import json
import sys
import time

import numpy as np
import torch

import shiftproof
from shiftproof import shifts


def main() -> None:
    """Answer requests until there are no more."""
    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        images = torch.from_numpy(np.load(request["images"])).permute(0, 3, 1, 2).contiguous()
        keys = torch.arange(len(images))
        shift = shifts.corruption(request["name"], request["severity"], request["preset"])
        clock = time.process_time if request["clock"] == "cpu" else time.perf_counter
        done, start = 0, clock()
        while done == 0 or clock() - start < request["seconds"]:
            shiftproof.corrupt(images, shift, keys=keys)
            done += len(images)
        print(json.dumps({"images": done, "seconds": clock() - start}), flush=True)


if __name__ == "__main__":
    main()
