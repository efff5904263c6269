"""What may import what: flows -> tasks -> corpus_prep and warehouse; no method is named below
the flows."""

import ast
import re
import subprocess
from collections.abc import Collection, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.conftest import LONGEST, pytest_collection_modifyitems

PROJECT = Path(__file__).resolve().parent.parent
MAY_IMPORT = {
    "flows": {"flows", "tasks", "corpus_prep", "warehouse"},
    "tasks": {"tasks", "corpus_prep", "warehouse"},
    "corpus_prep": {"corpus_prep", "warehouse"},
    "warehouse": {"warehouse"},
}
ROLES = {"challenger", "solver", "reasoner", "questioner", "proposer"}
# flows that are named for what they make, in words that any package may use
GENERAL = {"corpus", "distillation", "preferences", "table_questions"}
METHODS = {path.parent.name for path in (PROJECT / "flows").glob("*/flow.py")} - GENERAL
NAMED = re.compile("|".join(sorted(METHODS | ROLES)), re.IGNORECASE)
WORLDS = {path.stem for path in (PROJECT / "flows" / "worlds").glob("*.py")} - {"__init__", "world"}
LAYOUT = re.compile(r"part-\d|^recipe\.json$|^runs/|\.duckdb$")  # names that the store gives


def test_the_newest_methods_and_worlds_are_known():
    assert {"scope", "ssp", "ttrl"} <= METHODS
    assert {"built_in", "encyclopaedia", "masked_ledgers", "tables", "trails"} <= WORLDS


def files(*packages: str) -> list[Path]:
    found = [path for package in packages for path in sorted((PROJECT / package).rglob("*.py"))]
    assert found
    return found


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def relative(path: Path) -> str:
    return str(path.relative_to(PROJECT))


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{relative(path)} imports relatively"
            yield str(node.module)


def modules() -> dict[str, Path]:
    """Every module of the project by its dotted name."""
    return {
        relative(p).removesuffix(".py").removesuffix("/__init__").replace("/", "."): p
        for p in files(*MAY_IMPORT)
    }


def imported(path: Path, among: Collection[str]) -> set[str]:
    """Modules of `among` that a file imports, including in functions and for type checking. `from a
    import b` imports a.b if that is a module, else a."""
    found: set[str] = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            below = {f"{node.module}.{name.name}" for name in node.names}
            found |= below | {str(node.module)} if below - set(among) else below
    return found & set(among)


def docstrings(tree: ast.Module) -> set[ast.AST]:
    """Strings that are statements: documentation."""
    return {
        n.value
        for n in ast.walk(tree)
        if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)
    }


def strings(path: Path) -> Iterator[str]:
    tree = parse(path)
    skip = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skip:
            yield node.value


def names(path: Path) -> Iterator[str]:
    for node in ast.walk(parse(path)):
        for field in ("id", "attr", "arg", "name"):
            if isinstance(value := getattr(node, field, None), str):
                yield value


def test_imports_go_down():
    wrong = [
        f"{relative(path)} imports {module}"
        for package, allowed in MAY_IMPORT.items()
        for path in files(package)
        for module in imports(path)
        if module.split(".")[0] in MAY_IMPORT and module.split(".")[0] not in allowed
    ]
    assert wrong == []


def test_no_method_imports_another():
    methods = {path.parent.name for path in (PROJECT / "flows").glob("*/flow.py")}
    assert "scope" in methods
    wrong = [
        f"{relative(path)} imports {module}"
        for method in methods
        for path in files(f"flows/{method}")
        for module in imports(path)
        if module.startswith("flows.") and module.split(".")[1] in methods - {method}
    ]
    assert wrong == []


def test_no_method_and_no_shared_module_names_a_built_in_world():
    """They ask the run's; only the run opens it. The demo may name the profile that it plays."""
    named = {f"flows.worlds.{name}" for name in WORLDS}
    assert named <= modules().keys()
    wrong = list[str]()
    for path in files("flows"):
        name = relative(path)
        if name.startswith("flows/worlds/"):
            continue
        wrong += [
            f"{name} imports {module}"
            for module in sorted(imported(path, named))
            if (name, module) != ("flows/run.py", "flows.worlds.built_in")
        ]
        if name != "flows/app/command/demo.py" and "micro" in set(compared(path)):
            wrong.append(f'{name} compares with "micro"')
    assert wrong == []


def compared(path: Path) -> Iterator[str]:
    """Literal strings that a file compares with, alone or in a collection."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Compare):
            for part in (node.left, *node.comparators):
                for leaf in ast.walk(part):
                    if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str):
                        yield leaf.value
        elif isinstance(node, ast.MatchValue) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


def test_no_modules_import_each_other():
    known = modules()
    try:
        TopologicalSorter({name: imported(path, known) for name, path in known.items()}).prepare()
    except CycleError as error:
        pytest.fail(" is imported by ".join(error.args[1]))


def room(module: str) -> str:
    """The module or subpackage directly below flows/ or tasks/ that a module belongs to."""
    return ".".join(module.split(".")[:2])


@pytest.mark.parametrize("package", ["flows", "tasks"])
def test_no_arrow_between_folders_runs_back_up(package):
    """Between folders as between modules: if plan/ imports settings/, settings/ does not import
    plan/, be it through others or for type checking."""
    known = modules()
    below: dict[str, set[str]] = {}
    for name, path in known.items():
        if name.startswith(f"{package}."):
            others = {room(other) for other in imported(path, known)} - {room(name), package}
            below.setdefault(room(name), set()).update(
                other for other in others if other.startswith(f"{package}.")
            )
    assert len(below) > 15
    try:
        TopologicalSorter(below).prepare()
    except CycleError as error:
        pytest.fail(" is imported by ".join(error.args[1]))


def test_what_methods_share_imports_none_of_them():
    """The layer beside their folders, the micro-worlds, the commands and the services."""
    methods = {path.parent.name for path in (PROJECT / "flows").glob("*/flow.py")}
    shared = [path for path in files("flows") if path.relative_to(PROJECT).parts[1] not in methods]
    assert {"method.py", "run.py", "cli.py", "services.py", "world.py"} <= {
        path.name for path in shared
    }
    wrong = [
        f"{relative(path)} imports {module}"
        for path in shared
        for module in imported(path, modules())
        if module.startswith("flows.") and module.split(".")[1] in methods
    ]
    assert wrong == []


def test_below_tasks_nothing_imports_a_verb():
    """A flow is written with the flat modules of tasks/. Its folders hold their parts, which import
    none of them except the definitions of a stage, a prompt and a reader. Two folders hold stages
    and measures themselves, which may use the definitions of a metric and of what is read."""
    definitions = {"tasks.__init__", "tasks.stage", "tasks.prompt", "tasks.readers"}
    of_stages = {"tasks.evaluate", "tasks.read", "tasks.judge", "tasks.clusters"}
    verbs = {f"tasks.{path.stem}" for path in (PROJECT / "tasks").glob("*.py")}
    wrong = [
        f"{relative(path)} imports {module}"
        for path in files("tasks")
        if path.parent.name != "tasks"
        for module in imported(path, verbs - definitions)
        if not (path.parent.name in ("monitors", "benchmarks") and module in of_stages)
    ]
    assert wrong == []


def test_tasks_and_warehouse_name_no_method_and_no_role_of_one():
    """In names and in strings; documentation may cite a paper as its source."""
    wrong = [
        f"{relative(path)}: {word}"
        for path in files("tasks", "warehouse", "corpus_prep", "flows/app/viewer")
        # a scope is ASGI's
        for word in {*strings(path), *([] if "viewer" in path.parts else names(path))}
        if any(NAMED.fullmatch(part) for part in re.split(r"[^A-Za-z]+|(?<=[a-z])(?=[A-Z])", word))
    ]
    assert wrong == []


def test_queries_of_the_warehouse_name_no_method():
    viewer = (PROJECT / "flows" / "app" / "viewer").rglob("*.sql")
    findings = (PROJECT / "tasks" / "findings").rglob("*.sql")
    for path in (*(PROJECT / "warehouse" / "sql").rglob("*.sql"), *viewer, *findings):
        assert not re.search(rf"\b({NAMED.pattern})\b", path.read_text(), re.IGNORECASE), path


def joined(path: Path) -> Iterator[str]:
    """Names appended to a path by `/`."""
    for node in ast.walk(parse(path)):
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Div)
            and isinstance(node.right, ast.Constant)
        ):
            yield str(node.right.value)


def test_only_the_warehouse_knows_how_a_store_is_laid_out():
    wrong = [
        f"{relative(p)}: {s!r}"
        for p in files("flows", "tasks")
        for s in strings(p)
        if LAYOUT.search(s)
    ]
    wrong += [
        f"{relative(p)}: {s!r}"
        for p in files("flows", "tasks")
        for s in joined(p)
        if s in ("runs", "locks")
    ]
    assert wrong == []


def test_only_the_warehouse_opens_duckdb_and_only_it_and_corpus_preparation_write_parquet():
    writes = re.compile(r"duckdb\.connect|write_table|ParquetWriter")
    assert [
        relative(path)
        for path in files("flows", "tasks")
        if writes.search(path.read_text(encoding="utf-8"))
    ] == []


@pytest.mark.parametrize(
    "file",
    [
        "README.md",
        ".github/CONTRIBUTING.md",
        ".github/workflows/ci.yml",
        ".github/workflows/weekly.yml",
        ".ci/run",
    ],
)
def test_a_make_target_that_is_written_about_exists(file):
    targets = set(re.findall(r"^([a-z0-9-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(
        r"(?:`|^|run: |user )make ([a-z0-9-]+)", (PROJECT / file).read_text(), re.MULTILINE
    )
    assert named and set(named) <= targets


def test_make_help_lists_every_target_that_says_what_it_does() -> None:
    described = re.findall(r"^([^\s:#]+):.*## ", (PROJECT / "Makefile").read_text(), re.MULTILINE)
    printed = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=PROJECT, capture_output=True, text=True
    )
    listed = [line.split()[1] for line in printed.stdout.splitlines()]
    assert "smollm2" in described
    assert listed == described


def reasons_to_skip() -> dict[str, set[str]]:
    """The make targets that reasons of skipped tests name, by file."""
    named: dict[str, set[str]] = {}
    for path in files("tests"):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith((".skipif", ".skip")):
                text = ast.unparse(node)
                for target in re.findall(r"make ([a-z][a-z0-9-]*)", text):
                    named.setdefault(relative(path), set()).add(target)
    return named


def test_a_test_that_waits_for_a_make_target_is_run_by_some_workflow():
    workflows = "".join(
        path.read_text() for path in sorted((PROJECT / ".github/workflows").glob("*.yml"))
    )
    run = set(re.findall(r"run: make ([a-z0-9-]+)", workflows))
    waiting = reasons_to_skip()
    assert set[str]().union(*waiting.values()) == {"companions", "loaders", "test-cluster"} <= run
    others = (PROJECT / "Makefile").read_text().partition("\ntest-others:")[2].partition("\n\n")[0]
    assert "test-others" in run
    assert [
        file
        for file, targets in waiting.items()
        if targets & {"companions", "loaders"} and file not in others
    ] == []


def test_files_of_fast_tests_come_first_and_then_slow_ones_by_duration():
    class Item:
        def __init__(self, file: str, is_slow: bool = False) -> None:
            self.path = PROJECT / "tests" / file
            self._is_slow = is_slow

        def get_closest_marker(self, name: str) -> bool:
            return self._is_slow and name == "slow"

    given = [
        Item("app/test_short.py", is_slow=True),
        Item(LONGEST[1], is_slow=True),
        Item(LONGEST[0]),  # a fast test in a file with a slow one
        Item(LONGEST[0], is_slow=True),
        Item("app/test_fast.py"),
    ]
    items = [*given]
    pytest_collection_modifyitems(items)  # pyright: ignore[reportArgumentType]
    assert items == [given[4], given[2], given[3], given[1], given[0]]
    assert [name for name in LONGEST if not (PROJECT / "tests" / name).is_file()] == []


def test_the_readme_begins_with_the_demo_and_the_tests_and_stays_short() -> None:
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    first_block = text.split("```")[1]
    assert [line.partition("  ")[0] for line in first_block.split("\n") if line] == [
        "make demo",
        "make test",
    ]
    assert len(text.splitlines()) <= 140
    assert len(text.split()) <= 1200


def guides() -> list[Path]:
    folders = ("flows", "tasks", "warehouse", "corpus_prep", "data/bench", "data/english")
    documents = [PROJECT / "README.md"]
    for folder in folders:
        documents += (PROJECT / folder).rglob("*.md")
    return documents


def test_files_that_are_named_in_the_guides_exist() -> None:
    named = re.compile(
        r"(?<![\w/.:-])(?:corpus_prep|data|flows|requirements|tasks|tests|warehouse)/[\w./-]*\w"
    )
    link = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
    # what a run, a download or the reader makes, and names that stand for others
    made = re.compile(
        r"^data/(?:store|models|corpus|questions|seeds)\b|\b(?:METHOD|NAME|my_idea)\b"
    )
    github = (PROJECT / ".github").rglob("*.md")
    absent = list[str]()
    for file in (*guides(), *(path for path in github if path.name != "CHANGELOG.md")):
        text = file.read_text(encoding="utf-8")
        absent += [
            f"{relative(file)} names {name}"
            for name in sorted(set(named.findall(text)))
            if not made.search(name) and not (PROJECT / name).exists()
        ]
        absent += [
            f"{relative(file)} links to {path}"
            for path in sorted(set(link.findall(text)))
            if not (file.parent / path).exists()
        ]
    assert absent == []


def test_headings_stand_on_lines_of_their_own() -> None:
    for file in guides():
        fenced = False
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            fenced ^= line.lstrip().startswith("```")
            assert fenced or not re.search(r"\S #{2,} \w", line), f"{file}:{number}: {line}"
