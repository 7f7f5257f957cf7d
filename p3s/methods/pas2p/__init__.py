"""The phases of PAS2P, as in the thesis (A.4, A.5): logical time, and segments that repeat."""

from p3s.base.extensions import Extension

EXTENSION = Extension("pas2p", alternatives=(("phases", "p3s.methods.pas2p.command:phases"),))
