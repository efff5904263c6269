"""Which models an API may serve, and which settings of it are refused before anything is loaded."""

import pytest

from flows.run import Role, Run
from flows.runtime.machines import Machines, open_models
from flows.scope.config import Config
from flows.settings.profile import MethodSettings, load
from tasks.engines.chat import ChatFleet
from tasks.engines.endpoint import ChatEndpoint
from tasks.models.engine import Policy, Sampling
from tasks.prompt import Malformed, Template
from tasks.read import reads
from tests.support.chat_server import serving
from tests.support.rows import publish, row
from warehouse.draft import hash_json
from warehouse.schemas import VOTES

URL = "https://judges.example/v1"
GRADER = {"models.grader": "api:big-judge", "api.url": URL}
CAPPED = {**GRADER, "api.max_cost": 5, "api.price_in": 2}


def test_a_judge_behind_an_api_is_named_where_models_are(store, tmp_path):
    cfg = load(Config, "micro", {**GRADER, "api.price_in": 2, "api.price_out": 8})
    models = open_models(cfg)
    assert (models["grader"].id, models["grader"].weights) == ("big-judge", "api:big-judge")
    assert models["base"].weights.startswith("data/micro") or models["base"].weights.endswith(
        "base"
    )
    api = ChatFleet(cfg.api, store.root, "r")
    machines = Machines.of(cfg, tmp_path, api)
    assert machines.serving(models["grader"], on_judge_engine=True) is api
    assert machines.serving(models["base"], on_judge_engine=True) is machines.engines
    machines.close()


def test_what_decides_a_reply_is_part_of_the_models_identity_and_how_it_is_asked_is_not():
    def identity(**settings) -> str:
        return ChatEndpoint(url=URL, **settings).policy("api:m").content_hash

    assert identity() == hash_json(["api:m", URL, {}, []])
    same = [
        {"retries": 9},
        {"price_in": 3},
        {"max_concurrency": 1},
        {"api_key_env": "OTHER"},
        {"timeout_s": 1},
    ]
    assert {identity(**settings) for settings in same} == {identity()}
    others = [{"extra": {"a": 1}}, {"omit": ("seed",)}, {"provider": "p"}]
    assert len({identity(**settings) for settings in others} | {identity()}) == 4
    assert ChatEndpoint(url="http://h/v1", provider="p").policy("api:m") == ChatEndpoint(
        url=URL, provider="p"
    ).policy("api:m")
    assert isinstance(ChatEndpoint(url=URL).policy("api:m"), Policy)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"models.base": "api:m", "api.url": URL}, "models.base is trained"),
        ({"models.grader": "api:m"}, "models.grader is behind an API: say where"),
        (
            {**GRADER, "api.url": "https://sk-secret@judges.example/v1"},
            "keys come from the environment",
        ),
        (
            {**GRADER, "api.url": "https://judges.example/v1?key=sk-secret"},
            "keys come from the environment",
        ),
        ({**GRADER, "api.url": "judges.example"}, "http"),
        ({**GRADER, "api.api_key_env": "sk-secret"}, "the name of an environment variable"),
        ({"engine.api_key_env": "sk-secret"}, "the name of an environment variable"),
        ({**GRADER, "api.max_cost": 5}, "max_cost needs price_in"),
        ({**CAPPED, "api.omit": ["max_tokens"]}, "max_cost needs a limit on the length of replies"),
        (
            {**CAPPED, "api.omit": ["max_tokens"], "api.extra": {"max_tokens": 8}},
            "max_cost needs a limit on the length of replies",
        ),
        ({**CAPPED, "api.extra": {"max_tokens": "8"}}, "extra.max_tokens must be a number"),
        ({**GRADER, "api.extra": {"n": 2}}, "extra.n: one reply of each request is read"),
        ({**GRADER, "api.speed": 5}, "api.speed: there is no such setting"),
    ],
)
def test_settings_that_cannot_be_are_refused_and_no_key_is_repeated(settings, says):
    with pytest.raises(ValueError, match=says) as refused:
        load(Config, "micro", settings)
    assert "sk-secret" not in str(refused.value)


def test_a_cap_may_bound_replies_by_the_newer_name_of_the_limit():
    given = {"max_cost": 5, "price_in": 2, "omit": ("max_tokens",)}
    api = ChatEndpoint(url=URL, extra={"max_completion_tokens": 8192}, **given)
    assert api.max_cost == 5


@pytest.mark.parametrize(
    ("key", "says"),
    [(None, "which is not set"), (" ", "which is not set"), ("sk secret", "blanks")],
)
def test_a_key_that_is_missing_or_cannot_be_sent_is_said_before_anything_is_asked(
    monkeypatch, key, says
):
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    if key is not None:
        monkeypatch.setenv("JUDGE_KEY", key)
    with pytest.raises(ValueError, match=rf"JUDGE_KEY.*{says}") as refused:
        ChatEndpoint(url=URL, api_key_env="JUDGE_KEY").key()
    assert "sk secret" not in str(refused.value)
    monkeypatch.setenv("JUDGE_KEY", " sk-1 \n")
    assert ChatEndpoint(url=URL, api_key_env="JUDGE_KEY").key() == "sk-1"
    assert ChatEndpoint(url=URL, api_key_env="").key() == ""


def yes_or_no(text: str) -> int:
    if text not in ("yes", "no"):
        raise Malformed("neither yes nor no")
    return int(text == "yes")


def test_a_role_of_an_api_is_asked_and_read_like_any_other_and_its_failures_are_unscored(
    store, place
):
    """Of three answers one gets a verdict, one a verdict that cannot be read, and one none."""
    says = {"b0": "yes", "b1": "perhaps", "b2": (400, {"error": "no"})}
    template = Template("vote", "{{ answer }}")

    def about(answers):
        return (
            {"rollout_id": a["rollout_id"], "task_id": a["task_id"], "answer": a["answer"]}
            for a in answers
        )

    with serving(lambda prompt, n: says[prompt]) as server:
        settings = {"api.url": server.url, "api.api_key_env": "", "api.max_failed_share": 1}
        cfg = load(Config, "micro", {**GRADER, **settings})
        models = open_models(cfg)
        machines = Machines.of(cfg, store.root / "logs", ChatFleet(cfg.api, store.root, "r"))
        vote = reads("vote", yes_or_no)
        role = Role(
            "judge", (template,), about, Sampling(max_tokens=4), VOTES, vote, on_judge_engine=True
        )
        answers = publish(
            place,
            "answers",
            *(row("answers", rollout_id=f"a{i}", answer=f"b{i}") for i in range(3)),
        )
        asked = Run(cfg, store.run("r"), models, machines).ask(
            place, role, models["grader"], answers=answers
        )
        machines.close()
    votes = [(r["rollout_id"], r["vote"], r["malformed"]) for r in asked.rows.rows()]
    assert votes == [
        ("a0", 1, None),
        ("a1", None, "neither yes nor no"),
        ("a2", None, "engine error"),
    ]
    assert asked.rollouts.recipe["params"]["policy"]["id"] == "big-judge"


def test_a_run_without_an_api_has_none(tmp_path):
    cfg = MethodSettings.model_validate({"models": {"base": "m"}, "engine": {"max_model_len": 8}})
    assert cfg.api is None and Machines.of(cfg, tmp_path).api is None
