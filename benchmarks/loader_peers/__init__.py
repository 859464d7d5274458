"""One small script for each way to load the photos: fastconv's, and what people use without it.

Each has `batches(options)`, which opens what it reads from and gives (images, labels) for ever:
uint8, (batch, 3, 224, 224), in an order of chance. One that reads a form of its own has
`prepare(options)`, which makes it of the photos. `IMPORTS` are imported before any time runs.

They run in several environments, so that they import nothing of the benchmarks but `shared`.
"""
