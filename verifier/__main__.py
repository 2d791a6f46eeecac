"""`python -m verifier`."""

from verifier.cli import main

main()
