"""Index files: what other tools want beside the data files of a pack.

Which tools know which format, and how one more is added: `fastconv.converters.indexes.kinds`.
"""
