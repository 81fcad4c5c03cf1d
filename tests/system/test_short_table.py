"""Short summaries of results, as text and as HTML."""

import math

from remuda.system.short_table import MOST, ShortTable, short


def test_a_table_is_aligned_and_counts_what_it_leaves_out():
    rows = [(f"agent_{i}", short(i * 100.0)) for i in range(MOST + 2)]
    lines = ShortTable("Returns", ("agent", "mean"), rows, ["a note"]).as_text().splitlines()
    assert lines[:3] == ["Returns", "agent    mean", "agent_0     0"]
    assert lines[-2:] == ["and 2 more", "a note"]
    assert len(lines) == MOST + 4


def test_html_is_escaped():
    html = ShortTable("<b>", ("agent",), [("<script>",)], ["a & b"]).as_html()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "a &amp; b" in html


def test_a_table_without_rows_is_its_title_and_notes():
    table = ShortTable("Result", (), (), ["not finished"])
    assert table.as_text() == "Result\nnot finished"
    assert "<table>" not in table.as_html()


def test_numbers_are_short():
    assert (short(12.34567), short(None), short(math.nan)) == ("12.35", "-", "-")
