"""Programs whose truth is known at any count: a language, those written in it, some made up."""
# ruff: noqa: F401

from corpus.language import (
    CROSS,
    Grid,
    Program,
    Recorder,
    binomial_tree,
    block,
    packed_sides,
    program,
    run,
    table,
)
from corpus.programs import (
    binomial_broadcast,
    cg,
    dissemination,
    every_tenth,
    fft2d,
    gather_to_root,
    halo3d,
    halo9,
    hypercube,
    jacobi2d,
    packed_halo,
    ring,
    shares_of_steps,
    wavefront,
)
