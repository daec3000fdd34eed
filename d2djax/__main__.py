"""`python -m d2djax` is the command line."""

from d2djax.cli import main

main()
