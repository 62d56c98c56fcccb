"""Look for accessibility faults in HTML files with axe-core: `python .ci/accessibility.py axe.min.js report.html ...`.

Charts are drawn and tables opened first, in light and dark colours. Exits with 1 where a fault is serious or critical.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

GRAVE = ("serious", "critical")


def main(axe: str, *files: str) -> int:
    """Print every fault; return 1 where one is grave."""
    grave = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for file in files:
            for scheme in ("light", "dark"):
                page = browser.new_context(bypass_csp=True, color_scheme=scheme).new_page()
                page.goto(Path(file).resolve().as_uri())
                for chart in page.locator(".chart").all():
                    chart.scroll_into_view_if_needed()
                    page.wait_for_timeout(100)
                page.evaluate("document.querySelectorAll('details').forEach((part) => (part.open = true))")
                page.evaluate(Path(axe).read_text("utf-8"))
                found = page.evaluate("axe.run(document)")
                for fault in found["violations"]:
                    grave += fault["impact"] in GRAVE
                    where = fault["nodes"][0]["target"]
                    print(f"{file} ({scheme}): {fault['impact']}: {fault['help']}, at {where}")
                print(f"{file} ({scheme}): {len(found['passes'])} rules pass, {len(found['violations'])} do not")
        browser.close()
    return int(bool(grave))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
