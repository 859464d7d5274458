"""Says what the kernel is built of, and finds libjpeg-turbo; all else is in pyproject.toml."""

import shlex
import subprocess
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, SetupError

PROBE = """
#include <Python.h>
#include <stdio.h>
#include <jpeglib.h>
#ifndef LIBJPEG_TURBO_VERSION
#error "another libjpeg"
#endif
"""


def pkg_config(what: str) -> list[str]:
    """Returns what pkg-config says of libjpeg, nothing where one of them is missing."""
    try:
        done = subprocess.run(
            ["pkg-config", what, "libjpeg"], check=True, capture_output=True, encoding="utf-8"
        )
    except (OSError, subprocess.CalledProcessError):
        return []
    return shlex.split(done.stdout)


class BuildKernel(build_ext):
    """Looks for the header first: without it, compilers say much that does not help."""

    def build_extension(self, ext: Extension) -> None:
        with tempfile.TemporaryDirectory() as folder:
            probe = Path(folder, "probe.c")
            probe.write_text(PROBE, encoding="utf-8")
            try:
                self.compiler.compile([str(probe)], folder, extra_postargs=pkg_config("--cflags"))
            except CompileError:
                raise SetupError(
                    "fastconv-native needs a C compiler, Python.h and libjpeg-turbo's jpeglib.h "
                    "(Debian: apt-get install gcc python3-dev libjpeg62-turbo-dev; "
                    "Fedora: dnf install gcc python3-devel libjpeg-turbo-devel)"
                ) from None
        super().build_extension(ext)


setup(
    cmdclass={"build_ext": BuildKernel},
    ext_modules=[
        Extension(
            "fastconv_native._kernel",
            sorted(path.as_posix() for path in Path("kernel").glob("*.c")),
            depends=sorted(path.as_posix() for path in Path("kernel").glob("*.h")),
            extra_compile_args=[
                *("-std=c11", "-O3", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra"),
                "-fwrapv",  # what coefficients of damaged files add up to is of no use, but defined
                *pkg_config("--cflags"),
            ],
            extra_link_args=["-pthread", *(pkg_config("--libs") or ["-ljpeg"]), "-lm"],
            py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
