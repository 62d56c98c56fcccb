"""Check that two wheels hold the same files with the same contents: `python .ci/same_wheel.py ONE.whl OTHER.whl`."""

import sys
from zipfile import ZipFile


def contents(path: str) -> dict[str, bytes]:
    """Return the files of a wheel by name."""
    with ZipFile(path) as wheel:
        return {name: wheel.read(name) for name in wheel.namelist()}


def main(one: str, other: str) -> int:
    """Name every file that is in one alone, or differs; return 1 where there is one."""
    first, second = contents(one), contents(other)
    differing = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    for name in differing:
        print(f"differs: {name}")
    print(f"{len(first)} files in {one}, {len(second)} in {other}, {len(differing)} differ")
    return int(bool(differing) or not first)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
