"""What an audit says it does not tell: sections that were left out, and the conditions of those that were not."""

import shiftproof


def test_a_report_says_what_it_does_not_tell(tmp_path):
    result = shiftproof.audit(
        "demo", "demo", out=tmp_path, sections=["clean", "corruptions"], images=20, shifts=["fog"], severities=[5]
    )
    said = result.masthead.limits
    assert "images like these 20." in said[0]
    assert not any("smoothed" in sentence for sentence in said)
    assert said[-1].startswith("Not measured, because the sections were left out: Weak slices and data quality; ")
    assert "Certified robustness" in said[-1]
    assert said[0] in result.report.read_text()
