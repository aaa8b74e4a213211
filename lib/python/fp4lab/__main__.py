"""python -m fp4lab: the program fp4lab."""

from ._program import main

main()
