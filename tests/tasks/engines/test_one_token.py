"""The changes that a mutation test makes are slips of the hand, and none touches mere text."""

from tests.bench.one_token import mutants

CODE = '''
def f(x: int = 1) -> bool:
    """1 < 2."""
    if x < 2 and not x:
        raise ValueError(f"{x + 1} is wrong" * 3)
    log.info("of %d", 5)
    return min(x, -x) == 0.5 or True
'''
SQL = "-- 1 < 2\nselect count(*), t.*, 'not 1' from t where a < 2 and b is not null or c > 1e-9\n"


def changes(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return {(m.line, m.change.split(" in ")[0]): m.text for m in mutants(path)}


def test_a_module_is_changed_in_one_place_at_a_time(tmp_path):
    found = changes(tmp_path, "m.py", CODE)
    assert set(found) == {
        *((2, c) for c in ("1 -> 2",)),
        *((4, c) for c in ("And -> Or", "Lt -> LtE", "2 -> 3", "without not")),
        *(
            (7, c)
            for c in ("Or -> And", "min -> max", "Eq -> NotEq", "0.5 -> 1.5", "True -> False")
        ),
    }
    assert (
        "if x <= 2 and (not x):" in found[4, "Lt -> LtE"]
        and "min(x, -x) == 0.5 or True" in found[4, "Lt -> LtE"]
    )
    assert "not not x" in found[4, "without not"]
    assert len(set(found.values())) == len(found)


def test_a_query_is_changed_in_its_code_and_not_in_its_comments(tmp_path):
    found = changes(tmp_path, "q.sql", SQL)
    wanted = ("< -> <=", "2 -> 3", "and -> or", "is not null -> is null", "or -> and", "> -> >=")
    assert set(found) == {(2, c) for c in wanted}
    assert found[2, "and -> or"] == SQL.replace(" and ", " or ")
