"""Packs folders of images into six formats, and reads them back for training.

`fastconv.loaders` is the read side, all that training code needs. `fastconv.converters` is the
write side and the command line.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
