"""The example programs: right results, independent of the rank count, and clean refusals."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import started
from paths import EXAMPLES

TIMEOUT_S = 300.0

YIELDING = {
    "MPIR_CVAR_DEVICE_COLLECTIVES": "none",
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
    "MPIR_CVAR_POLLS_BEFORE_YIELD": "10",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMP_NUM_THREADS": "1",
}
if os.geteuid() == 0:
    for prefix in ("OMPI", "PRTE"):
        YIELDING[f"{prefix}_ALLOW_RUN_AS_ROOT"] = "1"
        YIELDING[f"{prefix}_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"


def tool(name: str) -> str:
    """Return mpicc or mpiexec: the one beside this Python, else the one in PATH."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} beside {sys.executable} and none in PATH")
    return found


def run(command: list[str], timeout_s: float = TIMEOUT_S, **env: str) -> tuple[int, str, str]:
    """Run a command in its own process group, which is gone when this returns; env: more of it."""
    done = started(command, timeout_s=timeout_s, env=os.environ | YIELDING | env)
    return done.code, done.out, done.err


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of the compiled examples."""
    target = tmp_path_factory.mktemp("examples")
    code, out, err = run(["make", "-C", str(EXAMPLES), f"MPICC={tool('mpicc')}", f"BIN={target}"])
    assert code == 0, out + err
    assert "warning" not in err, err
    return target


def numbers(line: str, *names: str) -> list[float]:
    """Return the numbers that follow these words in a line of output."""
    words = line.split()
    return [float(words[words.index(name) + 1]) for name in names]


def results(programs: Path, counts: list[int], name: str, *arguments: object) -> list[str]:
    """Run an example at several rank counts and return what it printed at each."""
    lines = []
    for count in counts:
        command = [tool("mpiexec"), "-n", str(count), str(programs / name), *map(str, arguments)]
        code, out, err = run(command)
        assert code == 0, f"{command}: {out}{err}"
        lines.append(out.strip())
    return lines


def test_jacobi2d_solves_the_same_problem_at_any_count(programs: Path) -> None:
    nx, ny, iterations = 21, 14, 9
    x = np.arange(1, nx + 1)[:, None] * np.pi / (nx + 1)
    y = np.arange(1, ny + 1)[None, :] * 2 * np.pi / (ny + 1)
    f = np.sin(x) * np.sin(y)
    u = np.zeros((nx + 2, ny + 2))
    residual = 0.0
    for _ in range(iterations):
        new = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] + f)
        residual = float(np.linalg.norm(new - u[1:-1, 1:-1]))
        u[1:-1, 1:-1] = new
    expected = [residual, float(np.linalg.norm(u))]
    for line in results(
        programs, [1, 2, 5, 6, 9], "jacobi2d", "--nx", nx, "--ny", ny, "--iterations", iterations
    ):
        assert numbers(line, "residual", "norm") == pytest.approx(expected, rel=1e-8)


def test_jacobi2d_solves_the_bratu_problem_at_any_count(programs: Path) -> None:
    nx, ny, iterations = 6, 5, 250
    u = np.zeros((nx + 2, ny + 2))
    for _ in range(iterations):  # to the end: four times the value is what is around it and e^u
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        u[1:-1, 1:-1] = 0.25 * (around + np.exp(u[1:-1, 1:-1]) / ((nx + 1) * (ny + 1)))
    arguments = ["--nx", nx, "--ny", ny, "--iterations", iterations, "--newton", 3]
    for line in results(programs, [1, 6], "jacobi2d", *arguments):
        residual, norm = numbers(line, "residual", "norm")
        assert residual < 1e-12
        assert norm == pytest.approx(float(np.linalg.norm(u)), rel=1e-8)


def ring_reference(bodies: int, steps: int) -> list[float]:
    """Kinetic energy and norm of the positions, from one array."""

    def scatter(body: int, field: int) -> float:
        h = (body * 4 + field + 1) * 0x9E3779B97F4A7C15 % 2**64
        h ^= h >> 32
        h = h * 0xD6E8FEB86659FD93 % 2**64
        h ^= h >> 32
        return (h >> 11) / 2**53

    x = np.array([[scatter(b, d) for d in range(3)] for b in range(bodies)])
    mass = np.array([(0.5 + scatter(b, 3)) / bodies for b in range(bodies)])
    v = np.zeros_like(x)
    for _ in range(steps):
        d = x[None] - x[:, None]
        r2 = (d * d).sum(axis=2) + 1e-3
        v += 1e-4 * (mass[None, :, None] * d / (r2**1.5)[..., None]).sum(axis=1)
        x = x + 1e-4 * v
    return [float(0.5 * (mass[:, None] * v * v).sum()), float(np.linalg.norm(x))]


@pytest.mark.parametrize("flags", [(), ("--packed",), ("--packed", "--overlap")])
def test_ring_moves_every_body_to_every_rank(programs: Path, flags: tuple[str, ...]) -> None:
    expected = ring_reference(31, 3)
    for line in results(programs, [1, 2, 3, 7], "ring", "--bodies", 31, "--steps", 3, *flags):
        assert numbers(line, "energy", "norm") == pytest.approx(expected, rel=1e-8)


def test_halo3d_is_periodic_in_every_dimension(programs: Path) -> None:
    shape, iterations = (7, 6, 5), 6
    x, y, z = np.meshgrid(*(np.arange(1, n + 1) for n in shape), indexing="ij")
    u = 1.0 + ((x * 31 + y * 17 + z * 7) % 101) / 101.0
    for _ in range(iterations):
        around = sum(np.roll(u, s, axis=d) for d in range(3) for s in (-1, 1))
        u = u + 0.1 * (around - 6.0 * u)
    expected = [float(u.sum()), float(np.linalg.norm(u))]
    for line in results(
        programs,
        [1, 2, 6, 8, 12],
        "halo3d",
        "--nx",
        shape[0],
        "--ny",
        shape[1],
        "--nz",
        shape[2],
        "--iterations",
        iterations,
    ):
        assert numbers(line, "heat", "norm") == pytest.approx(expected, rel=1e-8)


def cg_reference(n: int, nonzeros: int, iterations: int) -> float:
    """Rayleigh quotient after some steps of inverse iteration with a direct solver."""
    mask = 2**64 - 1
    matrix = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1, n):
            h = (i * 0x9E3779B97F4A7C15 + j * 0xC2B2AE3D27D4EB4F + 1) & mask
            h ^= h >> 29
            h = h * 0xBF58476D1CE4E5B9 & mask
            h ^= h >> 32
            h = h * 0x94D049BB133111EB & mask
            h ^= h >> 29
            if h % n < nonzeros:
                matrix[i, j] = matrix[j, i] = -0.1 - (h >> 40) / 2**24
    matrix += np.diag(0.1 + np.arange(n) % 11 / 11.0 + np.abs(matrix).sum(axis=1))
    x = 1.0 + np.arange(n) % 7 / 7.0
    zeta = 0.0
    for _ in range(iterations):
        z = np.linalg.solve(matrix, x)
        zeta = float(x @ z / (z @ z))
        x = z / np.linalg.norm(z)
    return zeta


def test_cg_finds_the_eigenvalue_on_square_and_oblong_grids(programs: Path) -> None:
    expected = cg_reference(61, 6, 3)
    for line in results(
        programs, [1, 2, 4, 8], "cg", "--n", 61, "--nonzeros", 6, "--iterations", 3, "--inner", 30
    ):
        assert numbers(line, "eigenvalue") == pytest.approx([expected], rel=1e-8)
        assert line.endswith("converged yes")


def test_wavefront_sweeps_from_both_corners(programs: Path) -> None:
    nx, ny, nz, iterations = 5, 7, 6, 2
    u = np.zeros((nx + 2, ny + 2, nz + 1))
    for _ in range(iterations):
        for direction in (1, -1):
            for i in range(1, nx + 1)[::direction]:
                for j in range(1, ny + 1)[::direction]:
                    for k in range(1, nz + 1):
                        north, west = u[i - direction, j, k], u[i, j - direction, k]
                        source = ((i - 1) * 13 + (j - 1) * 7 + (k - 1) * 3) % 29 / 29.0
                        u[i, j, k] = 0.25 * (u[i, j, k] + north + west + u[i, j, k - 1]) + source
    expected = [float(np.linalg.norm(u))]
    for line in results(
        programs,
        [1, 3, 4, 6],
        "wavefront",
        "--nx",
        nx,
        "--ny",
        ny,
        "--nz",
        nz,
        "--planes",
        4,
        "--sweeps",
        1,
        "--iterations",
        iterations,
    ):
        assert numbers(line, "norm") == pytest.approx(expected, rel=1e-8)


def test_master_worker_adds_up_to_pi() -> None:
    pytest.importorskip("mpi4py")
    script = str(EXAMPLES / "master_worker.py")
    for count in (2, 5):
        code, out, err = run(
            [
                tool("mpiexec"),
                "-n",
                str(count),
                sys.executable,
                script,
                "--tasks",
                "7",
                "--points",
                "1000",
            ]
        )
        assert code == 0, out + err
        assert numbers(out, "pi") == pytest.approx([np.pi], abs=1e-7)
    code, out, err = run([tool("mpiexec"), "-n", "1", sys.executable, script])
    assert code == 2 and "use 2 or more" in err


@pytest.mark.parametrize(
    ("count", "command", "complaint"),
    [
        (3, ["cg"], "cg: 3 ranks are not a power of two"),
        (4, ["cg", "--n", "1"], "cg: order 1 is smaller than 2 process columns"),
        (2, ["jacobi2d", "--nx", "0"], "jacobi2d: --nx: 0 is smaller than 1"),
        (2, ["jacobi2d", "--depth", "3"], "jacobi2d: unknown argument '--depth'"),
        (3, ["wavefront", "--nx", "2", "--ny", "9"], "wavefront: 2 x 9 cells do not fill 3 x 1"),
        (2, ["halo3d", "--nx", "1"], "halo3d: 1 cells do not fill 2 ranks in dimension 0"),
        (2, ["ring", "--bodies", "many"], "ring: --bodies: 'many' is not a number"),
        (2, ["ring", "--bodies"], "ring: --bodies needs a number"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(
    programs: Path, count: int, command: list[str], complaint: str
) -> None:
    code, out, err = run(
        [tool("mpiexec"), "-n", str(count), str(programs / command[0]), *command[1:]]
    )
    assert code == 2
    assert out == ""
    assert sum(line.startswith(complaint) for line in err.splitlines()) == 1


@pytest.mark.parametrize("name", ["jacobi2d", "ring", "halo3d", "cg", "wavefront"])
def test_help_names_the_options_once(programs: Path, name: str) -> None:
    code, out, _ = run([tool("mpiexec"), "-n", "2", str(programs / name), "--help"])
    assert code == 0
    assert out.count("usage: mpiexec -n RANKS " + name) == 1
