"""What the documentation's site changes in the pages: see `hooks` in mkdocs.yml."""

import re

# The word after a fence's language is for the tests, which run the block.
_FENCE = re.compile(r"^```(\w+) \w+$", re.MULTILINE)


def on_page_markdown(markdown: str, **_) -> str:
    """The page without the second word of its fences, which would not be blocks to MkDocs."""
    return _FENCE.sub(r"```\1", markdown)
