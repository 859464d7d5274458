"""Says what the kernel is built of; everything else is in pyproject.toml."""

from pathlib import Path

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "fastconv_native._kernel",
            sorted(path.as_posix() for path in Path("kernel").glob("*.c")),
            depends=["kernel/cells.h", "kernel/kernel.h"],
            libraries=["jpeg", "m"],
            extra_compile_args=["-std=c11", "-O3", "-fvisibility=hidden", "-fwrapv", "-pthread", "-Wall", "-Wextra", "-Wno-psabi"],
            extra_link_args=["-pthread"],
            py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
