"""`python -m drrej`."""

from drrej.cli import main

main()
