"""The formats that can be read: one module each, its name the format's name.

`fastconv.loaders.reader.READERS` finds them; nothing is imported here.
"""

__all__: list[str] = []
