# Copyright P3S contributors.
#
# SPDX-License-Identifier: BSD-3-Clause

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class P3s(PythonPackage):
    """Trace an MPI program at a few small process counts, predict its run time at large ones."""

    # No release is published: spack dev-build p3s@0.1.0 in a clone, or give url and sha256 here.
    license("BSD-3-Clause")

    version("0.1.0")

    variant("frames", default=False, description="Tables as data frames of pandas and xarray")

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")

    # The tracer is compiled when it is first needed, for the MPI of the program.
    depends_on("mpi", type=("build", "run"))
    depends_on("c", type="build")

    with default_args(type=("build", "run")):
        depends_on("py-numpy@1.26:2")
        depends_on("py-scipy@1.11:1")
        depends_on("py-sympy@1.14:1")
        depends_on("py-pyarrow@15:")
        depends_on("py-typer@0.26:0")
        depends_on("py-mpi4py@4.0:4")
        depends_on("py-rich@13:")
        depends_on("py-matplotlib@3.10:3")
        depends_on("py-jinja2@3.1:3")
        depends_on("py-pyelftools@0.30:0")
        depends_on("py-jsonschema@4.20:4")
        depends_on("py-cattrs@24.1:")
        depends_on("py-pandas@2:3", when="+frames")
        depends_on("py-xarray@2024.1:", when="+frames")
