"""The house: a room imports from its own floor or below, and no two rooms import each other."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import remuda
from remuda.config.algorithm_registry import BUILT_IN

ROOT = Path(remuda.__file__).parent
FLOORS = (
    {"types", "errors"},
    {"system"},
    {"config"},
    {"envs"},
    {"experience", "publish"},
    {"policies"},
    {"population"},
    {"runtime"},
    {"actor", "learner"},
    {"analysis"},
    {"evaluation"},
    {"runs"},
    {"coordinator"},
    {"assembly"},
    {"cluster"},
    {"training"},
    {"solvers"},
    {"ui"},
    {"api"},
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


@cache
def tree_of(path):
    return ast.parse(path.read_text())


@cache
def nodes_of(path):
    """All parts of a file; every test of this file reads them, so they are read once."""
    return list(ast.walk(tree_of(path)))


def imports():
    """Every import of one room by another, as (room, imported room, file)."""
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] in ("__init__", "__main__"):
            continue
        for node in nodes_of(path):
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
                    if room != parts[0]:
                        yield parts[0], room, path


def test_every_room_has_a_floor():
    rooms = {p.stem for p in ROOT.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert rooms - {"__init__", "__main__"} == set(FLOOR_OF)


def test_the_map_tells_of_every_room_and_its_floor():
    text = (ROOT.parents[1] / "ARCHITECTURE.md").read_text()
    told = text.split("Floors, from the ground: ")[1].split(". A room imports")[0]
    floors = [set(" ".join(part.split()).strip(" `").split()) for part in told.split("|")]
    assert floors == list(FLOORS)
    table = text.split("| room | what it is |")[1].split("Floors, from the ground: ")[0]
    assert [room for room in FLOOR_OF if not re.search(rf"`{room}(\.py|/)`", table)] == []


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
        for node in nodes_of(path)
        if (isinstance(node, ast.Import) and any(a.name.split(".")[0] == "ray" for a in node.names))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ray")
    ]
    assert all(name.startswith("ray_") for name in users)


def test_no_code_asks_for_an_algorithm_by_its_name():
    """Properties of algorithms are in the registry; Sorrel's weights are those of IQN alone."""
    asking = [
        path.name
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare)
        and any(part.value in BUILT_IN for part in ast.walk(node) if isinstance(part, ast.Constant))
    ]
    assert asking == ["sorrel.py"]


LONGEST_FUNCTION = 60
"""Lines of a function's body; kernels take what they work on as many flat arguments."""


def lines_of(function):
    """The lines of a function's body, without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def test_functions_are_short_enough_to_hold_in_the_head():
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    long = {
        f"{path.relative_to(ROOT)}: {node.name}": lines_of(node)
        for path in ROOT.rglob("*.py")
        for node in nodes_of(path)
        if isinstance(node, kinds) and lines_of(node) > LONGEST_FUNCTION
    }
    assert long == {}


def loaded_by(path):
    """The modules of Remuda that a file imports when it is imported itself."""
    waiting = list(tree_of(path).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting += [
                child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)
            ]


def test_no_two_modules_import_each_other():
    """But for the file of a package itself, which hands on what is in the package."""
    modules = {
        ".".join(("remuda", *path.relative_to(ROOT).with_suffix("").parts)): path
        for path in ROOT.rglob("*.py")
        if path.name != "__init__.py"
    }
    used = {name: {m for m in loaded_by(path) if m in modules} for name, path in modules.items()}

    def reached(name):
        seen, waiting = set(), [name]
        while waiting:
            for other in used[waiting.pop()] - seen:
                seen.add(other)
                waiting.append(other)
        return seen

    assert [name for name in modules if name in reached(name)] == []


def test_no_files_import_each_other_in_a_circle():
    """Neither as they are loaded, nor later, nor for types alone."""
    files = {
        ".".join(("remuda", *path.relative_to(ROOT).with_suffix("").parts)): path
        for path in ROOT.rglob("*.py")
        if path.stem != "__init__"
    }
    found = defaultdict(set)
    for name, path in files.items():
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and node.module:
                inside = {f"{node.module}.{alias.name}" for alias in node.names}
                found[name] |= {node.module, *inside} & files.keys()
            elif isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names} & files.keys()
    left = set(files)
    while free := {name for name in left if not found[name] & left}:
        left -= free
    assert sorted(left) == []


OPENED_ELSEWHERE = {
    "system/public_names.py": "the list of public names of a package",
    "system/checkpoint/opening.py": "the one way",
    "system/checkpoint/state.py": "writes a new file under a temporary name; syncs its directory",
    "system/checkpoint/store.py": "syncs a directory",
    "cluster/agent.py": "logs and parts that processes of this run have just written",
    "cluster/ray_code.py": "code of the user's, to ship it",
    "cluster/ray_local.py": "/proc, and logs that it makes",
    "config/faults.py": "a file of the package",
    "config/presets.py": "a file of the package",
    "coordinator/analysis_helper.py": "/proc",
    "runs/run_directory.py": "makes a new file",
    "envs/adapters/sorrel.py": "a file of a library",
    "envs/games/data/__init__.py": "files of the package",
    "system/processes/activity.py": "/proc",
    "system/processes/child.py": "the log of a new process; it does not wait for a pipe",
    "system/processes/client.py": "/dev/null",
    "system/processes/server.py": "/dev/null",
    "system/kernels.py": "code",
    "system/memory/lifeline.py": "/proc",
    "assembly/memory_plan.py": "/proc and /sys",
    "population/ledger/ledger.py": "writes a copy in a new directory",
    "coordinator/requests.py": "a directory",
    "ui/cli/main.py": "a file of the package",
    "ui/dashboard/server.py": "files of the package",
    "ui/cli/program.py": "/dev/null and the terminal",
    "ui/plots/recording.py": "a film that it has just made",
    "ui/cli/reference.py": "files of the package",
    "ui/cli/seeds.py": "writes the log of a new process",
}
"""Files in which something else than a file of a run is opened, and what."""
OPENERS = {"read_text", "read_bytes", "safe_open", "load_file", "FileIO", "fromfile"}


def opens_a_file(call):
    """Whether a call opens a file by its path, with no look at what kind of file it is."""
    function = call.func
    name = getattr(function, "attr", getattr(function, "id", ""))
    if name in ("FileIO", "fromfile"):  # of a descriptor, or of an open file
        first = call.args[0]
        opened = isinstance(first, ast.Call) and ast.unparse(first.func) == "open_file"
        return not opened and ast.unparse(first) != "file"
    if name in OPENERS:
        return True
    if name == "open" and isinstance(function, ast.Name):
        return True
    if ast.unparse(function) == "os.open":
        return True
    if name == "open" and isinstance(function, ast.Attribute):  # `path.open("rb")`, `path.open()`
        modes = [a.value for a in call.args if isinstance(a, ast.Constant)]
        return any(isinstance(mode, str) and set(mode) <= set("rwxabt+") for mode in modes)
    if ast.unparse(function) in ("np.load", "np.memmap", "torch.load"):
        return ast.unparse(call.args[0]) != "file"
    return False


def test_files_of_runs_are_opened_in_one_way():
    """A pipe would block its reader; `system/checkpoint/opening.py` opens ordinary files only."""
    found = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and opens_a_file(node)
    }
    assert found == set(OPENED_ELSEWHERE)


def test_runs_are_resolved_in_one_place():
    """`RunSpec` is asked for agents, policies and roster; environments are made to be played."""
    calls = defaultdict(list)
    for path in ROOT.rglob("*.py"):
        if path.relative_to(ROOT).parts[0] == "envs":
            continue
        for node in nodes_of(path):
            if isinstance(node, ast.Call):
                calls[ast.unparse(node.func)].append(path.relative_to(ROOT).as_posix())
    made = ["training/prepare.py"] * 2  # for the description, and the memory of one more copy
    assert calls["make_env"] == made
    assert calls["policy_specs"] == ["population/run_spec.py"]
    assert sorted(calls["Roster.of"]) == ["population/run_spec.py", "population/specs.py"]
