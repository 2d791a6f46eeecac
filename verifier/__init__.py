"""Post-compile verifier for PTX and SASS."""

__version__ = "0.1.0"
