"""Run the command line as `python -m shiftproof`."""

from shiftproof.cli import main

main()
