"""The formats that can be written: one module each, its name the format's name.

`fastconv.converters.writer.WRITERS` finds them; nothing is imported here.
"""

__all__: list[str] = []
