"""What a reader needs of a page, measured in Chromium: contrast, names for a screen reader, a way in by keyboard."""

from pathlib import Path
from typing import Any

from tests.helpers.browser import Page

FAINT = Path(__file__).with_name("readable.js").read_text(encoding="utf-8")
"""Texts whose contrast is below that of WCAG 2.2 AA: 4.5, and 3 for large ones."""
SHUT = """[...document.querySelectorAll("*")].filter((e) => {
  const style = getComputedStyle(e), wide = e.scrollWidth > e.clientWidth + 1 && /auto|scroll/.test(style.overflowX);
  return wide && e.checkVisibility() && e.tabIndex < 0 && !e.querySelector("a, button, [tabindex='0']");
}).map((e) => e.outerHTML.slice(0, 80))"""
"""What scrolls sideways, and cannot by keyboard."""
UNNAMED = ("button", "combobox", "image", "graphics-object", "iframe", "link", "table", "tab", "tabpanel", "textbox")
"""Roles whose elements have names."""


def themed(page: Page, scheme: str, media: str = "") -> None:
    """Show the page as a reader in light or dark has it, on a screen or printed."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    page.call("Emulation.setEmulatedMedia", media=media, features=[feature])


def unnamed(page: Page) -> list[str]:
    """Return the elements for which a screen reader has a role and no name."""
    tree: list[dict[str, Any]] = page.call("Accessibility.getFullAXTree")["nodes"]
    shown = (n for n in tree if not n.get("ignored"))
    return [
        f"{n['role']['value']} {n.get('backendDOMNodeId')}"
        for n in shown
        if n["role"]["value"] in UNNAMED and not n.get("name", {}).get("value", "").strip()
    ]
