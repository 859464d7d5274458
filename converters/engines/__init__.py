"""Where tasks run."""

__all__: list[str] = []
