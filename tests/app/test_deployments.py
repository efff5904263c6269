"""What is deployed: every profile of every flow, to the machines that it needs."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest

from flows.app.command import parameters
from flows.app.service import services
from flows.app.service.deployments import (
    as_prefect_stores_it,
    declared,
    parameters_of_methods,
)
from flows.app.service.site import Site
from flows.method import Method
from flows.runtime.store_root import SOURCE
from flows.settings import profile
from flows.settings.profile import MethodSettings, Settings
from tests.support import stub_project

FLOW = """
from flows.method import method

def not_the_flow(run):
    ...

@method(Config)
def {name}_iteration(run: Run[Config]) -> None:
    ...
"""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A project of two flows: one with two profiles and a third that they extend, the other with
    one profile."""
    profiles = {
        "maze": {
            "_large": '[engine]\ndevice = "cuda"\n',
            "micro": '[engine]\ndtype = "float32"\n',
            "large-8gpu": 'extends = "_large"\n[engine]\ndtype = "bfloat16"\n',
        },
        "chess": {"micro": ""},
    }
    for name, files in profiles.items():
        folder = tmp_path / "flows" / name
        (folder / "profiles").mkdir(parents=True)
        (folder / "flow.py").write_text(FLOW.format(name=name))
        for file, text in files.items():
            (folder / "profiles" / f"{file}.toml").write_text(text)
    (tmp_path / "flows" / "service").mkdir()  # a folder without a flow
    (tmp_path / "home").mkdir()
    return Site(tmp_path, tmp_path / "home")


def test_a_profile_is_a_deployment_in_the_pool_of_its_device(site):
    found = [
        (d["entrypoint"], d["name"], d["parameters"], d["work_pool"]["name"])
        for d in declared(site)
    ]
    assert found == [
        ("flows/chess/flow.py:chess_iteration", "micro", {"profile": "micro"}, "cpu"),
        ("flows/maze/flow.py:maze_iteration", "large-8gpu", {"profile": "large-8gpu"}, "gpu"),
        ("flows/maze/flow.py:maze_iteration", "micro", {"profile": "micro"}, "cpu"),
    ]


def test_a_flow_is_found_by_its_name_and_a_profile_by_its_own(site):
    assert list(parameters.deployments_of("maze-iteration", site)) == ["large-8gpu", "micro"]
    with pytest.raises(
        ValueError, match="no flow 'maze'; there are chess-iteration, maze-iteration"
    ):
        parameters.deployments_of("maze", site)
    with pytest.raises(
        ValueError, match="maze-iteration has no profile 'huge'; there are large-8gpu, micro"
    ):
        parameters.find_deployment("maze-iteration", "huge", site)


def test_prefect_stores_where_a_flow_is_and_the_pool_by_its_name(site):
    [chess, _, _] = declared(site)
    flow, values = as_prefect_stores_it(chess)
    assert flow == "chess-iteration"
    assert values == {
        "name": "micro",
        "description": chess["description"],
        "tags": ["chess", "CPUs"],
        "entrypoint": "flows.chess.flow:chess_iteration.flow",
        "parameters": {"profile": "micro"},
        "work_pool_name": "cpu",
    }


def test_prefect_checks_the_parameters_that_a_method_takes():
    schema = parameters_of_methods()
    assert list(schema["properties"]) == list(inspect.signature(Method.__call__).parameters)[1:]
    assert schema["properties"]["profile"]["default"] == "micro"
    assert schema["required"] == []


def test_a_folder_without_a_function_under_the_decorator_is_named(site):
    (site.root / "flows" / "chess" / "flow.py").write_text("def chess_iteration(run): ...")
    with pytest.raises(ValueError, match=r"flows/chess/flow\.py has no function under @method"):
        declared(site)


def test_a_flow_is_deployed_again_if_its_declaration_changed_and_not_for_its_code(site, tmp_path):
    """Flow runs import the current code anyway."""
    file = site.root / "flows" / "chess" / "flow.py"

    def changed(text: str) -> list[str]:
        file.write_text(text)
        now = declared(site)
        return [d["tags"][0] for d in services.to_deploy(site, now, num_there=len(now))]

    services.remember_deployed(site, declared(site))
    text = file.read_text()
    assert changed(text.replace("...", "return None")) == []
    assert changed('"""Other words."""\n' + text) == ["chess"]
    assert changed(text.replace("chess_iteration", "go_iteration")) == ["chess"]
    own = stub_project.make(tmp_path / "project")
    own.home.mkdir(parents=True, exist_ok=True)
    services.remember_deployed(own, declared(own))
    num = len(declared(own))
    assert services.to_deploy(own, declared(own), num_there=num) == []
    flow = own.root / "stub_flows" / "flow.py"
    flow.write_text(flow.read_text().replace("corpus: str | None = None", "corpus: str"))
    assert services.to_deploy(own, declared(own), num_there=num)  # its parameters are its own


def test_a_flow_with_a_syntax_error_is_named_with_its_line(site):
    """Every command that starts a flow reads all of them, so it may be another's."""
    (site.root / "flows" / "chess" / "flow.py").write_text("from x import y\nfrom class import z\n")
    with pytest.raises(ValueError, match=r"flows/chess/flow\.py, line 2: invalid syntax"):
        parameters.find_deployment("maze-iteration", "micro", site)


def test_a_profile_that_is_no_toml_is_named_with_its_line(site):
    (site.root / "flows" / "chess" / "profiles" / "micro.toml").write_text("steps = 1\nseed = \n")
    with pytest.raises(
        ValueError, match=r"chess/profiles/micro\.toml is not valid TOML: Invalid value \(at line 2"
    ):
        parameters.find_deployment("chess-iteration", "micro", site)
    assert parameters.find_deployment("maze-iteration", "micro", site)["name"] == "micro"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"extends = 3", r"micro\.toml: `extends` is the name of a profile, or a list of names"),
        (b'extends = ["micro"]', r"micro\.toml extends itself"),
        (b'extends = "other"', r"micro\.toml extends 'other': no profile 'other'; there are micro"),
        (b'seed = "\xff"', r"micro\.toml is not UTF-8 text"),
    ],
)
def test_a_profile_that_cannot_be_read_stops_no_other(site, text, says):
    (site.root / "flows" / "chess" / "profiles" / "micro.toml").write_bytes(text)
    with pytest.raises(ValueError, match=says):
        parameters.find_deployment("chess-iteration", "micro", site)
    unreadable: dict[Path, ValueError] = {}
    names = [(d["name"], d["tags"][0]) for d in declared(site, unreadable=unreadable)]
    assert names == [("large-8gpu", "maze"), ("micro", "maze")]
    [(file, _)] = unreadable.items()
    assert file == site.root / "flows" / "chess" / "profiles" / "micro.toml"


@pytest.mark.parametrize("text", ["models = 5", 'engine = "x"', "models = {base = 3}"])
def test_a_section_that_is_none_is_deployed_and_refused_when_it_is_run(site, text):
    (site.root / "flows" / "chess" / "profiles" / "micro.toml").write_text(text)
    assert parameters.find_deployment("chess-iteration", "micro", site)["name"] == "micro"


def test_a_profile_may_begin_with_a_byte_order_mark(site):
    file = site.root / "flows" / "chess" / "profiles" / "micro.toml"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert parameters.find_deployment("chess-iteration", "micro", site)["name"] == "micro"


def test_a_project_that_has_a_prefect_file_is_deployed_by_it(tmp_path):
    site = stub_project.make(tmp_path / "project")
    assert [d["name"] for d in declared(site)] == ["micro", "broken", "large"]


def test_every_shipped_profile_is_deployed_once_under_its_name_and_loads():
    found: dict[str, list[str]] = {}
    for deployment in declared(Site()):
        entrypoint, name = deployment["entrypoint"], deployment["name"]
        found.setdefault(entrypoint, []).append(name)
        config = importlib.import_module(
            entrypoint.rsplit("/", 1)[0].replace("/", ".") + ".config"
        ).Config
        given = {"corpus": "here"} if "corpus" in config.model_fields else {}
        if name == "reports":
            given["long_context.tokenizer"] = f"owner/name@{'0' * 40}"
        cfg = profile.load(config, name, given)
        gpu = isinstance(cfg, MethodSettings) and cfg.engine.device == "cuda"
        assert deployment["work_pool"]["name"] == ("gpu" if gpu else "cpu"), (entrypoint, name)
        assert deployment["parameters"] == {"profile": name}
    flows = {path.parent.name: path.parent for path in (SOURCE / "flows").glob("*/flow.py")}
    assert {entrypoint.split("/")[1]: names for entrypoint, names in found.items()} == {
        name: profile.names(folder / "profiles") for name, folder in flows.items()
    }
    for entrypoint in found:
        module, function = entrypoint.split(":")
        method = getattr(
            importlib.import_module(module.removesuffix(".py").replace("/", ".")), function
        )
        assert method.name == method.flow.name == function.replace("_", "-")


# ---- profiles ----


class Engine(Settings):
    width: int = 0
    height: int = 0


class Toy(Settings):
    name: str = ""
    one: Engine = Engine()
    other: Engine = Engine()
    listed: tuple[int, ...] = ()


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of profiles of `Toy`."""
    monkeypatch.setattr(profile, "home", lambda model: tmp_path)
    (tmp_path / "profiles").mkdir()
    return tmp_path / "profiles"


class Wide(Settings):
    engine: Engine = Engine(width=7)
    toy: Toy = Toy(name="wide", one=Engine(width=9, height=5))


def test_a_setting_leaves_the_others_of_its_group_as_the_default_has_them(toy):
    """As in `update: GRPOSettings = GRPOSettings(beta=0.0)`, of which a profile sets only the
    learning rate."""
    (toy / "plain.toml").write_text("")
    (toy / "high.toml").write_text("[engine]\nheight = 2\n[toy.one]\nheight = 1\n")
    assert profile.load(Wide, "plain") == Wide()
    high = profile.load(Wide, "high")
    assert high.engine == Engine(width=7, height=2)
    assert high.toy == Toy(name="wide", one=Engine(width=9, height=1))
    assert profile.load(Wide, "plain", {"engine.height": 3}).engine == Engine(width=7, height=3)
    assert profile.load(Wide, "high", {"engine.width": 0, "toy.name": "x"}).engine == Engine(
        width=0, height=2
    )


def test_a_profile_extends_several_and_the_later_wins(toy):
    (toy / "_base.toml").write_text(
        'name = "base"\nlisted = [1, 2]\n[one]\nwidth = 1\nheight = 1\n'
    )
    (toy / "_wide.toml").write_text('extends = "_base"\nname = "wide"\n[one]\nwidth = 9\n')
    (toy / "_other.toml").write_text("listed = [3]\n[other]\nheight = 5\n")
    (toy / "whole.toml").write_text('extends = ["_wide", "_other"]\n[one]\nheight = 2\n')
    (toy / "turned.toml").write_text('extends = ["_other", "_wide"]\n')
    (toy / "plain.toml").write_text("")
    whole = profile.load(Toy, "whole")
    assert (whole.name, whole.one, whole.other) == (
        "wide",
        Engine(width=9, height=2),
        Engine(height=5),
    )
    assert whole.listed == (3,)  # a list is one value: it is replaced, not extended
    assert profile.load(Toy, "turned").listed == (1, 2)
    assert profile.load(Toy, "plain") == Toy()
    assert profile.names(toy) == ["plain", "turned", "whole"]


def test_a_parent_that_there_is_not_is_named(toy):
    (toy / "child.toml").write_text('extends = ["_gone"]\n')
    with pytest.raises(ValueError, match="no profile '_gone'; there are child"):
        profile.load(Toy, "child")


def test_engines_load_the_base_model_unless_they_are_given_another():
    engine = {"max_model_len": 64, "dtype": "float32"}
    cfg = MethodSettings.model_validate({"models": {"base": "a/base"}, "engine": engine})
    assert (cfg.engine.model, cfg.engine.max_model_len) == ("a/base", 64)
    given = {"models": {"base": "a/base"}, "engine": {**engine, "model": "an/other"}}
    assert MethodSettings.model_validate(given).engine.model == "an/other"


def test_another_base_model_is_another_model_of_the_engine():
    from flows.rzero.config import Config

    cfg = profile.load(Config, "micro", {"models.base": "an/other"})
    assert (cfg.models.base, cfg.engine.model) == ("an/other", "an/other")


def test_a_new_or_changed_profile_is_deployed_alone(site):
    services.remember_deployed(site, declared(site))
    assert services.to_deploy(site, declared(site), num_there=3) == []
    (site.code / "flows" / "chess" / "profiles" / "blitz.toml").write_text("")
    micro = site.code / "flows" / "maze" / "profiles" / "micro.toml"
    micro.write_text('[engine]\ndevice = "cuda"\n')
    changed = services.to_deploy(site, declared(site), num_there=4)
    assert [(d["tags"][0], d["name"]) for d in changed] == [("chess", "blitz"), ("maze", "micro")]


def test_a_server_that_lost_deployments_gets_all(site):
    services.remember_deployed(site, declared(site))
    assert len(services.to_deploy(site, declared(site), num_there=2)) == 3
