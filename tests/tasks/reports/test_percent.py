"""Shares are written alike by Python and by SQL."""

from pathlib import Path

import duckdb

from tasks.reports.percent import percent
from warehouse.query import SQL


def test_sql_writes_every_share_of_forty_and_of_a_thousand_as_python_does():
    macro = (Path(SQL) / "views" / "percent.sql").read_text(encoding="utf-8")
    with duckdb.connect() as connection:
        connection.execute(macro)
        for whole in (40, 1000):
            written = connection.execute(
                "select percent(n / $whole) from range(0, $whole + 1) shares(n) order by n",
                {"whole": whole},
            ).fetchall()
            assert [text for (text,) in written] == [percent(n, whole) for n in range(whole + 1)]
