"""A chart as a file: SVG as it is, PNG by resvg, PDF by reportlab; the same bytes each time.

The font comes with P3S: a machine without fonts writes the same pictures. reportlab is an extra.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from p3s.base.errors import P3SError

FONT = "Bitstream Vera Sans"
#: Files of the font: regular, bold, italic.
_FONTS = ("Vera", "VeraBd", "VeraIt")
_STEP = re.compile(r"([MLhvz])([^MLhvz]*)")
_NUMBERS = re.compile(r"-?\d+(?:\.\d+)?")


def as_svg(root: ElementTree.Element) -> bytes:
    """Return a drawing as an SVG file."""
    root.set("xmlns", "http://www.w3.org/2000/svg")
    root.set("font-family", f"{FONT}, DejaVu Sans, Verdana, sans-serif")
    drawing = ElementTree.tostring(root, "unicode")
    return f"<?xml version='1.0' encoding='utf-8'?>\n{drawing}".encode()


def as_png(root: ElementTree.Element, width: int) -> bytes:
    """Return a drawing as a PNG that many pixels wide."""
    import resvg_py

    return bytes(
        resvg_py.svg_to_bytes(
            svg_string=as_svg(root).decode("utf-8").partition("\n")[2],
            width=width,
            dpi=96,
            skip_system_fonts=True,
            font_files=[str(_fonts() / f"{name}.ttf") for name in _FONTS],
            background="#ffffff",
        )
    )


def as_pdf(root: ElementTree.Element, width: float, height: float) -> bytes:
    """Return a drawing as a PDF of that size in points, its font embedded.

    Raises P3SError where reportlab is not installed.
    """
    try:
        from reportlab.pdfbase.pdfmetrics import registerFont
        from reportlab.pdfbase.ttfonts import TTFont
        from reportlab.pdfgen.canvas import Canvas
    except ModuleNotFoundError as err:
        raise P3SError(
            "a PDF needs the Python package reportlab; run: pip install 'p3s[pdf]', or write .svg"
        ) from err

    for name in _FONTS:
        registerFont(TTFont(name, str(_fonts() / f"{name}.ttf")))
    data = io.BytesIO()
    canvas = Canvas(data, pagesize=(width, height), invariant=1, initialFontName="Vera")
    canvas.setTitle(root.findtext("title", ""))
    canvas.setProducer("P3S")
    left, top, wide, high = map(float, root.get("viewBox", "").split())
    scale = min(width / wide, height / high)
    canvas.translate((width - scale * wide) / 2, (height + scale * high) / 2)
    canvas.scale(scale, -scale)
    canvas.translate(-left, -top)
    for element in root:
        _draw(canvas, element)
    canvas.save()
    return data.getvalue()


def _fonts() -> Path:
    return Path(__file__).parent.parent / "fonts"


def _draw(canvas: Any, element: ElementTree.Element) -> None:
    """Draw an element and those within it."""
    canvas.saveState()
    if element.tag == "g":
        if move := _numbers(element, "transform"):
            canvas.translate(*move)
        for inner in element:
            _draw(canvas, inner)
    elif element.tag == "text":
        _write(canvas, element)
    elif element.tag != "title":
        stroke, fill = _brush(canvas, element)
        if stroke or fill:
            _shape(canvas, element, stroke, fill)
    canvas.restoreState()


def _brush(canvas: Any, element: ElementTree.Element) -> tuple[int, int]:
    """Set colours and lines; return whether to draw the outline, and the area."""
    from reportlab.lib.colors import toColor

    alpha = float(element.get("opacity", "1"))
    colours = {"stroke": element.get("stroke", "none"), "fill": element.get("fill", "black")}
    drawn = {name: value not in ("none", "transparent") for name, value in colours.items()}
    if drawn["stroke"]:
        canvas.setStrokeColor(toColor(colours["stroke"]), alpha)
        canvas.setLineWidth(float(element.get("stroke-width", "1")))
        canvas.setDash(_numbers(element, "stroke-dasharray"))
        canvas.setLineCap(element.get("stroke-linecap") == "round")
        canvas.setLineJoin(element.get("stroke-linejoin") == "round")
    if drawn["fill"]:
        canvas.setFillColor(toColor(colours["fill"]), alpha)
    return int(drawn["stroke"]), int(drawn["fill"])


def _shape(canvas: Any, element: ElementTree.Element, stroke: int, fill: int) -> None:
    def of(*names: str) -> list[float]:
        return [float(element.get(name, "0")) for name in names]

    if element.tag == "line":
        canvas.line(*of("x1", "y1", "x2", "y2"))
    elif element.tag == "rect":
        canvas.rect(*of("x", "y", "width", "height"), stroke=stroke, fill=fill)
    elif element.tag == "circle":
        canvas.circle(*of("cx", "cy", "r"), stroke=stroke, fill=fill)
    else:
        path = canvas.beginPath()
        for step, *numbers in _steps(element):
            {"M": path.moveTo, "L": path.lineTo, "z": path.close}[step](*numbers)
        canvas.drawPath(path, stroke=stroke, fill=fill)


def _steps(element: ElementTree.Element) -> list[tuple[Any, ...]]:
    """Return a path or the corners of lines as moves to, lines to, and closings."""
    if element.tag != "path":
        flat = _numbers(element, "points")
        corners = list(zip(flat[::2], flat[1::2], strict=True))
        closed = [("z",)] if element.tag == "polygon" else []
        return [("M", *corners[0]), *(("L", *corner) for corner in corners[1:]), *closed]
    steps: list[tuple[Any, ...]] = []
    x = y = 0.0
    for step, text in _STEP.findall(element.get("d", "")):
        numbers = [float(number) for number in _NUMBERS.findall(text)]
        if step == "z":
            steps.append(("z",))
            continue
        if step in "ML":
            x, y = numbers
        else:
            x, y = (x + numbers[0], y) if step == "h" else (x, y + numbers[0])
        steps.append(("M" if step == "M" else "L", x, y))
    return steps


def _write(canvas: Any, element: ElementTree.Element) -> None:
    """Write a text, its outline below it."""
    from reportlab.pdfbase.pdfmetrics import stringWidth

    words, size = element.text or "", float(element.get("font-size", "12"))
    bold = element.get("font-weight", "normal") in ("600", "650", "bold")
    font = "VeraBd" if bold else "VeraIt" if element.get("font-style") == "italic" else "Vera"
    part = {"middle": 0.5, "end": 1.0}.get(element.get("text-anchor", ""), 0.0)
    x, y = float(element.get("x", "0")), float(element.get("y", "0"))
    outlined, _ = _brush(canvas, element)
    canvas.translate(x - part * stringWidth(words, font, size), y)
    canvas.scale(1, -1)
    canvas.setFont(font, size)
    if outlined:
        canvas.drawString(0, 0, words, mode=1)
    canvas.drawString(0, 0, words)


def _numbers(element: ElementTree.Element, name: str) -> list[float]:
    return [float(number) for number in _NUMBERS.findall(element.get(name, ""))]
