"""Make matplotlib's SVG fit into a page with a strict content policy, light or dark.

A policy without inline styles ignores `style` attributes, so each becomes presentation attributes.
Ids are unique per plot, and the colour of the text follows the page.
"""

import io
import re
from xml.etree.ElementTree import Element, fromstring, register_namespace, tostring

from matplotlib.figure import Figure

SVG, LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
INK = "#010203"
"""Colour that stands for the colour of the page's text."""
# The size in a CSS `font` shorthand, such as "italic 10px 'DejaVu Sans'".
FONT = re.compile(r"^(?:\w+ )*?([\d.]+)px .*$")
STYLE_ATTRIBUTES = {
    "fill", "fill-opacity", "fill-rule", "font-size", "opacity", "stroke", "stroke-dasharray",
    "stroke-dashoffset", "stroke-linecap", "stroke-linejoin", "stroke-miterlimit",
    "stroke-opacity", "stroke-width", "text-anchor",
}  # fmt: skip


def to_svg(figure: Figure, name: str, label: str) -> str:
    """Write a figure as an SVG element.

    Args:
        figure: The figure.
        name: Name of the plot on the page, for ids.
        label: Description of the plot, for readers that do not see it.
    """
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    root = fromstring(file.getvalue())  # noqa: S314  matplotlib wrote it
    register_namespace("", SVG)
    register_namespace("xlink", LINK)
    # A list, because the tree changes while it is walked.
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in {f"{{{SVG}}}metadata", f"{{{SVG}}}style"}:
                parent.remove(child)
    for element in root.iter():
        _without_style(element)
        _own_ids(element, name)
    # With the width of the page and a viewBox, the height follows.
    root.attrib.pop("height", None)
    root.set("width", "100%")
    root.set("role", "img")
    root.set("aria-label", label)
    return tostring(root, encoding="unicode").replace(INK, "currentColor")


def _without_style(element: Element) -> None:
    for declaration in (element.attrib.pop("style", "") or "").split(";"):
        name, _, value = (part.strip() for part in declaration.partition(":"))
        if name == "font" and (size := FONT.match(value)):
            element.set("font-size", size[1])
        elif name in STYLE_ATTRIBUTES:
            element.set(name, value)


def _own_ids(element: Element, name: str) -> None:
    if "id" in element.attrib:
        element.set("id", f"{name}-{element.get('id')}")
    link = f"{{{LINK}}}href"
    if (target := element.get(link, "")).startswith("#"):
        element.set(link, f"#{name}-{target[1:]}")
    if "clip-path" in element.attrib:
        element.set("clip-path", element.get("clip-path", "").replace("url(#", f"url(#{name}-"))
