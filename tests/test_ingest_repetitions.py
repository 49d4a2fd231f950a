"""Rules by which entries of calendars are repeated, in words."""

from __future__ import annotations

import pytest

from pointsman.ingest import ParsedDocument, convert


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("FREQ=WEEKLY;BYDAY=MO", "every week on Monday"),
        ("FREQ=WEEKLY;INTERVAL=2;UNTIL=19971224T000000Z;WKST=SU;BYDAY=MO,WE,FR",
         "every 2 weeks on Monday, Wednesday, Friday until 1997-12-24 00:00 UTC"),
        ("FREQ=MONTHLY;COUNT=10;BYDAY=1FR", "every month on the first Friday, times: 10"),
        ("FREQ=MONTHLY;BYDAY=-1FR,2TU", "every month on the last Friday, the second Tuesday"),
        ("FREQ=MONTHLY;BYMONTHDAY=13,-1", "every month on day 13, -1"),
        ("freq=yearly;interval=1;bymonth=10,4", "every year in October, April"),
        ("FREQ=DAILY;UNTIL=20080323", "every day until 2008-03-23"),
        ("FREQ=DAILY;COUNT=1", "every day, times: 1"),
        ("FREQ=YEARLY;BYMONTH=5L", "every year in 5L"),
        ("FREQ=YEARLY;BYWEEKNO=20", "FREQ=YEARLY;BYWEEKNO=20"),
        ("FREQ=MONTHLY;BYDAY=MO;BYSETPOS=-1", "FREQ=MONTHLY;BYDAY=MO;BYSETPOS=-1"),
        ("FREQ=SOMETIMES", "FREQ=SOMETIMES"),
        ("RSCALE=HEBREW;FREQ=YEARLY;BYMONTH=5L", "RSCALE=HEBREW;FREQ=YEARLY;BYMONTH=5L"),
        ("FREQ=WEEKLY;BYDAY=99XX,", "every week on 99XX"),
        ("no rule", "no rule"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["a.ics", "a.eml"])
def test_rules_of_repetition_are_read_in_words(name: str, rule: str, expected: str) -> None:
    calendar = f"BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:Обход\nRRULE:{rule}\nEND:VEVENT\nEND:VCALENDAR\n"
    head = "From: a@example.com\nContent-Type: text/calendar; charset=utf-8\n\n" if name.endswith("eml") else ""
    (document,) = convert(name, (head + calendar).encode())
    assert isinstance(document, ParsedDocument)
    assert f"Обход\nRepeated: {expected}" in document.text.split("\n\n")[-1]
    assert document.text.endswith(f"Repeated: {expected}")
