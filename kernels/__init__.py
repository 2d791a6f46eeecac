"""The kernels that this project verifies, one a file; `registry.py` lists them."""
