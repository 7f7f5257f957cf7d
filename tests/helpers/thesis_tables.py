"""Tables 9.7 and 9.10 to 9.13 of the thesis as they are printed, with what does not add up in them.

Of every table both halves: the method's (P3S) and that of the signature on all processes (PAS2P).
Numbers are text, so that the digits that were printed say how far they were rounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Rows = tuple[tuple[int, int, str, str], ...]


@dataclass(frozen=True)
class Half:
    """One half of a table: rows of (phase, weight, PhaseET, PhaseET x W), PET and PETE.

    ``off``: rows in which weight times PhaseET is not the printed product, and which of the two
    the printed sum was made with ("product" or "time").
    ``sum``: the PET that belongs to these rows, where another one is printed under them;
    ``loose``: seconds by which it is off beyond all rounding.
    """

    pet: str
    pete: str
    rows: Rows
    off: Mapping[int, str]
    sum: str = ""
    loose: str = "0"


@dataclass(frozen=True)
class Table:
    """A table: number, program, processes, measured run time (AET) and its halves."""

    number: str
    program: str
    n: int
    aet: str
    p3s: Half
    pas2p: Half


def _halves(text: str) -> tuple[Rows, Rows]:
    p3s, pas2p = [], []
    for line in text.strip().splitlines():
        phase, weight, one, product, other, other_product = line.split()
        p3s.append((int(phase), int(weight), one, product))
        pas2p.append((int(phase), int(weight), other, other_product))
    return tuple(p3s), tuple(pas2p)


_NBODY = _halves("0 5088 3.8924 19804.53 3.907435 19881.02")
_SWEEP3D = _halves("""
0 100 10.9437 1094.37 10.0477 1004.77
1 100 0.1209 12.09 0.1158 11.58
2 99 14.9401 1479.13 14.8701 1472.13
3 100 10.9942 1099.42 10.1899 1018.99
4 100 10.799 1079.90 10.729 1072.90
""")
_SP = _halves("""
0 19019 0.0165559 314.876 0.016907 321.55
1 1001 0.0170513 17.06 0.017306 17.32
2 1001 0.0635411 63.60 0.064669 64.73
3 1001 0.44701 44.80 0.052503 52.55
4 19019 0.0479076 911.15 0.049842 947.95
5 1001 0.06422253 64.28 0.06224 62.30
6 1001 0.0199191 19.93 0.020216 20.23
7 19019 0.0203635 387.29 0.020728 394.21
8 998 0.360381 359.60 0.36999 369.25
9 999 2.12375 2121.62 2.15466 2152.50
10 999 0.0620155 61.95 0.043173 43.13
11 19019 0.05277 1003.65 0.04980 947.1512
12 1001 0.0632947 63.35 0.062685 62.74
13 1001 0.0199074 19.92 0.018871 18.89
14 19019 0.0192093 366.883 0.019147 364.15
15 1001 0.0716831 71.85 0.072686 72.75
16 1001 0.050116 50.1667 0.051867 51.9188
17 19019 0.050582 962.036 0.050238 955.48
18 1001 0.0637313 63.79 0.063556 63.6192
""")
#: The last phase is printed as a second 15.
_BT = _halves("""
0 19019 0.028032 533.14 0.029617 563.28
1 1001 0.03002 30.05 0.029468 29.49
2 1001 0.13722 137.35 0.138483 138.62
3 1001 0.14293 143.07 0.150507 150.65
4 20020 0.12922 2586.98 0.129773 2598.05
5 1001 0.021312 21.33 0.021309 21.39085
6 19019 0.026293 499.82 0.026745 508.65
7 1 0.27412 0.27 0.274861 0.27
8 998 0.3024 301.79 0.311660 311.0367
9 999 1.8432 1841.35 1.907566 1905.65
10 999 0.121478 121.35 0.122684 122.56
11 20020 0.10457 2093.49 0.111621 2234.64
12 1001 0.02822 28.24 0.028743 28.7
13 19019 0.025991 494.32 0.026759 508.92
14 1001 0.14294 143.08 0.145930 146.07
15 1001 0.12964 129.76 0.121122 121.24
16 20020 0.12358 2597.77 0.130050 2603.60
""")
_CG = _halves("""
0 12525 0.344828 4318.98 0.478946 5998.32
1 1 0.37532 0.37 0.38987 0.38987
2 499 0.362585 180.93 0.1011449 143.39
3 12524 0.457247 5726.56 0.344352 4312.66
4 12525 0.0496373 621.707 0.040246 504.04
5 501 0.43439 217.62 0.474756 237.85
6 501 0.0412984 20.6905 0.002860 1.43280
7 1 0.0134754 0.01 0.008464 0.008
8 1 0.0335572 0.03 0.053516 0.05
9 1 0.043369 0.04 0.037647 0.037
10 498 0.0432984 21.5626 0.037451 0.037
""")

P = "product"
TABLES = (
    Table(
        "9.7",
        "N-Body",
        512,
        "20012.94",
        Half("19804.53", "1.04", _NBODY[0], {}),
        Half("19881.02", "0.65", _NBODY[1], {}),
    ),
    Table(
        "9.10",
        "Sweep3D",
        512,
        "4574.32",
        Half("4764.91", "4.16", _SWEEP3D[0], {2: P}),
        Half("4580.37", "0.13", _SWEEP3D[1], {}),
    ),
    # The two PET are printed in each other's place (in Table 9.9, too); the errors are not.
    Table(
        "9.11",
        "SP",
        484,
        "6995.66",
        Half("6982.48", "0.39", _SP[0], {3: P, 8: P, 14: P, 15: P, 17: P}, sum="6967.84"),
        Half("6967.84", "0.18", _SP[1], {}, sum="6982.48"),
    ),
    Table(
        "9.12",
        "BT",
        484,
        "11937.58",
        Half("11703.24", "2.0", _BT[0], {6: P, 16: P}),
        Half("11992.94", "0.5", _BT[1], {5: P}),
    ),
    # The P3S error is relative to the PET, all others are relative to the AET.
    Table(
        "9.13",
        "CG",
        512,
        "10229.2",
        Half("11108.52", "7.91", _CG[0], {}),
        Half("11216.79", "9.6", _CG[1], {0: P, 2: P, 4: P, 10: "time"}, loose="0.01"),
    ),
)
