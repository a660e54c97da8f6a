"""MkDocs hooks that add the figures of the study and the page of the schema to the site."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
#: A link to a figure of the study.
_FIGURE = re.compile(r"\((?:\.\./)+benchmarks/study/(?:[\w-]+/)?([\w-]+\.svg)\)")
_SCHEMA = re.compile(r"\(((?:\.\./)+)SCHEMA\.md")  #: A link from a page in `docs` to the schema.
_DOCS = re.compile(r"\(docs/")  #: A link from the schema to a page in `docs`.
_OTHER_FILES = re.compile(r"\[([^\]]+)\]\(examples/[^)]*\)")  #: A link to a file outside of `docs`.


def on_files(files: Any, config: Any) -> Any:
    """Add the figures from the folders of the study, and the page of the schema."""
    files.append(File.generated(config, "schema.md", abs_src_path=str(ROOT / "SCHEMA.md")))
    for figure in sorted(ROOT.glob("benchmarks/study/**/*.svg")):
        files.append(File.generated(config, f"study-{figure.name}", abs_src_path=str(figure)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Rewrite links to figures, and links from and to the schema, which is outside of `docs`."""
    if page.file.src_uri == "schema.md":
        return _OTHER_FILES.sub(r"\1", _DOCS.sub("(", markdown))
    markdown = _SCHEMA.sub(lambda link: f"({link[1].removesuffix('../')}schema.md", markdown)
    return _FIGURE.sub(r"(study-\1)", markdown)
