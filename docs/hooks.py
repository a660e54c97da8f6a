"""MkDocs hooks that add the figures of the study to the site."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
#: A link to a figure of the study.
_FIGURE = re.compile(r"\((?:\.\./)+benchmarks/study/(?:[\w-]+/)?([\w-]+\.svg)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the figures from the folders of the study to the site."""
    for figure in sorted(ROOT.glob("benchmarks/study/**/*.svg")):
        files.append(File.generated(config, f"study-{figure.name}", abs_src_path=str(figure)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Rewrite links to figures."""
    return _FIGURE.sub(r"(study-\1)", markdown)
