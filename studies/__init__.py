"""Studies made with the library, not installed with it: ``python -m studies`` lists them."""
