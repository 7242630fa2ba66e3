"""The report: one page to read before buying. It is put together once and written as HTML or as Markdown."""
