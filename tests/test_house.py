"""The house: a room imports from its own floor or below, and no two rooms import each other."""

import ast
from collections import defaultdict
from pathlib import Path

import remuda

ROOT = Path(remuda.__file__).parent
FLOORS = (
    {
        "algorithms",
        "compiling",
        "errors",
        "frame",
        "loading",
        "pickled",
        "types",
        "streams",
        "config",
        "effects",
        "changes",
        "hyperparameters",
        "kernels",
        "live_hyperparameters",
        "memory",
        "forkserver",
        "scoreboard",
        "timeline",
        "checkpoint",
        "user_code",
    },
    {"envs", "policies", "experience", "publish", "population"},
    {"actor", "learner", "analysis"},
    {"runtime", "coordinator"},
    {
        *("assembly", "calibration", "memory_plan", "training", "evaluate", "crossplay", "judge"),
        *("evaluation", "prepare", "saved_weights", "tournaments"),
        *("callbacks", "events", "loggers", "result", "saved", "warm_start", "resume"),
        "experience_layout",
        "matches",
    },
    {"exploiting", "own_code", "trained"},
    {"ui"},
    {"api"},
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def imports():
    """Every import of one room by another, as (room, imported room, file)."""
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] in ("__init__", "__main__"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
                if node.module == "remuda":
                    names = [f"remuda.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                if name.startswith("remuda."):
                    room = name.split(".")[1]
                    if room != parts[0] and room != "__version__":
                        yield parts[0], room, path


def test_every_room_has_a_floor():
    rooms = {p.stem for p in ROOT.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert rooms - {"__init__", "__main__"} == set(FLOOR_OF)


def test_nobody_imports_from_above():
    wrong = [(a, b, str(path)) for a, b, path in imports() if FLOOR_OF[b] > FLOOR_OF[a]]
    assert wrong == []


def test_no_two_rooms_import_each_other():
    used = defaultdict(set)
    for room, imported, _ in imports():
        used[room].add(imported)

    def reached(room, seen):
        for other in used[room] - seen:
            seen |= {other} | reached(other, seen | {other})
        return seen

    assert [room for room in FLOOR_OF if room in reached(room, set())] == []


def test_only_the_ray_runtime_may_import_ray():
    users = [
        path.name
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Import) and any(a.name.split(".")[0] == "ray" for a in node.names))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ray")
    ]
    assert set(users) <= {"ray.py"}
